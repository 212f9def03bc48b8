// The records of the run that is shown, in the order of the store.
import { Slice, oncePerFrame, signal } from "./lib.js";
import { get, part } from "./api.js";

const PAGE = 500;

export class Records {
  /** `onRecord` is told of each record, once, in order. */
  constructor(runId, onRecord) {
    this.runId = runId;
    this.#onRecord = onRecord;
    this.list = [];
    /** Index in the list by number in the run's own lane. */
    this.ownIndex = [];
    this.version = signal(0);
    this.isLoading = signal(true);
    this.problem = signal(null);
    this.#lastSeq = { own: 0, in: 0 };
    this.#changed = oncePerFrame(() => { this.version.value += 1; });
  }

  #lastSeq;
  #onRecord;
  #changed;
  #early = [];
  #abort = new AbortController();

  get lastOwn() { return this.#lastSeq.own; }

  bySeq(seq) { return this.list[this.ownIndex[seq]]; }

  close() { this.#abort.abort(); }

  /** Read all that is kept; what comes meanwhile is put behind it. */
  async load() {
    let after = "start";
    const slice = new Slice();
    try {
      for (;;) {
        const path = `api/runs/${part(this.runId)}/records?limit=${PAGE}&after=${part(after)}`;
        const page = await get(path, { signal: this.#abort.signal });
        for (const event of page.records) {
          this.#append(event);
          if (slice.isSpent) await slice.next();
        }
        this.#changed();
        if (!page.next || page.next === after || page.records.length < PAGE) break;
        after = page.next;
        await slice.next();
      }
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      this.problem.value = error;
    }
    const early = this.#early;
    this.#early = null;
    for (const event of early) this.#append(event);
    this.isLoading.value = false;
    this.#changed();
  }

  /** An event of this run from the stream. */
  feed(event) {
    if (!event.lane) return;
    if (this.#early) this.#early.push(event);
    else if (this.#append(event)) this.#changed();
  }

  #append(event) {
    const lane = event.lane || "own";
    // A record that came by both ways is known by its number.
    if (!(event.seq > (this.#lastSeq[lane] || 0))) return false;
    this.#lastSeq[lane] = event.seq;
    if (lane === "own") this.ownIndex[event.seq] = this.list.length;
    this.list.push(event);
    this.#onRecord(event);
    return true;
  }
}
