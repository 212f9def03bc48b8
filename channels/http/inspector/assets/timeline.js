// A run's records, line by line, with the scrubber that moves through them.
import { Slice, computed, html, oncePerFrame, signal, useEffect, useMemo, useRef } from "./lib.js";
import { go, recordHere, runLink } from "./router.js";
import { KIND_NAMES, callKey, count, fraction, headline, kindOf, span, time } from "./words.js";
import { VirtualList } from "./virtual_list.js";

const LINE = 28;
const MAX_MADE = 1_000;

/** The place in the list of records, by run; -1 is behind the last one. */
export const cursorAt = signal(-1);
export const hasCursor = computed(() => cursorAt.value >= 0);
const hidden = signal(new Set());
const sought = signal("");

/** Which records are shown: indexes into the list, kept up while it grows. */
class Sieve {
  constructor(records, kinds, words) {
    this.records = records;
    this.kinds = kinds;
    this.words = words;
    this.indexes = [];
    this.version = signal(0);
    this.#changed = oncePerFrame(() => { this.version.value += 1; });
  }

  #changed;
  #upTo = 0;
  #busy = false;

  get isOpen() { return !this.words && this.kinds.size === 0; }

  async sift() {
    if (this.#busy || this.isOpen) return;
    this.#busy = true;
    const slice = new Slice();
    const list = this.records.list;
    for (; this.#upTo < list.length; this.#upTo += 1) {
      const event = list[this.#upTo];
      if (this.#lets(event)) this.indexes.push(this.#upTo);
      if (slice.isSpent) {
        this.#changed();
        await slice.next();
      }
    }
    this.#busy = false;
    this.#changed();
  }

  #lets(event) {
    if (this.kinds.has(kindOf(event))) return false;
    return !this.words || `${event.type} ${headline(event)}`.toLowerCase().includes(this.words);
  }
}

// ── one line ─────────────────────────────────────────────────────────────────────────────────

function took(records, index) {
  const event = records.list[index];
  if (event.type === "agent:tool:complete") {
    for (let each = index - 1; each >= Math.max(0, index - 200); each -= 1) {
      const start = records.list[each];
      if (start.type === "agent:tool:start" && callKey(start) === callKey(event)) {
        return event.at - start.at;
      }
    }
  }
  if (event.type === "agent:step") {
    for (let each = index - 1; each >= Math.max(0, index - 50); each -= 1) {
      const before = records.list[each];
      if (before.lane === "own" && before.type !== "agent:text" && before.type !== "agent:thinking") {
        return event.at - before.at;
      }
    }
  }
  return 0;
}

function Record({ records, index }) {
  const event = records.list[index];
  const kind = kindOf(event);
  const [group, ...rest] = event.type.split(":");
  const us = took(records, index);
  return html`
    <span class="rec-seq">${event.lane === "in" ? "in" : event.seq}</span>
    <span class="rec-time">${time(event.at)}<i>${fraction(event.at)}</i></span>
    <span class=${`dot is-${kind}`} aria-hidden="true"></span>
    <span class="rec-type"><i>${group}:</i>${rest.join(":")}</span>
    <span class="rec-text">${headline(event)}</span>
    <span class="rec-took">${us > 0 ? span(us) : ""}</span>`;
}

// ── the list ─────────────────────────────────────────────────────────────────────────────────

export function Timeline({ view }) {
  const { records } = view;
  const version = records.version.value;
  const kinds = hidden.value;
  const words = sought.value.trim().toLowerCase();
  const sieve = useMemo(() => new Sieve(records, kinds, words), [records, kinds, words]);
  useEffect(() => { sieve.sift(); }, [sieve, version]);
  sieve.version.value;
  const indexOf = (line) => (sieve.isOpen ? line : sieve.indexes[line]);
  const total = sieve.isOpen ? records.list.length : sieve.indexes.length;

  // A link to a record puts the cursor there, as soon as it has been read.
  const wanted = recordHere.value;
  const wantedAt = wanted === null ? -1 : records.ownIndex[wanted] ?? -1;
  useEffect(() => { cursorAt.value = wantedAt; }, [wanted, wantedAt, records]);

  const at = cursorAt.value;
  const cursor = at < 0 ? -1 : sieve.isOpen ? at : firstAtLeast(sieve.indexes, at);
  const pick = (line) => toRecord(view, indexOf(line));
  // A record never changes: what was made for it is made once.
  const made = useMemo(() => new Map(), [records]);
  const content = (index) => {
    if (made.size > MAX_MADE) made.clear();
    if (!made.has(index)) made.set(index, html`<${Record} records=${records} index=${index} />`);
    return made.get(index);
  };
  const line = (number) => {
    const index = indexOf(number);
    const event = records.list[index];
    return {
      key: `${event.lane}-${event.seq}`,
      attrs: { role: "option", "data-lane": event.lane, "data-kind": kindOf(event) },
      content: content(index),
    };
  };
  return html`<section class="timeline" aria-label="Timeline">
    <${Sifter} />
    <${VirtualList} name="records" class="records" label="Records" count=${total} height=${LINE}
      line=${line} cursor=${cursor} follow=${at < 0} onPick=${pick} onMove=${pick}
      onOpen=${() => document.getElementById("record")?.focus()} />
    <${Scrubber} view=${view} />
  </section>`;
}

function firstAtLeast(indexes, at) {
  let low = 0;
  let high = indexes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (indexes[middle] < at) low = middle + 1; else high = middle;
  }
  return low < indexes.length && indexes[low] === at ? low : -1;
}

/** Put the cursor on a record; -1 is the end, where new ones appear. */
export function toRecord(view, index) {
  cursorAt.value = index;
  const event = view.records.list[index];
  if (!event) go(runLink(view.id), true);
  else if (event.lane === "own") go(runLink(view.id, event.seq), true);
}

function Sifter() {
  const flip = (kind) => {
    const set = new Set(hidden.peek());
    if (!set.delete(kind)) set.add(kind);
    hidden.value = set;
  };
  return html`<div class="sifter" role="group" aria-label="What is shown">
    <input type="search" id="seek" placeholder="Find in records" aria-label="Find in records"
      value=${sought} onInput=${(event) => { sought.value = event.target.value; }} />
    ${Object.entries(KIND_NAMES).map(([kind, name]) => html`<button type="button" key=${kind}
      class="chip" aria-pressed=${String(!hidden.value.has(kind))} onClick=${() => flip(kind)}>
      <span class=${`dot is-${kind}`} aria-hidden="true"></span>${name}</button>`)}
  </div>`;
}

// ── the scrubber ─────────────────────────────────────────────────────────────────────────────

function Scrubber({ view }) {
  const { records } = view;
  records.version.value;
  const last = records.lastOwn;
  const event = records.list[cursorAt.value];
  const at = event?.lane === "own" ? event.seq : last;
  const isLive = cursorAt.value < 0;
  const to = (seq) => {
    const index = records.ownIndex[Math.max(1, Math.min(last, seq))];
    if (index !== undefined) toRecord(view, index);
  };
  return html`<div class="scrubber">
    <button type="button" class="quiet" onClick=${() => to(at - 1)} aria-label="Record before"
      disabled=${at <= 1}>‹</button>
    <div class="scrub-track">
      <${Strip} records=${records} />
      <input type="range" min="1" max=${Math.max(1, last)} value=${at} aria-label="Record"
        aria-valuetext=${`Record ${at} of ${last}`}
        onInput=${(event_) => to(Number(event_.target.value))} />
    </div>
    <button type="button" class="quiet" onClick=${() => to(at + 1)} aria-label="Record after"
      disabled=${isLive || at >= last}>›</button>
    <span class="scrub-at">${count(at)}<i> / ${count(last)}</i></span>
    <button type="button" class="chip" aria-pressed=${String(isLive)}
      onClick=${() => toRecord(view, -1)}>Now</button>
  </div>`;
}

const COLOURED = ["say", "tool", "ask", "kin", "fault"];

/** The whole run in one strip: what kind of record lies where. */
function Strip({ records }) {
  const canvas = useRef(null);
  const drawn = useRef({ count: -1, width: 0 });
  const version = records.version.value;
  useEffect(() => {
    const draw = () => {
      const element = canvas.current;
      const width = element?.clientWidth || 0;
      const state = drawn.current;
      if (!width || (state.count === records.list.length && state.width === width)) return;
      drawn.current = { count: records.list.length, width };
      paint(element, records.list);
    };
    // Ten thousand records are gone through each time: not with every one that comes.
    const timer = setTimeout(draw, drawn.current.count < 0 ? 50 : 400);
    return () => clearTimeout(timer);
  }, [records, records.list.length < 200 ? version : version >> 4]);
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const again = () => paint(canvas.current, records.list);
    scheme.addEventListener("change", again);
    return () => scheme.removeEventListener("change", again);
  }, [records]);
  return html`<canvas ref=${canvas} class="strip" aria-hidden="true"></canvas>`;
}

function paint(element, list) {
  const ratio = devicePixelRatio || 1;
  const width = element.clientWidth;
  const height = element.clientHeight;
  element.width = width * ratio;
  element.height = height * ratio;
  const context = element.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(element);
  const colours = Object.fromEntries(
    COLOURED.map((kind) => [kind, style.getPropertyValue(`--${kind}`)]),
  );
  const columns = Math.min(list.length, Math.floor(width / 2));
  if (!columns) return;
  const step = width / columns;
  for (let column = 0; column < columns; column += 1) {
    const from = Math.floor((column * list.length) / columns);
    const to = Math.max(from + 1, Math.floor(((column + 1) * list.length) / columns));
    // The rarest kind in a column is the one to see.
    let rank = -1;
    for (let index = from; index < to; index += 1) {
      rank = Math.max(rank, COLOURED.indexOf(kindOf(list[index])));
    }
    context.fillStyle = rank < 0 ? style.getPropertyValue("--line") : colours[COLOURED[rank]];
    const tall = rank < 0 ? height * 0.35 : height * 0.8;
    context.fillRect(column * step, (height - tall) / 2, Math.max(1, step - 1), tall);
  }
}
