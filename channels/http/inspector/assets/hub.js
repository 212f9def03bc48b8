// What the page knows of the hub: one stream of events, and who is told of each.
import { batch, computed, oncePerFrame, signal } from "./lib.js";
import { get, part } from "./api.js";
import { applyToDrafts, forgetDrafts, showDraftsOf } from "./drafts.js";
import { fault } from "./controls.js";
import { EventStream } from "./event_stream.js";
import { applyToForest, clearForest, forestVersion, listed, runOf, treesLeftOut } from "./forest.js";
import { Records } from "./records.js";
import { noteTaken } from "./sent.js";

const MAX_LISTED = 500; // Dead letters, gaps.
const TREES = 1_000; // As many as the server lists.
const ENDED_TREES = 200;

/** Open prompts by id. */
export const prompts = signal(new Map());
/** Requests for variables by id. */
export const variableRequests = signal(new Map());
/** Those that were answered: a list that was asked for before does not bring them back. */
const givenRequests = new Set();
/** Dead letters, gaps and errors, the newest first. */
export const troubles = signal([]);
export const agents = signal([]);
export const statistics = signal(null);
/** Events of the last minute, by second. */
export const rates = signal([]);
export const isListed = signal(false);

/** The run that is shown: its records and the server's report of it. */
export const shown = signal(null);

let seconds = [];
let current = 0;

function countEvent() {
  const second = Math.floor(Date.now() / 1_000);
  if (second !== current) {
    const gap = Math.min(60, second - (current || second - 1));
    for (let each = 0; each < gap; each += 1) seconds.push(0);
    seconds = seconds.slice(-60);
    current = second;
  }
  seconds[seconds.length - 1] += 1;
}
setInterval(() => {
  const idle = Math.floor(Date.now() / 1_000) - current;
  const quiet = Array(Math.min(60, Math.max(0, idle))).fill(0);
  rates.value = [...seconds, ...quiet].slice(-60);
}, 1_000);

// ── the stream ───────────────────────────────────────────────────────────────────────────────

const stream = new EventStream("api/events", {
  onOpen: async (isFirst) => {
    forgetDrafts();
    if (isFirst) await listAll();
  },
  onFrame: (type, body) => batch(() => take(type, body)),
});

export const begin = () => stream.run();
export const retryNow = () => stream.retryNow();

function take(type, event) {
  countEvent();
  if (type === "hub:gap") return afterGap(event);
  applyToForest(event);
  applyToDrafts(event);
  const view = shown.peek();
  if (view && event.run_id === view.id) view.feed(event);
  const listener = LISTENERS[type];
  if (listener) listener(event);
  return undefined;
}

const LISTENERS = {
  "session:prompt": (event) => {
    if ((event.to || "user") !== "user") return; // One run asks another: nothing for people.
    edit(prompts, (map) => map.set(event.prompt_id, { ...event, since: event.at }));
  },
  "session:prompt:end": (event) => edit(prompts, (map) => map.delete(event.prompt_id)),
  "session:variables": askedFor,
  "session:taken": noteTaken,
  "agent:complete": (event) => {
    const ofRun = [...prompts.peek().values()].filter((each) => each.run_id === event.run_id);
    if (ofRun.length) {
      edit(prompts, (map) => { for (const each of ofRun) map.delete(each.prompt_id); });
    }
  },
  "hub:dead_letter": noteTrouble,
  "hub:error": noteTrouble,
  "channel:error": noteTrouble,
};

function edit(held, change) {
  const map = new Map(held.peek());
  change(map);
  held.value = map;
}

function askedFor(event) {
  if (event.lane === "in") {
    if (event.child_run_id) given(event.request_id);
  } else if (event.names?.length && event.expires_at > Date.now() * 1_000
             && !givenRequests.has(event.request_id)) {
    edit(variableRequests, (map) => map.set(event.request_id, event));
  }
}

/** A request as the server lists it, in the form of its event. */
function wanted(request) {
  askedFor({
    ...request, at: request.since, child_agent: request.agent,
    names: request.variables.filter((each) => each.is_missing).map((each) => each.name),
  });
}

/** What a variable of an agent is: its type, what it is for. */
export const variableOf = (agent, name) =>
  agents.value.find((each) => each.name === agent)?.variables?.find((each) => each.name === name)
  || { name, type: "secret", description: "" };

export const answered = (promptId) => edit(prompts, (map) => map.delete(promptId));
export function given(requestId) {
  givenRequests.add(requestId);
  if (variableRequests.peek().has(requestId)) {
    edit(variableRequests, (map) => map.delete(requestId));
  }
}

function noteTrouble(event) {
  troubles.value = [event, ...troubles.peek()].slice(0, MAX_LISTED);
}

/** The stream could not go on where it was: read anew what may have been missed. */
function afterGap(gap) {
  noteTrouble({ ...gap, type: "hub:gap", at: gap.at || Date.now() * 1_000 });
  listAll(gap.reason === "unknown cursor").catch(fault);
  const view = shown.peek();
  if (view) show(view.id, true);
}

async function listAll(fromScratch = false) {
  const live = await get(`api/runs?limit=${TREES}`);
  if (fromScratch) {
    isListed.value = false;
    clearForest();
  }
  await listed(live.runs);
  batch(() => {
    treesLeftOut.value = live.more || 0;
    prompts.value = new Map(live.prompts.map((each) => [each.prompt_id, each]));
    isListed.value = true;
  });
  // What has ended can wait until what lives is seen.
  get(`api/runs?ended=true&limit=${ENDED_TREES}`).then((all) => listed(all.runs)).catch(fault);
  get("api/agents").then((found) => { agents.value = found.agents; }, fault);
  get("api/variables").then((found) => batch(() => found.requests.forEach(wanted)), fault);
}

export async function readStatistics() {
  statistics.value = await get("api/statistics");
}

// ── the run that is shown ────────────────────────────────────────────────────────────────────

/** What changes a report so that it is asked for again. */
const TELLING = new Set([
  "session:start", "session:end", "session:push", "session:pop", "session:taken", "agent:child",
  "agent:file", "agent:key", "agent:complete", "agent:park", "agent:handoff",
]);

class ShownRun {
  constructor(id) {
    this.id = id;
    this.records = new Records(id, (event) => {
      // Which requests are open is known from the records alone.
      if (event.type === "session:variables") askedFor(event);
    });
    /** As the list knows it: null until that has heard of it. */
    this.run = computed(() => { forestVersion.value; return runOf(id) || null; });
    this.report = signal(null);
    this.problem = signal(null);
    this.#cost = 0;
  }

  #cost;
  #timer = 0;

  feed(event) {
    this.records.feed(event);
    if (TELLING.has(event.type)) this.refresh();
  }

  /** Ask for the report, soon; the dearer it is, the more rarely. */
  refresh() {
    if (this.#timer) return;
    this.#timer = setTimeout(() => { this.#timer = 0; this.read(); }, 300 + 10 * this.#cost);
  }

  async read() {
    const since = performance.now();
    try {
      this.report.value = await get(`api/runs/${part(this.id)}`);
      this.problem.value = null;
    } catch (error) {
      this.problem.value = error;
    }
    this.#cost = performance.now() - since;
  }

  close() {
    clearTimeout(this.#timer);
    this.records.close();
  }
}

/** Make a run the one that is shown. */
export function show(id, again = false) {
  const before = shown.peek();
  if (before?.id === id && !again) return;
  before?.close();
  showDraftsOf(id);
  if (!id) {
    shown.value = null;
    return;
  }
  const view = new ShownRun(id);
  shown.value = view;
  view.read().then(() => {
    const report = view.report.peek();
    if (report && !runOf(id)) listed([report.run]);
  });
  view.records.load();
}

export const refreshShown = oncePerFrame(() => shown.peek()?.read());
