// The vendored libraries under the names that this page uses.
import { Fragment, h, render } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import { batch, computed, effect, signal, useComputed, useSignal } from "./vendor/signals.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export {
  Fragment, batch, computed, effect, render, signal, useComputed, useEffect, useLayoutEffect,
  useMemo, useRef, useSignal, useState,
};

/** Let the browser paint and take input before the work goes on. */
export const breathe = () =>
  globalThis.scheduler?.yield ? scheduler.yield() : new Promise((done) => setTimeout(done));

const SLICE = 8; // ms of work before the browser gets its turn.

/** Long work in slices: `if (slice.isSpent) await slice.next();` wherever it can be left. */
export class Slice {
  #since = performance.now();

  get isSpent() { return performance.now() - this.#since > SLICE; }

  async next() {
    await breathe();
    this.#since = performance.now();
  }
}

/** Draws what it holds in a later task, each `Later` in one of its own, so that none is long. */
export function Later({ children }) {
  const [isDue, setIsDue] = useState(false);
  useEffect(() => {
    let isGone = false;
    breathe().then(() => { if (!isGone) setIsDue(true); });
    return () => { isGone = true; };
  }, []);
  return isDue ? children : null;
}

/** A function that calls `work` once in the next frame, however often it is called before. */
export function oncePerFrame(work) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    // A page in the background gets no frames, and still has to know where things stand.
    const run = () => { due = false; work(); };
    if (document.hidden) setTimeout(run, 250);
    else requestAnimationFrame(run);
  };
}
