// Everything about a run beside its records: who holds the conversation, inbox, children, files.
import { html } from "./lib.js";
import { part, pathPart, request, urlOf } from "./api.js";
import { forestVersion, runOf } from "./forest.js";
import { Age, Copyable, Curl, Empty, Fault, Json, Mark, Status, fault, note, statusWord } from "./controls.js";
import { prompts, refreshShown, variableRequests } from "./hub.js";
import { PromptCard, VariablesCard } from "./questions.js";
import { Tokens } from "./record_panel.js";
import { runLink } from "./router.js";
import { agentName, count, cut, moment, size, tail } from "./words.js";

/** `withAsked` is off where the same questions stand beside it. */
export function Details({ view, withAsked = true }) {
  const report = view.report.value;
  if (!report) {
    return view.problem.value ? html`<${Fault} error=${view.problem.value} />`
      : html`<${Empty}>Reading…<//>`;
  }
  return html`<div class="details">
    <${Facts} report=${report} view=${view} />
    <${Stack} report=${report} view=${view} />
    ${withAsked && html`<${AskedHere} view=${view} />`}
    <${Inbox} report=${report} view=${view} />
    <${Children} view=${view} report=${report} />
    <${Files} report=${report} view=${view} />
    <${Keys} report=${report} />
  </div>`;
}

const Section = ({ title, count: number, tools, children }) => html`<section class="section"
    aria-label=${title}>
  <header class="section-head"><h3>${title}${number === undefined ? "" : html` <i>${count(number)}</i>`}
    </h3>${tools}</header>${children}</section>`;

function Facts({ report, view }) {
  const { run } = report;
  const live = view.run.value;
  const word = live ? statusWord(live.status.value, live.outcome.value) : run.status;
  return html`<${Section} title="Run"
      tools=${html`<${Curl} what="show this run" call=${{ method: "GET",
        path: `api/runs/${part(run.run_id)}` }} />`}>
    <dl class="facts">
      <dt>Status</dt><dd><${Status} word=${word} />${report.phase && report.phase !== "live"
        ? html` <span class="muted">${report.phase}</span>` : ""}</dd>
      ${report.failure && html`<dt>Failure</dt><dd class="fault-text">${cut(report.failure, 600)}</dd>`}
      <dt>Id</dt><dd><${Copyable} text=${run.run_id} label="the run's id" /></dd>
      ${run.session_key && html`<dt>Session key</dt><dd><${Copyable} text=${run.session_key}
        label="the session key" /></dd>`}
      <dt>Kind</dt><dd>${report.kind || "not known yet"}</dd>
      <dt>Started</dt><dd>${moment(run.created_at)}</dd>
      <dt>Session</dt><dd>${report.session}, step ${report.step}</dd>
      <dt>Tokens</dt><dd><${Tokens} usage=${report.usage} /></dd>
      ${report.tree && report.tree.model_calls > 0 && html`<dt>With all below</dt><dd>${
        count(report.tree.model_calls)} model calls · <${Tokens} usage=${report.tree} />${
        report.tree.cost === null ? "" : ` · cost ${report.tree.cost.toPrecision(4)}`}</dd>`}
      ${report.ancestors.length > 0 && html`<dt>Below</dt><dd>${report.ancestors.map((id, index) =>
        html`${index ? " › " : ""}<a key=${id} href=${runLink(id)}>${
          agentName(runOf(id)?.agent.value) || tail(id)}</a>`)}</dd>`}
    </dl><//>`;
}

/** Through whom the conversation is held: the main agent first, whoever holds it last. */
function Stack({ report, view }) {
  if (report.stack.length < 2) return null;
  forestVersion.value;
  const holder = report.stack.length - 1;
  const frames = framesOf(view.id, report.stack.length);
  return html`<${Section} title="Takeover stack" count=${report.stack.length}>
    <ol class="stack">${report.stack.map((name, index) => html`<li key=${index}
      class=${index === holder ? "is-holder" : ""}>
      ${frames[index] ? html`<a href=${runLink(frames[index])}>${agentName(name)}</a>`
        : agentName(name)}
      ${index === holder && html`<span class="muted">holds the conversation</span>`}</li>`)}</ol><//>`;
}

/** The runs of the frames: each is the youngest live child of the one below it. */
function framesOf(rootId, depth) {
  const found = [rootId];
  for (let run = runOf(rootId); run && found.length < depth;) {
    run = run.children.filter((child) => child.status.peek() !== "ended").at(-1);
    if (run) found.push(run.id);
  }
  return found;
}

function AskedHere({ view }) {
  const open = [...prompts.value.values()]
    .filter((each) => each.run_id === view.id || each.root_run_id === view.id);
  const wanted = [...variableRequests.value.values()].filter((each) => each.run_id === view.id);
  if (open.length + wanted.length === 0) return null;
  return html`<${Section} title="Asked" count=${open.length + wanted.length}>
    <div class="cards">${open.map((each) => html`<${PromptCard} key=${each.prompt_id} prompt=${each}
      isLinked=${each.run_id !== view.id} />`)}
    ${wanted.map((each) => html`<${VariablesCard} key=${each.request_id} event=${each}
      isLinked=${false} />`)}</div><//>`;
}

function Inbox({ report, view }) {
  const run = view.run.value;
  const depth = run ? run.waiting.value : report.waiting.length;
  const isOpen = run ? run.inbox.value : report.run.inbox;
  return html`<${Section} title="Inbox" count=${depth}
      tools=${html`<span class="muted">${isOpen}</span>`}>
    ${depth > 0 && html`<ul class="plain">${report.waiting.map((item) => html`<li key=${item.seq}
      class="row"><span class="mono">${item.type.replace("session:", "")}</span>
      <span class="grow">${cut(item.text, 120)}</span><${Age} at=${item.at} /></li>`)}</ul>`}<//>`;
}

function Children({ view, report }) {
  forestVersion.value;
  const live = view.run.value?.children;
  const children = live?.length ? live : [];
  const listed = children.length ? children.map((run) => run.id)
    : report.children.map((each) => each.run_id);
  if (listed.length === 0) return null;
  const rows = new Map(report.children.map((each) => [each.run_id, each]));
  return html`<${Section} title="Children" count=${listed.length}>
    <ul class="plain">${listed.slice(-200).map((id) => html`<${Child} key=${id} id=${id}
      row=${rows.get(id)} />`)}</ul><//>`;
}

function Child({ id, row }) {
  const run = runOf(id);
  const word = run ? statusWord(run.status.value, run.outcome.value)
    : statusWord(row.status, row.outcome);
  return html`<li class="row"><${Mark} word=${word} />
    <a class="grow" href=${runLink(id)}>${agentName(run ? run.agent.value : row.agent)}
      <span class="muted"> ${run ? run.name.value : row.name}</span></a>
    <span class="muted">${word}</span></li>`;
}

// ── files ────────────────────────────────────────────────────────────────────────────────────

const filePath = (runId, path) => `api/runs/${part(runId)}/files/${pathPart(path)}`;

function Files({ report, view }) {
  const upload = async (event) => {
    const input = event.target;
    for (const file of input.files) {
      try {
        await request("PUT", filePath(view.id, file.name), { body: file, raw: true,
          headers: { "content-type": "application/octet-stream" } });
        note(`${file.name} is in the run's files.`);
      } catch (problem) {
        fault(problem);
      }
    }
    input.value = "";
    refreshShown();
  };
  const isOver = view.run.value?.status.value === "ended";
  const tools = isOver ? null : html`<label class="quiet upload">Add file
    <input type="file" multiple onChange=${upload} /></label>
    <${Curl} what="add a file" call=${{ method: "PUT", path: filePath(view.id, "notes.txt"),
      file: "notes.txt" }} />`;
  return html`<${Section} title="Files" count=${report.files.length} tools=${tools}>
    ${report.files.length > 0 && html`<ul class="plain">${report.files.map((file) => html`
      <li key=${file.path} class="row"><a class="mono grow" download
        href=${urlOf(filePath(view.id, file.path))}>${file.path}</a>
      <span class="muted">${size(file.size)}</span>
      <${Curl} what=${`get ${file.path}`} call=${{ method: "GET",
        path: filePath(view.id, file.path), output: file.path.split("/").at(-1) }} /></li>`)}</ul>`}
  <//>`;
}

function Keys({ report }) {
  const names = Object.keys(report.keys);
  if (names.length === 0) return null;
  return html`<${Section} title="Keys" count=${names.length}><${Json} value=${report.keys} /><//>`;
}
