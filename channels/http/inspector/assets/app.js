// The page: its head, the list of runs, what is shown beside it.
import { Later, breathe, effect, html, render, useEffect } from "./lib.js";
import { logInByLink } from "./api.js";
import { counts, forestVersion } from "./forest.js";
import { Notes } from "./controls.js";
import { Dialogs } from "./dialogs.js";
import { line } from "./event_stream.js";
import { Home, Letters } from "./home.js";
import { begin, retryNow, show, shown, troubles } from "./hub.js";
import { focusList, openDialog, startKeyboard } from "./keyboard.js";
import { Asked, askedCount } from "./questions.js";
import { go, pageHere, place, recordHere, runHere, runLink } from "./router.js";
import { RunView, TABS, interruptShown, tab, tabOfPlace } from "./run_view.js";
import { cursorAt, toRecord } from "./timeline.js";
import { Tree } from "./tree.js";
import { count } from "./words.js";
import { Workers } from "./workers.js";

const LINE_WORDS = { connecting: "connecting", live: "live", cut: "cut off" };

function Line() {
  const { state, reason } = line.value;
  return html`<span class=${`line-state is-${state}`} role="status" title=${reason}>
    <span class="line-dot" aria-hidden="true"></span>${LINE_WORDS[state]}</span>`;
}

function Head() {
  forestVersion.value;
  const { all, ended } = counts();
  const asked = askedCount();
  const here = pageHere.value;
  const link = (page, hash, name, number) => html`<a href=${hash}
    aria-current=${here === page ? "page" : undefined}>${name}${number > 0
      && html`<span class=${`badge ${page === "asked" ? "is-ask" : ""}`}>${count(number)}</span>`}</a>`;
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the run</a>
    <h1><a href="#/">hubbub</a></h1>
    <nav aria-label="Pages">
      ${link("home", "#/", "Overview", 0)}
      <span class="only-narrow">${link("runs", "#/runs", "Runs", all - ended)}</span>
      ${link("asked", "#/asked", "Asked", asked)}
      ${link("letters", "#/letters", "Troubles", troubles.value.length)}
      ${link("workers", "#/workers", "Workers", 0)}
    </nav>
    <${Line} />
    <button type="button" class="quiet help" onClick=${() => openDialog({ kind: "help" })}
      aria-label="Keys" aria-keyshortcuts="?">?</button>
  </header>`;
}

function CutBanner() {
  const { state, reason, tries } = line.value;
  if (state !== "cut") return null;
  return html`<div class="cut" role="alert"><b>Cut off.</b> ${reason} What you see may be old;
    the page goes on by itself${tries > 1 ? `, try ${tries}` : ""}.
    <button type="button" class="quiet" onClick=${retryNow}>Try now</button></div>`;
}

function Page() {
  const page = pageHere.value;
  const runId = runHere.value;
  useEffect(() => { show(runId); }, [runId]);
  useEffect(tabOfPlace, [runId, recordHere.value]);
  const views = { run: RunView, asked: Asked, letters: Letters, workers: Workers };
  const View = views[page] || Home;
  return html`<${Head} /><${CutBanner} />
    <div class=${`body on-${page}`}>
      <nav class="side" aria-label="Runs"><${Later}><${Tree} /><//></nav>
      <main id="main" tabindex="-1"><${Later}><${View} /><//></main>
    </div>
    <${Notes} /><${Dialogs} />`;
}

// ── keys ─────────────────────────────────────────────────────────────────────────────────────

function back() {
  if (document.querySelector("details.menu[open]")) return;
  const { page, runId, record } = place.peek();
  if (page === "run" && (record !== null || cursorAt.peek() >= 0)) {
    cursorAt.value = -1;
    go(runLink(runId), true);
  } else if (page !== "home") {
    go("#/");
    focusList("runs");
  }
}

function scrub(step) {
  const view = shown.peek();
  if (!view) return;
  tab.value = "timeline";
  const from = cursorAt.peek() < 0 ? view.records.list.length : cursorAt.peek();
  const to = Math.max(0, Math.min(view.records.list.length - 1, from + step));
  toRecord(view, to);
}

function filter() {
  const seek = tab.peek() === "timeline" && document.getElementById("seek");
  (seek || document.getElementById("filter"))?.focus();
}

const actions = {
  "/": filter, Escape: back, "[": () => scrub(-1), "]": () => scrub(1),
  "?": () => openDialog({ kind: "help" }), n: () => openDialog({ kind: "start" }),
  m: () => document.getElementById("message")?.focus(), i: interruptShown,
  a: () => go("#/asked"), d: () => go("#/letters"), h: () => go("#/"),
  w: () => go("#/workers"),
};
TABS.forEach((each, index) => {
  actions[index + 1] = () => { if (pageHere.peek() === "run") tab.value = each; };
});

startKeyboard({
  actions,
  preferred: () => (place.peek().page === "run" && tab.peek() === "timeline" ? "records" : "runs"),
});

effect(() => {
  const asked = askedCount();
  document.title = `${asked ? `(${asked}) ` : ""}hubbub`;
});

async function start() {
  const hasToken = logInByLink();
  await breathe(); // Each in a task of its own, for the browser to paint in between.
  await hasToken; // What is drawn asks the server at once.
  render(html`<${Page} />`, document.getElementById("app"));
  begin();
}
start();
