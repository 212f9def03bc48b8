// What was said from this page, and how far it has come: sent, accepted, taken.
import { signal } from "./lib.js";
import { newKey, part, send } from "./api.js";

const KEPT = 20;

/** Messages sent from here, by run. */
export const sent = signal(new Map());

function change(runId, key, facts) {
  const map = new Map(sent.peek());
  const list = (map.get(runId) || []).map((each) =>
    (each.key === key ? { ...each, ...facts, ...(each.state === "taken" ? { state: "taken" } : {}) }
      : each));
  map.set(runId, list);
  sent.value = map;
}

export const messagePath = (runId) => `api/runs/${part(runId)}/messages`;

export async function sendMessage(runId, content) {
  const key = newKey();
  const entry = { key, content, state: "sending", detail: "", record: 0 };
  const map = new Map(sent.peek());
  map.set(runId, [...(map.get(runId) || []), entry].slice(-KEPT));
  sent.value = map;
  try {
    const receipt = await send("POST", messagePath(runId), { content, key });
    change(runId, key, { state: receipt.status || "accepted" });
  } catch (problem) {
    change(runId, key, { state: "rejected", detail: problem.message });
  }
}

/** A run has taken items out of its inbox; some may be ours. */
export function noteTaken(event) {
  const list = sent.peek().get(event.run_id);
  if (!list) return;
  for (const item of event.items || []) {
    if (item.key && list.some((each) => each.key === item.key)) {
      change(event.run_id, item.key, { state: "taken", record: event.seq });
    }
  }
}
