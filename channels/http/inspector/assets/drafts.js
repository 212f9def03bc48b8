// The text that models are writing: of every run, so that a run that is opened in the middle of
// an answer shows all of it.
import { oncePerFrame, signal } from "./lib.js";

/** By run: what it is writing, as key → {kind, attempt, text, length}. */
const drafts = new Map();
let shownRun = "";
/** Of the run that is shown. */
export const shownDrafts = signal([]);
const changed = oncePerFrame(() => {
  shownDrafts.value = [...(drafts.get(shownRun)?.values() || [])].map((each) => ({ ...each }));
});

export function showDraftsOf(runId) {
  shownRun = runId;
  changed();
}

/** What comes next is told from its beginning. */
export function forgetDrafts() {
  drafts.clear();
  changed();
}

const DELTAS = { "agent:text:delta": "text", "agent:thinking:delta": "thinking" };
const ENDS = new Set([
  "agent:step", "agent:restore", "agent:retry", "agent:interrupted", "agent:complete",
  "session:end",
]);

export function applyToDrafts(event) {
  const kind = DELTAS[event.type];
  if (kind) write(kind, event);
  else if (event.lane === "own" && drafts.has(event.run_id)) settle(event);
  else return;
  if (event.run_id === shownRun) changed();
}

const keyOf = (kind, event) => `${kind}/${event.step || 0}/${event.block || 0}`;

function write(kind, event) {
  let ofRun = drafts.get(event.run_id);
  if (!ofRun) drafts.set(event.run_id, ofRun = new Map());
  const key = keyOf(kind, event);
  const attempt = event.attempt || 1;
  const offset = event.offset || 0; // In code points, not in halves of pairs.
  const text = event.text || "";
  let draft = ofRun.get(key);
  if (!draft || draft.attempt !== attempt || offset === 0) {
    draft = { kind, attempt, text: "", length: 0 };
    ofRun.set(key, draft);
  }
  if (offset > draft.length) draft.text += " … ";
  draft.text = offset >= draft.length ? draft.text + text
    : [...draft.text].slice(0, offset).join("") + text;
  draft.length = offset + [...text].length;
}

/** What is on record is a draft no more. */
function settle(event) {
  const ofRun = drafts.get(event.run_id);
  if (event.type === "agent:text") ofRun.delete(keyOf("text", event));
  else if (event.type === "agent:thinking") ofRun.delete(keyOf("thinking", event));
  else if (ENDS.has(event.type)) ofRun.clear();
  if (ofRun.size === 0) drafts.delete(event.run_id);
}
