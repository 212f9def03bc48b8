// The list of all runs, as trees.
import { html, signal, useComputed } from "./lib.js";
import { forestVersion, linesOf, treesLeftOut } from "./forest.js";
import { isListed, prompts } from "./hub.js";
import { Age, Mark, statusWord } from "./controls.js";
import { go, runHere, runLink } from "./router.js";
import { agentName, count } from "./words.js";
import { VirtualList } from "./virtual_list.js";

const LINE = 34;

export const filterText = signal("");
export const liveOnly = signal(false);
const folded = signal(new Set());
const cursorId = signal("");

function fold(id, closed) {
  const set = new Set(folded.peek());
  if (closed) set.add(id); else set.delete(id);
  folded.value = set;
}

const made = new WeakMap();

/** The line of a run: the same one as before, which costs nothing, where nothing has changed. */
function lineOf({ run, depth, kids, isFolded }) {
  const before = made.get(run);
  if (before?.depth === depth && before.kids === kids && before.isFolded === isFolded) {
    return before.content;
  }
  const content = html`<${Line} run=${run} depth=${depth} kids=${kids} isFolded=${isFolded} />`;
  made.set(run, { depth, kids, isFolded, content });
  return content;
}

function Line({ run, depth, kids, isFolded }) {
  const word = statusWord(run.status.value, run.outcome.value);
  const isAsking = asking.value.has(run.id);
  const label = run.name.value || run.sessionKey;
  const name = label === run.agent.value ? "" : label;
  const doing = run.status.value === "active" ? run.doing.value : "";
  const toggle = (event) => { event.stopPropagation(); fold(run.id, !isFolded); };
  return html`
    <span class="run-indent" style=${{ width: `${Math.min(depth, 8) * 16}px` }}></span>
    ${kids > 0
      ? html`<button type="button" class="twist" tabindex="-1" onClick=${toggle}
          aria-label=${isFolded ? "Unfold" : "Fold"}>${isFolded ? "▸" : "▾"}</button>`
      : html`<span class="twist"></span>`}
    <${Mark} word=${word} />
    <span class="run-agent">${agentName(run.agent.value)}</span>
    <span class="run-name">${[name, doing].filter(Boolean).join(" · ")}</span>
    ${isAsking && html`<span class="badge is-ask" title="A person is asked">?</span>`}
    ${run.waiting.value > 0 && html`<span class="badge" title="Items in its inbox">${run.waiting}</span>`}
    <${Age} at=${run.createdAt} />`;
}

/** The runs that ask people something. */
const asking = { get value() { return askingRuns(); } };
let askingOf = null;
let askingSet = new Set();
function askingRuns() {
  if (askingOf !== prompts.value) {
    askingOf = prompts.value;
    askingSet = new Set([...askingOf.values()].map((each) => each.run_id));
  }
  return askingSet;
}

export function Tree() {
  const lines = useComputed(() => {
    forestVersion.value;
    return linesOf({
      liveOnly: liveOnly.value, text: filterText.value, collapsed: folded.value,
      keep: runHere.value,
    });
  }).value;
  const here = runHere.value;
  const at = cursorId.value || here;
  const cursor = at ? lines.findIndex((each) => each.run.id === at) : -1;
  const open = (index) => {
    cursorId.value = lines[index].run.id;
    go(runLink(lines[index].run.id));
  };
  const line = (index) => {
    const { run, depth, kids, isFolded } = lines[index];
    const word = statusWord(run.status.peek(), run.outcome.peek());
    return {
      key: run.id,
      attrs: {
        role: "treeitem", "aria-level": depth + 1,
        "aria-expanded": kids ? String(!isFolded) : undefined,
        "aria-label": `${agentName(run.agent.peek())} ${run.name.peek()}, ${word}`,
        "data-here": run.id === here ? "" : undefined,
        "data-ended": word !== run.status.peek() ? "" : undefined,
      },
      content: lineOf(lines[index]),
    };
  };
  return html`<div class="runs-pane">
    <div class="runs-tools">
      <input id="filter" type="search" placeholder="Filter runs" aria-label="Filter runs"
        value=${filterText} onInput=${(event) => { filterText.value = event.target.value; }} />
      <label class="switch"><input type="checkbox" checked=${liveOnly}
        onChange=${(event) => { liveOnly.value = event.target.checked; }} />Live only</label>
    </div>
    ${lines.length === 0 && html`<p class="empty runs-empty">${emptyWords()}</p>`}
    <${VirtualList} name="runs" class="runs" role="tree" label="Runs" count=${lines.length}
      height=${LINE} line=${line} cursor=${cursor} onPick=${open} onOpen=${open}
      onMove=${(index) => { cursorId.value = lines[index].run.id; }}
      onFold=${(index, closed) => fold(lines[index].run.id, closed)} />
    ${treesLeftOut.value > 0 && html`<p class="runs-more">
      ${count(treesLeftOut.value)} older trees are not listed.</p>`}
  </div>`;
}

function emptyWords() {
  if (!isListed.value) return "Reading…";
  return filterText.value || liveOnly.value ? "No run matches." : "No run yet. Press n to start one.";
}
