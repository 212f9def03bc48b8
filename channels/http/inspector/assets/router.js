// The place in the page's address: #/, #/asked, #/letters, #/workers, #/runs/ID, #/runs/ID/RECORD.
import { computed, signal } from "./lib.js";

function parse(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map((each) => {
    try { return decodeURIComponent(each); } catch { return each; }
  });
  if (parts[0] === "runs" && parts[1]) {
    const record = /^\d+$/.test(parts[2] || "") ? Number(parts[2]) : null;
    return { page: "run", runId: parts[1], record };
  }
  const page = ["asked", "letters", "runs", "workers"].includes(parts[0]) ? parts[0] : "home";
  return { page, runId: "", record: null };
}

export const place = signal(parse(location.hash));
/** Its parts, each of which changes for itself. */
export const pageHere = computed(() => place.value.page);
export const runHere = computed(() => place.value.runId);
export const recordHere = computed(() => place.value.record);
addEventListener("hashchange", () => { place.value = parse(location.hash); });

export function runLink(runId, record = null) {
  return `#/runs/${encodeURIComponent(runId)}${record === null ? "" : `/${record}`}`;
}

/** Go there; with `quietly` the way back leads past where one was. */
export function go(hash, quietly = false) {
  if (hash === location.hash) return;
  if (quietly) history.replaceState(null, "", hash);
  else location.hash = hash;
  place.value = parse(hash); // The browser tells of it later, when more keys may have come.
}
