// All runs of the hub as trees: what the server listed, kept up to date by events.
import { Slice, batch, oncePerFrame, signal } from "./lib.js";

const MAX_RUNS = 6_000;

/** One run, as far as the list shows it; what changes is a signal of its own. */
class Run {
  constructor(facts) {
    this.id = facts.run_id;
    this.root = facts.root_run_id || facts.run_id;
    this.parent = facts.parent_run_id || null;
    this.createdAt = facts.created_at || facts.at || 0;
    this.children = [];
    this.agent = signal(facts.agent || "");
    this.name = signal(facts.name || "");
    this.sessionKey = facts.session_key || "";
    this.status = signal(facts.status || "active");
    this.outcome = signal(facts.outcome || "");
    this.inbox = signal(facts.inbox || "open");
    this.waiting = signal(facts.waiting || 0);
    this.doing = signal("");
  }

  get isLive() { return this.status.value !== "ended"; }
}

const runs = new Map();
/** Runs whose parent is not known yet, by its id. */
const orphans = new Map();
/** Rises when a run comes, goes or ends: the lines of the list are made anew. */
export const forestVersion = signal(0);
export const treesLeftOut = signal(0);
const changed = oncePerFrame(() => { forestVersion.value += 1; });

export const runOf = (id) => runs.get(id);
export const runCount = () => runs.size;

export function counts() {
  const found = { all: runs.size, active: 0, waiting: 0, parked: 0, ended: 0 };
  for (const run of runs.values()) found[run.status.peek()] += 1;
  return found;
}

/** Take in what the server lists, in slices; runs that it does not name stay as they are. */
export async function listed(rows) {
  const slice = new Slice();
  for (const row of rows) {
    takeRow(row);
    if (slice.isSpent) await slice.next();
  }
  changed();
}

function takeRow(row) {
  const known = runs.get(row.run_id);
  if (!known) {
    add(new Run(row));
    return;
  }
  batch(() => {
    known.agent.value = row.agent;
    known.name.value = row.name;
    known.status.value = row.status;
    known.outcome.value = row.outcome;
    known.inbox.value = row.inbox;
    known.waiting.value = row.waiting;
  });
}

/** Forget all: the store behind the server is another one. */
export function clearForest() {
  runs.clear();
  orphans.clear();
  changed();
}

function add(run) {
  runs.set(run.id, run);
  const parent = runs.get(run.parent);
  if (parent) parent.children.push(run);
  else if (run.parent) orphans.set(run.parent, [...(orphans.get(run.parent) || []), run]);
  // A child may have been heard of before its parent.
  run.children.push(...(orphans.get(run.id) || []));
  orphans.delete(run.id);
  if (runs.size > MAX_RUNS) prune();
  changed();
  return run;
}

/** Drop the oldest trees that have ended. */
function prune() {
  const live = new Set();
  for (const run of runs.values()) if (run.isLive) live.add(run.root);
  const old = [...runs.values()].filter((run) => !live.has(run.root))
    .sort((one, other) => one.createdAt - other.createdAt);
  for (const run of old.slice(0, MAX_RUNS / 4)) runs.delete(run.id);
}

/** What an event says about the run it belongs to. */
export function applyToForest(event) {
  const id = event.run_id;
  if (!id) return;
  let run = runs.get(id);
  if (!run) {
    if (!event.lane || event.lane === "hub") return;
    run = add(new Run(event));
  }
  if (event.lane === "in") run.waiting.value += 1;
  if (event.lane === "own") apply(run, event);
}

function turn(run, status) {
  if (run.status.peek() === status || run.status.peek() === "ended") return;
  run.status.value = status;
}

function apply(run, event) {
  switch (event.type) {
    case "agent:start":
      if (event.name) run.name.value = event.name;
      if (event.agent) run.agent.value = event.agent;
      return turn(run, "active");
    case "agent:park":
      run.doing.value = "";
      run.waiting.value = 0; // It has taken what there was.
      return turn(run, "parked");
    case "session:prompt":
      run.doing.value = "";
      return event.pauses ? turn(run, "waiting") : undefined;
    case "agent:child":
      return event.waits && !event.error ? turn(run, "waiting") : undefined;
    case "agent:complete":
      run.status.value = "ended";
      run.outcome.value = event.outcome || "completed";
      run.inbox.value = "ended";
      run.waiting.value = 0;
      run.doing.value = "";
      return changed();
    case "session:taken":
    case "session:dropped":
      run.waiting.value = Math.max(0, run.waiting.value - (event.items || []).length);
      return turn(run, "active");
    case "agent:handoff":
      run.agent.value = event.to;
      return undefined;
    case "agent:status":
      run.doing.value = event.status || "";
      return turn(run, "active");
    case "agent:tool:start":
      run.doing.value = event.name;
      return turn(run, "active");
    case "agent:tool:complete":
      run.doing.value = "";
      return turn(run, "active");
    case "agent:step": case "agent:text": case "agent:restore": case "session:start":
      return turn(run, "active");
    default:
      return undefined;
  }
}

/** The lines of the list: every tree from its root down, the newest first. */
export function linesOf({ liveOnly, text, collapsed, keep }) {
  const words = text.trim().toLowerCase();
  const shown = words || liveOnly ? matching(words, liveOnly, keep) : null;
  const roots = [...runs.values()]
    .filter((run) => !runs.has(run.parent) && (!shown || shown.has(run.id)))
    .sort((one, other) => other.createdAt - one.createdAt || (one.id < other.id ? 1 : -1));
  const lines = [];
  const put = (run, depth) => {
    const children = run.children.filter((child) => !shown || shown.has(child.id));
    const isFolded = collapsed.has(run.id) && !words;
    lines.push({ run, depth, kids: children.length, isFolded });
    if (!isFolded) for (const child of children) put(child, depth + 1);
  };
  for (const root of roots) put(root, 0);
  return lines;
}

/** The runs that are asked for, and those above them. */
function matching(words, liveOnly, keep) {
  const shown = new Set();
  for (const run of runs.values()) {
    if (liveOnly && run.status.peek() === "ended" && run.id !== keep) continue;
    if (words && !searched(run).includes(words)) continue;
    for (let each = run; each && !shown.has(each.id); each = runs.get(each.parent)) {
      shown.add(each.id);
    }
  }
  return shown;
}

const searched = (run) =>
  `${run.agent.peek()} ${run.name.peek()} ${run.sessionKey} ${run.id} ${run.status.peek()} ${
    run.outcome.peek()}`.toLowerCase();

/** The runs above one, root first. */
export function pathTo(id) {
  const path = [];
  for (let run = runs.get(id); run && path.length < 100; run = runs.get(run.parent)) {
    path.unshift(run);
  }
  return path;
}
