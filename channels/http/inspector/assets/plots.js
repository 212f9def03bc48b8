// Plots of a run: tokens of each model call, and how long calls of models and tools took.
import { html, useEffect, useRef } from "./lib.js";
import { Empty } from "./controls.js";
import { callKey, count, short, time } from "./words.js";

const MAX_POINTS = 2_000;

/** What the records say, as columns for plots. */
export function measure(list) {
  const steps = [];
  const tools = [];
  const begun = new Map();
  let before = 0; // When the last record came that was no piece of an answer.
  for (const event of list) {
    if (event.lane !== "own") continue;
    if (event.type === "agent:step") {
      const usage = event.usage || {};
      steps.push({
        at: event.at, took: before ? event.at - before : 0, input: usage.input_tokens || 0,
        output: usage.output_tokens || 0, cached: usage.cache_read_tokens || 0,
      });
    } else if (event.type === "agent:tool:start") {
      begun.set(callKey(event), event.at);
    } else if (event.type === "agent:tool:complete") {
      const since = begun.get(callKey(event));
      if (since) tools.push({ at: event.at, took: event.at - since });
    }
    if (event.type !== "agent:text" && event.type !== "agent:thinking") before = event.at;
  }
  return { steps: steps.slice(-MAX_POINTS), tools: tools.slice(-MAX_POINTS) };
}

export function Plots({ view }) {
  const version = view.records.version.value;
  const { steps, tools } = measure(view.records.list);
  if (steps.length + tools.length === 0) {
    return html`<${Empty}>No model call and no tool yet: there is nothing to plot.<//>`;
  }
  const numbers = steps.map((_, index) => index + 1);
  const total = (name) => steps.reduce((sum, step) => sum + step[name], 0);
  return html`<div class="plots" data-version=${version >> 6}>
    ${steps.length > 0 && html`<section class="section" aria-label="Tokens">
      <header class="section-head"><h3>Tokens by model call</h3></header>
      <p class="legend"><span class="key is-in"></span>input ${count(total("input"))}
        <span class="key is-out"></span>output ${count(total("output"))}
        <span class="key is-cached"></span>read from cache ${count(total("cached"))}</p>
      <${Plot} kind="bars" label="Tokens by model call" columns=${[numbers,
        steps.map((step) => taken(step) + step.output), steps.map(taken),
        steps.map((step) => step.cached)]} />
    </section>`}
    <section class="section" aria-label="Latency">
      <header class="section-head"><h3>Latency</h3></header>
      <p class="legend"><span class="key is-out"></span>model calls, median ${median(steps)}
        <span class="key is-tool"></span>tools, median ${median(tools)}</p>
      <${Plot} kind="points" label="Latency in seconds" columns=${latencies(steps, tools)} />
    </section>
  </div>`;
}

/** Some providers count what they read from their cache as input, too, and some do not. */
const taken = (step) => (step.cached > step.input ? step.input + step.cached : step.input);

function median(list) {
  if (list.length === 0) return "–";
  const sorted = list.map((each) => each.took).sort((one, other) => one - other);
  return seconds(sorted[sorted.length >> 1] / 1_000_000);
}

const seconds = (value) => (value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(1)} s`);

/** Both kinds over the time of day. */
function latencies(steps, tools) {
  const all = [...steps.map((each) => ({ ...each, column: 1 })),
    ...tools.map((each) => ({ ...each, column: 2 }))].sort((one, other) => one.at - other.at);
  return [
    all.map((each) => each.at / 1_000_000),
    all.map((each) => (each.column === 1 ? each.took / 1_000_000 : null)),
    all.map((each) => (each.column === 2 ? each.took / 1_000_000 : null)),
  ];
}

// ── drawing ──────────────────────────────────────────────────────────────────────────────────

let library = null;
/** uPlot comes with the first plot, not with the page. */
function plotLibrary() {
  if (!library) {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL("./vendor/uplot.css", import.meta.url).href;
    document.head.append(sheet);
    library = import("./vendor/uplot.js").then((module) => module.default);
  }
  return library;
}

function Plot({ kind, columns, label }) {
  const box = useRef(null);
  const plot = useRef(null);
  const drawn = useRef("");
  useEffect(() => {
    let isGone = false;
    plotLibrary().then((UPlot) => {
      const element = box.current;
      if (isGone || !element) return;
      plot.current = new UPlot(optionsOf(UPlot, kind, element), columns, element);
      drawn.current = `${columns[0].length}`;
    });
    const redo = () => {
      const element = box.current;
      if (!plot.current || !element) return;
      const { data } = plot.current;
      plot.current.destroy();
      plotLibrary().then((UPlot) => {
        plot.current = new UPlot(optionsOf(UPlot, kind, element), data, element);
      });
    };
    const watch = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (plot.current && width) plot.current.setSize({ width, height: 180 });
    });
    watch.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redo);
    return () => {
      isGone = true;
      watch.disconnect();
      scheme.removeEventListener("change", redo);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [kind]);
  useEffect(() => {
    const stamp = `${columns[0].length}`;
    if (plot.current && drawn.current !== stamp) {
      drawn.current = stamp;
      plot.current.setData(columns);
    }
  });
  return html`<div class="plot" ref=${box} role="img" aria-label=${label}></div>`;
}

function optionsOf(UPlot, kind, element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--muted"), font: `11px ${style.fontFamily}`, size: kind === "bars" ? 44 : 52,
    grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, gap: 6,
  };
  const common = {
    width: element.clientWidth || 400, height: 180, legend: { show: false },
    cursor: { drag: { x: true, y: false }, points: { size: 6 } }, padding: [8, 8, 0, 0],
  };
  if (kind === "bars") {
    const paths = UPlot.paths.bars({ size: [0.72, 36], radius: 0.12 });
    const bar = (name) => ({ paths, fill: colour(name), stroke: colour(name), width: 0, points: { show: false } });
    return {
      ...common, scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] },
        y: { range: (_, __, high) => [0, Math.max(1, high * 1.08)] } },
      axes: [{ ...axis, size: 26, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { ...axis, values: (_, all) => all.map(short) }],
      series: [{}, bar("--plot-out"), bar("--plot-in"), bar("--plot-cached")],
    };
  }
  const dots = (name) => ({
    stroke: colour(name), width: 0, paths: () => null,
    points: { show: true, size: 6, fill: colour(name), stroke: colour(name) },
  });
  return {
    ...common, scales: { x: { time: true }, y: { range: (_, __, high) => [0, Math.max(0.01, high * 1.1)] } },
    axes: [
      { ...axis, size: 26, space: 80, grid: { show: false },
        values: (_, all) => all.map((value) => time(value * 1_000_000)) },
      { ...axis, values: (_, all) => all.map(seconds) },
    ],
    series: [{}, dots("--plot-out"), dots("--plot-tool")],
  };
}
