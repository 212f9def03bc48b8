// The run that is shown: its head, its tabs, the pane to talk to it, what is known beside.
import { Later, html, signal } from "./lib.js";
import { part, send, urlOf } from "./api.js";
import { pathTo } from "./forest.js";
import { Copyable, Curl, Fault, Status, fault, note, statusWord } from "./controls.js";
import { openDialog } from "./keyboard.js";
import { shown } from "./hub.js";
import { recordHere, runLink } from "./router.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Details } from "./details.js";
import { Plots } from "./plots.js";
import { RecordPanel } from "./record_panel.js";
import { Timeline, hasCursor } from "./timeline.js";
import { agentName, tail } from "./words.js";

export const TABS = ["conversation", "timeline", "details", "plots"];
const TITLES = { conversation: "Conversation", timeline: "Timeline", details: "Details", plots: "Plots" };
export const tab = signal("conversation");

export function RunView() {
  const view = shown.value;
  if (!view) return null;
  const run = view.run.value;
  if (!run && view.problem.value) {
    return html`<section class="page"><h2>No such run</h2><${Fault} error=${view.problem.value} />
      <p><a href="#/">All runs</a></p></section>`;
  }
  const at = tab.value;
  const withRecord = at === "timeline" && hasCursor.value;
  return html`<div class=${`run at-${at} ${withRecord ? "with-record" : ""}`}>
    <${Head} view=${view} run=${run} />
    <${Tabs} />
    <div class="run-main" id="panel" role="tabpanel" aria-label=${TITLES[at]}><${Later}>
      ${at === "conversation" && html`<${Conversation} key=${view.id} view=${view} />`}
      ${at === "timeline" && html`<${Timeline} key=${view.id} view=${view} />`}
      ${at === "details" && html`<div class="scroll"><${Details} view=${view} /></div>`}
      ${at === "plots" && html`<div class="scroll"><${Plots} key=${view.id} view=${view} /></div>`}
      ${view.records.problem.value && html`<${Fault} error=${view.records.problem.value} />`}
    <//></div>
    <aside class="run-side" aria-label=${withRecord ? "Record" : "Details"}><${Later}>
      ${withRecord ? html`<${RecordPanel} key=${view.id} view=${view} />`
        : at !== "details" && html`<${Details} view=${view} withAsked=${at !== "conversation"} />`}
    <//></aside>
    <${Composer} key=${`talk-${view.id}`} run=${run} runId=${view.id} />
  </div>`;
}

// ── the head ─────────────────────────────────────────────────────────────────────────────────

function Head({ view, run }) {
  const above = pathTo(view.id).slice(0, -1);
  const word = run ? statusWord(run.status.value, run.outcome.value) : "";
  return html`<header class="run-head">
    <a class="back" href="#/runs" aria-label="All runs">‹</a>
    <div class="run-title">
      ${above.length > 0 && html`<nav class="crumbs" aria-label="Runs above">${above.map((each) => html`
        <a key=${each.id} href=${runLink(each.id)}>${agentName(each.agent.value)}</a> › `)}</nav>`}
      <h2>${agentName(run?.agent.value)} ${run?.name.value && run.name.value !== run.agent.value && html`<span>${run.name.value}</span>`}</h2>
      <p class="run-facts">${word && html`<${Status} word=${word} />`}
        ${run?.doing.value && html`<span class="doing">${run.doing.value}</span>`}
        <${Copyable} text=${view.id} shown=${tail(view.id)} label="the run's id" />
        ${run?.waiting.value > 0 && html`<span>${run.waiting} in its inbox</span>`}</p>
    </div>
    <${Actions} view=${view} run=${run} />
  </header>`;
}

const runPath = (id, verb) => `api/runs/${part(id)}/${verb}`;

async function act(id, verb, body) {
  try {
    const { status, run_ids: reached = [] } = await send("POST", runPath(id, verb), body);
    const many = reached.length > 1 ? `, ${reached.length} runs` : "";
    note(`${verb}: ${status || "accepted"}${many}`);
  } catch (problem) {
    fault(problem);
  }
}

/** Ask for a word with something that cannot be undone. */
function ask(view, { verb, name, text, field }) {
  openDialog({
    kind: "confirm", verb, what: name, text, field,
    onYes: (word) => act(view.id, verb, { [field]: word }),
  });
}

const FINAL = [
  { verb: "close", name: "Close", field: "reason",
    text: "It takes nothing more, handles what waits in its inbox, then ends." },
  { verb: "reset", name: "Reset", field: "message",
    text: "Its conversation begins anew; what was said before is forgotten." },
  { verb: "terminate", name: "Terminate", field: "reason",
    text: "It and everything below it end now, permanently." },
];

export const interruptShown = () => {
  const view = shown.peek();
  if (view?.run.peek()?.isLive) act(view.id, "interrupt", { reason: "" });
};

function Actions({ view, run }) {
  const isOver = run?.status.value === "ended";
  const isRoot = !(run?.parent || view.report.value?.run.parent_run_id);
  return html`<div class="run-actions">
    ${!isOver && html`<span class="pair"><button type="button"
      onClick=${() => act(view.id, "interrupt", { reason: "" })}>Interrupt</button>
      <${Curl} what="interrupt" call=${{ method: "POST", path: runPath(view.id, "interrupt"),
        body: { reason: "" } }} /></span>`}
    ${(!isOver || isRoot) && html`<details class="menu" onKeyDown=${closeOnEscape} onFocusOut=${closeOnLeave}>
      <summary aria-label="More actions">More</summary>
      <ul>
        ${!isOver && FINAL.map((each) => html`<li key=${each.verb}>
          <button type="button" class=${each.verb === "terminate" ? "is-danger" : ""}
            onClick=${(event) => { closeMenu(event); ask(view, each); }}>${each.name}…</button>
          <${Curl} what=${each.verb} call=${{ method: "POST", path: runPath(view.id, each.verb),
            body: { [each.field]: "" } }} /></li>`)}
        ${isRoot && html`<${Export} name="Export as test" path=${runPath(view.id, "test")} />
          <${Export} name="Its recording" path=${runPath(view.id, "test/recording")} />`}
      </ul>
    </details>`}
  </div>`;
}

/** A file to be saved; the server names it. */
const Export = ({ name, path }) => html`<li><a download href=${urlOf(path)} onClick=${closeMenu}>${name}</a>
  <${Curl} what=${name.toLowerCase()} call=${{ method: "GET", path, remoteName: true }} /></li>`;

const closeMenu = (event) => event.target.closest("details").removeAttribute("open");
function closeOnEscape(event) {
  if (event.key !== "Escape") return;
  event.preventDefault();
  event.currentTarget.removeAttribute("open");
  event.currentTarget.querySelector("summary").focus();
}
function closeOnLeave(event) {
  if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.removeAttribute("open");
}

// ── tabs ─────────────────────────────────────────────────────────────────────────────────────

function Tabs() {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const tabs = [...event.currentTarget.querySelectorAll("[role=tab]")]
      .filter((each) => each.offsetParent);
    const at = tabs.findIndex((each) => each === document.activeElement);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  };
  return html`<div class="tabs" role="tablist" aria-label="Views of the run" onKeyDown=${move}>
    ${TABS.map((each) => html`<button type="button" role="tab" key=${each} id=${`tab-${each}`}
      class=${`tab tab-${each}`} aria-selected=${String(tab.value === each)} aria-controls="panel"
      tabindex=${tab.value === each ? 0 : -1} onClick=${() => { tab.value = each; }}>${TITLES[each]}
    </button>`)}</div>`;
}

/** The tab that an address asks for: a record is seen in the timeline. */
export function tabOfPlace() {
  if (recordHere.peek() !== null && tab.peek() !== "timeline") tab.value = "timeline";
}

