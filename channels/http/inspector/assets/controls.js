// Small parts that every view uses: marks of status, notes, the curl line of an action, values.
import { html, signal, useEffect, useRef, useState } from "./lib.js";
import { curlLine } from "./api.js";
import { openDialog } from "./keyboard.js";
import { age, asText, cut } from "./words.js";

// ── time that passes ─────────────────────────────────────────────────────────────────────────

/** Now, in ms, every five seconds. */
export const now = signal(Date.now());
setInterval(() => { now.value = Date.now(); }, 5_000);

export const Age = ({ at }) => html`<span class="age">${at ? age(at, now.value) : ""}</span>`;

// ── status ───────────────────────────────────────────────────────────────────────────────────

/** The word that a run's status comes to: its outcome once it has ended. */
export function statusWord(status, outcome) {
  if (status !== "ended") return status;
  return outcome || "ended";
}

const MARKS = {
  active: "●", waiting: "◐", parked: "○", completed: "✓", ended: "✓", failed: "✕", limit: "✕",
  timed_out: "✕", interrupted: "–", terminated: "–",
};

export const Mark = ({ word }) =>
  html`<span class=${`mark is-${word}`} aria-hidden="true">${MARKS[word] || "·"}</span>`;

export const Status = ({ word }) =>
  html`<span class=${`status is-${word}`}><${Mark} word=${word} />${word.replace("_", " ")}</span>`;

// ── notes ────────────────────────────────────────────────────────────────────────────────────

const notes = signal([]);
let noteCount = 0;

/** Say something for a few seconds. */
export function note(text, kind = "info") {
  const id = (noteCount += 1);
  notes.value = [...notes.peek().slice(-3), { id, text, kind }];
  setTimeout(() => { notes.value = notes.peek().filter((each) => each.id !== id); }, 6_000);
}

export const fault = (error) => note(error?.message || String(error), "fault");

export const Notes = () => html`<div class="notes" role="status" aria-live="polite">
  ${notes.value.map((each) => html`<p key=${each.id} class=${`note is-${each.kind}`}>${each.text}</p>`)}
</div>`;

// ── curl ─────────────────────────────────────────────────────────────────────────────────────

/** Copy a text; false where the page may not. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Shows, and copies, the command line that does what `call` describes; a function is asked. */
export function Curl({ call, what }) {
  const open = () => {
    const line = curlLine(typeof call === "function" ? call() : call);
    openDialog({ kind: "curl", line, what });
  };
  return html`<button type="button" class="quiet curl" onClick=${open}
    title="The same on the command line" aria-label=${`curl line: ${what}`}>curl</button>`;
}

/** A text that is copied by a click. */
export function Copyable({ text, shown, label }) {
  const [isCopied, setCopied] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const take = async () => {
    if (!(await copy(text))) return;
    setCopied(true);
    timer.current = setTimeout(() => setCopied(false), 1_500);
  };
  return html`<button type="button" class="copyable" onClick=${take} title=${`Copy ${text}`}
    aria-label=${`Copy ${label || "text"}`}>${shown || text}${isCopied ? " · copied" : ""}</button>`;
}

// ── values ───────────────────────────────────────────────────────────────────────────────────

const MAX_TEXT = 20_000;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** A value as JSON, in colours. */
export function Json({ value }) {
  let text = JSON.stringify(value, null, 2) ?? "";
  text = cut(text, MAX_TEXT);
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(TOKEN)) {
    parts.push(text.slice(from, found.index));
    const kind = found[2] ? "name" : found[1] ? "text" : "value";
    parts.push(html`<span class=${`json-${kind}`}>${found[1] || found[0]}</span>`, found[2] || "");
    from = found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return html`<pre class="json">${parts}</pre>`;
}

/** A long text, folded after some lines. */
export function Prose({ text = "", limit = 1_600 }) {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= limit || isWhole) return html`<div class="prose">${cut(text, 200_000)}</div>`;
  return html`<div class="prose">${text.slice(0, limit)}…
    <button type="button" class="quiet" onClick=${() => setWhole(true)}>Show all</button></div>`;
}

export const Value = ({ value }) =>
  typeof value === "object" && value !== null
    ? html`<${Json} value=${value} />` : html`<${Prose} text=${asText(value)} />`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Fault = ({ error }) => html`<p class="fault-text" role="alert">${error.message}</p>`;
