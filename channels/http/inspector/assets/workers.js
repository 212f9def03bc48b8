// The page of workers: who is at work on the store, how far each is, and what waits for somebody.
import { html, signal, useEffect } from "./lib.js";
import { get } from "./api.js";
import { Age, Curl, Empty, Fault } from "./controls.js";
import { agentName, count } from "./words.js";

const EVERY = 2_000;

/** As the server said last: {position, processes, free}. */
const found = signal(null);
const problem = signal(null);

async function read() {
  try {
    found.value = await get("api/workers");
    problem.value = null;
  } catch (error) {
    problem.value = error;
  }
}

/** Ask again and again while the page is looked at, one question at a time. */
function useWorkers() {
  useEffect(() => {
    let timer = 0;
    let isGone = false;
    const next = async () => {
      if (!document.hidden) await read();
      if (!isGone) timer = setTimeout(next, EVERY);
    };
    next();
    return () => { isGone = true; clearTimeout(timer); };
  }, []);
}

const seconds = (number) => `${number.toFixed(1)} s`;

/** How far a process is behind the store, by what it said last. */
function lagWords({ lag, lag_seconds: old }) {
  if (lag === null) return "unknown";
  if (lag === 0) return "–";
  return `${count(lag)}${old === null ? "" : `, ${seconds(old)}`}`;
}

function kindWords(each) {
  const kind = each.is_worker ? "worker" : "channel";
  return each.drains ? `${kind}, leaving` : kind;
}

const COLUMNS = ["Process", "Kind", "Since", "Lease left", "Trees", "Running", "Capacity",
  "Position", "Behind", "Agents"];

const Process = ({ each }) => html`<tr data-process=${each.name}>
  <th scope="row">${each.name}</th><td>${kindWords(each)}</td>
  <td>${each.since === null ? "" : html`<${Age} at=${each.since} />`}</td>
  <td>${each.left === null ? "" : seconds(each.left)}</td>
  <td>${each.is_worker ? count(each.trees) : ""}</td>
  <td>${each.is_worker ? count(each.running) : ""}</td>
  <td>${!each.is_worker ? "" : each.capacity === null ? "any" : count(each.capacity)}</td>
  <td>${each.told === null ? "" : count(each.told)}</td>
  <td class=${each.lag > 0 ? "is-behind" : ""}>${lagWords(each)}</td>
  <td class="words">${!each.is_worker ? ""
    : each.agents === null ? "any" : each.agents.map(agentName).join(", ")}</td></tr>`;

const Free = ({ each }) => html`<li><b>${agentName(each.agent)}</b>
  <span>${count(each.trees)} ${each.trees === 1 ? "tree" : "trees"}</span>
  ${each.is_known ? html`<span class="muted">soon a worker's that knows the agent and has room</span>`
    : html`<span class="fault-text">nobody is there who knows this agent: start a worker that does</span>`}
  </li>`;

function Shared({ processes, free, position }) {
  // Of a store that one process has to itself nothing is leased.
  const isShared = processes.some((each) => each.left !== null);
  return html`<p class="muted">${isShared
    ? `The store's last event is at ${count(position)}. Behind is what a process has yet to hear of.`
    : "One process has this store to itself: nobody else can be at work on it."}</p>
    <div class="table" tabindex="0" role="region" aria-label="Processes"><table>
      <thead><tr>${COLUMNS.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${processes.map((each) => html`<${Process} key=${each.name} each=${each} />`)}</tbody>
    </table></div>
    ${isShared && html`<h3>Trees that nobody drives <i>${
      count(free.reduce((sum, each) => sum + each.trees, 0))}</i></h3>
      ${free.length === 0 ? html`<${Empty}>None.<//>` : html`<ul class="free">${
        free.map((each) => html`<${Free} key=${each.agent} each=${each} />`)}</ul>`}`}`;
}

export function Workers() {
  useWorkers();
  return html`<section class="page workers" aria-label="Workers">
    <header class="page-head"><h2>Workers</h2>
      <${Curl} what="list the workers" call=${{ method: "GET", path: "api/workers" }} /></header>
    ${problem.value && html`<${Fault} error=${problem.value} />`}
    ${found.value && html`<${Shared} ...${found.value} />`}
  </section>`;
}
