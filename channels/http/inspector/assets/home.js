// The first page: how the hub does, what people are asked, what went wrong.
import { html, useEffect, useRef } from "./lib.js";
import { counts, forestVersion } from "./forest.js";
import { Age, Curl, Empty, Json } from "./controls.js";
import { agents, isListed, prompts, rates, readStatistics, statistics, troubles, variableRequests } from "./hub.js";
import { openDialog } from "./keyboard.js";
import { PromptCard, VariablesCard, askedCount } from "./questions.js";
import { runLink } from "./router.js";
import { agentName, count, headline, moment, ownFields, tail } from "./words.js";

const EVERY = 5_000;

function useStatistics() {
  useEffect(() => {
    const read = () => { if (!document.hidden) readStatistics().catch(() => {}); };
    read();
    const timer = setInterval(read, EVERY);
    return () => clearInterval(timer);
  }, []);
  return statistics.value;
}

const Figure = ({ name, value, title }) => html`<div class="figure" title=${title}>
  <dt>${name}</dt><dd>${value === undefined ? "–" : count(value)}</dd></div>`;

export function Home() {
  const facts = useStatistics() || {};
  forestVersion.value;
  const found = counts();
  const asked = askedCount();
  const bad = troubles.value;
  return html`<section class="page home" aria-label="Overview">
    <header class="page-head"><h2>The hub</h2>
      <button type="button" onClick=${() => { openDialog({ kind: "start" }); }}>Start a run</button>
      <${Curl} what="statistics" call=${{ method: "GET", path: "api/statistics" }} /></header>
    <dl class="figures">
      <${Figure} name="In memory" value=${facts.live} title="Runs at work" />
      <${Figure} name="Parked" value=${facts.parked} title="Runs that wait for something" />
      <${Figure} name="In inboxes" value=${facts.waiting} title="Items that no run has taken yet" />
      <${Figure} name="Uncommitted" value=${facts.uncommitted} title="Commits on their way" />
      <${Figure} name="Subscribers" value=${facts.subscribers} />
      <${Figure} name="Dropped" value=${facts.dropped} title="Events that slow listeners missed" />
    </dl>
    <${Pulse} />
    ${asked > 0 && html`<h3>Asked of people <i>${count(asked)}</i></h3><div class="cards">
      ${[...prompts.value.values()].slice(0, 6).map((each) => html`<${PromptCard}
        key=${each.prompt_id} prompt=${each} />`)}
      ${[...variableRequests.value.values()].slice(0, 6).map((each) => html`<${VariablesCard}
        key=${each.request_id} event=${each} />`)}</div>
      ${asked > 6 && html`<p><a href="#/asked">All ${count(asked)}</a></p>`}`}
    ${bad.length > 0 && html`<h3>Troubles <i>${count(bad.length)}</i></h3>
      <${TroubleList} list=${bad.slice(0, 5)} /><p><a href="#/letters">All of them</a></p>`}
    ${isListed.value && found.all === 0 && html`<div class="welcome">
      <h3>No run yet</h3><p>Start one here, or by the line that the curl button shows. It appears in
      the list by itself, as everything does.</p></div>`}
    ${agents.value.length > 0 && html`<h3>Agents <i>${count(agents.value.length)}</i></h3>
      <ul class="agents">${agents.value.map((each) => html`<${Agent} key=${each.name ?? each}
        agent=${each} />`)}</ul>`}
  </section>`;
}

function Agent({ agent }) {
  const name = agent.name ?? agent;
  return html`<li><button type="button" class="quiet-row"
      onClick=${() => { openDialog({ kind: "start", agent: name }); }}>
    <b>${agentName(name)}</b><span>${agent.description || agent.title || ""}</span></button></li>`;
}

/** Events of the last minute, a bar a second. */
function Pulse() {
  const canvas = useRef(null);
  const bars = rates.value;
  useEffect(() => {
    const element = canvas.current;
    if (!element?.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = element;
    element.width = width * ratio;
    element.height = height * ratio;
    const context = element.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = getComputedStyle(element).getPropertyValue("--say");
    const most = Math.max(4, ...bars);
    const step = width / 60;
    bars.forEach((value, index) => {
      const tall = value ? Math.max(1.5, (value / most) * height) : 0;
      context.fillRect((60 - bars.length + index) * step, height - tall, Math.max(1, step - 2), tall);
    });
  }, [bars]);
  return html`<figure class="pulse"><figcaption>Events by second, the last minute
    <i>${count(bars.at(-2) ?? 0)}/s</i></figcaption>
    <canvas ref=${canvas} role="img" aria-label="Events by second"></canvas></figure>`;
}

// ── dead letters and gaps ────────────────────────────────────────────────────────────────────

const WORDS = {
  "hub:dead_letter": "dead letter", "hub:gap": "gap", "hub:error": "listener failed",
  "channel:error": "channel failed",
};

function troubleText(event) {
  if (event.type === "hub:dead_letter") {
    const said = event.message ? headline({ ...event.message, lane: "in" }) : "";
    return `${event.reason || "not handled"}${said ? ` · ${said}` : ""}`;
  }
  if (event.type === "hub:gap") {
    return event.dropped ? `${count(event.dropped)} events are missing here` : event.reason;
  }
  return event.error || "";
}

function TroubleList({ list }) {
  return html`<ul class="troubles">${list.map((event, index) => html`<li key=${`${event.at}-${index}`}>
    <details><summary><span class="dot is-fault" aria-hidden="true"></span>
      <b>${WORDS[event.type] || event.type}</b><span class="grow">${troubleText(event)}</span>
      <${Age} at=${event.at} /></summary>
      <p class="muted">${moment(event.at)}${event.to ? html` · to <a href=${runLink(event.to)}>${
        tail(event.to)}</a>` : ""}</p>
      <${Json} value=${ownFields(event)} /></details></li>`)}</ul>`;
}

export function Letters() {
  const list = troubles.value;
  return html`<section class="page" aria-label="Troubles"><h2>Dead letters and gaps</h2>
    <p class="muted">What nobody handles, and what a listener missed, since this page was opened.</p>
    ${list.length === 0 ? html`<${Empty}>None.<//>` : html`<${TroubleList} list=${list} />`}
  </section>`;
}
