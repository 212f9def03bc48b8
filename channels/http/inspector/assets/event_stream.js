// The one stream of the page: server-sent events, read by `fetch`.
//
// EventSource hands out only events whose types were named beforehand, and cannot tell a missing
// token from a dead server; types of the user's own would be lost.  What it does besides is done
// here: it goes on after the last position, and tries again until it is closed.
import { Slice, signal } from "./lib.js";
import { Problem, request } from "./api.js";

const SILENCE = 45_000; // Three pings were missed.
const MAX_DELAY = 5_000;

/** What is known of the line: `state` is connecting, live or cut. */
export const line = signal({ state: "connecting", since: Date.now(), reason: "", tries: 0 });

export class EventStream {
  #path;
  #onOpen;
  #onFrame;
  #cursor = "";
  #retry = 1_000;
  #abort = null;
  #wake = null;
  #closed = false;
  #heard = 0;

  /** `onOpen(isFirst)` is awaited before the first frame is handed out. */
  constructor(path, { onOpen, onFrame }) {
    this.#path = path;
    this.#onOpen = onOpen;
    this.#onFrame = onFrame;
  }

  async run() {
    let tries = 0;
    addEventListener("online", () => this.retryNow());
    while (!this.#closed) {
      let reason = "";
      try {
        reason = await this.#connect(() => { tries = 0; });
      } catch (error) {
        reason = this.#words(error);
        if (error instanceof Problem && error.status === 401) await this.#pause(MAX_DELAY * 10);
      }
      tries += 1;
      line.value = { state: "cut", since: Date.now(), reason, tries };
      await this.#pause(Math.min(this.#retry * 1.4 ** (tries - 1), MAX_DELAY));
    }
  }

  retryNow() { this.#wake?.(); }

  /** Begin anew, after nothing: what was kept is out of date. */
  forget() { this.#cursor = ""; }

  #words(error) {
    if (error instanceof Problem) return error.message;
    return "The server cannot be reached.";
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.#wake = () => { clearTimeout(timer); done(); };
    });
  }

  async #connect(opened) {
    this.#abort = new AbortController();
    const watch = setInterval(() => {
      if (performance.now() - this.#heard > SILENCE) this.#abort.abort();
    }, 5_000);
    this.#heard = performance.now();
    try {
      const response = await request("GET", this.#path, {
        headers: this.#cursor ? { "last-event-id": this.#cursor } : {},
        signal: this.#abort.signal,
      });
      const reader = response.body.getReader();
      await this.#onOpen(!this.#cursor);
      opened();
      line.value = { state: "live", since: Date.now(), reason: "", tries: 0 };
      return await this.#read(reader);
    } finally {
      clearInterval(watch);
      this.#abort.abort();
    }
  }

  async #read(reader) {
    const decoder = new TextDecoder();
    let text = "";
    let reason = "The connection was cut.";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return reason;
      this.#heard = performance.now();
      text += decoder.decode(value, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop();
      const slice = new Slice();
      for (const frame of frames) {
        const ending = this.#take(frame);
        if (ending) reason = ending;
        if (slice.isSpent) await slice.next();
      }
    }
  }

  /** One frame; returns why the stream ends, where it says so. */
  #take(frame) {
    let id = "", type = "", data = "";
    for (const text of frame.split("\n")) {
      const colon = text.indexOf(":");
      if (colon <= 0) continue;
      const value = text.slice(colon + (text[colon + 1] === " " ? 2 : 1));
      switch (text.slice(0, colon)) {
        case "id": id = value; break;
        case "event": type = value; break;
        case "data": data += data ? `\n${value}` : value; break;
        case "retry": this.#retry = Number(value) || this.#retry; break;
      }
    }
    if (id) this.#cursor = id;
    if (!data) return "";
    const body = JSON.parse(data);
    if (type === "hubbub:end") return `The server ended the stream: ${body.reason || "no reason"}.`;
    this.#onFrame(type || body.type || "message", body);
    return "";
  }
}
