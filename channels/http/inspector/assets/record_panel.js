// One record, and the state of its run right after it.
import { html, signal, useEffect } from "./lib.js";
import { get, part } from "./api.js";
import { runLink } from "./router.js";
import { Curl, Empty, Fault, Json, Prose } from "./controls.js";
import { cursorAt, toRecord } from "./timeline.js";
import {
  agentName, count, fraction, kindOf, moment, ownFields, partWords, size, tail,
} from "./words.js";

const state = signal({ of: "", value: null, problem: null });

const statePath = (runId, seq) => `api/runs/${part(runId)}/state?record=${seq}`;

/** Ask for the state at a record, once the cursor has come to rest. */
function useStateAt(runId, seq) {
  const key = `${runId}/${seq}`;
  useEffect(() => {
    if (!seq) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const value = await get(statePath(runId, seq), { signal: abort.signal });
        state.value = { of: key, value, problem: null };
      } catch (problem) {
        if (!abort.signal.aborted) state.value = { of: key, value: null, problem };
      }
    }, 120);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [key]);
  return state.value.of === key ? state.value : { ...state.value, isOld: true };
}

export function RecordPanel({ view }) {
  const event = view.records.list[cursorAt.value];
  const seq = event?.lane === "own" ? event.seq : 0;
  const found = useStateAt(view.id, seq);
  if (!event) return html`<${Empty}>Pick a record to see it, and the run as it was then.<//>`;
  return html`<div class="record" id="record" tabindex="-1" aria-label="Record">
    <header class="record-head">
      <span class=${`dot is-${kindOf(event)}`} aria-hidden="true"></span>
      <h3>${event.type}</h3>
      <span class="muted">${event.lane === "in" ? `inbox ${event.seq}` : `record ${event.seq}`}</span>
      <button type="button" class="quiet" aria-label="Close" onClick=${() => toRecord(view, -1)}>×</button>
    </header>
    <dl class="facts">
      <dt>At</dt><dd>${moment(event.at)}${fraction(event.at)}</dd>
      ${event.agent && html`<dt>Agent</dt><dd>${agentName(event.agent)}</dd>`}
      ${event.side && html`<dt>Side</dt><dd>${event.label || event.side}, turn ${event.turn || 0}</dd>`}
      ${event.call_id && html`<dt>Call</dt><dd class="mono">${event.call_id}</dd>`}
      ${event.child_run_id && html`<dt>Child</dt>
        <dd><a class="mono" href=${runLink(event.child_run_id)}>${tail(event.child_run_id)}</a></dd>`}
    </dl>
    <${Fields} event=${event} />
    ${seq > 0 && html`<${StateThen} runId=${view.id} seq=${seq} found=${found} />`}
  </div>`;
}

function Fields({ event }) {
  const fields = ownFields(event);
  if (Object.keys(fields).length === 0) return null;
  const { text, ...others } = fields;
  if (others.arguments) others.arguments = unpacked(others.arguments);
  if (others.calls) {
    others.calls = others.calls.map((call) => ({ ...call, arguments: unpacked(call.arguments) }));
  }
  const output = typeof text === "string" ? text : null;
  return html`${output !== null && html`<${Prose} text=${output} />`}
    ${Object.keys(others).length > 0 && html`<${Json} value=${others} />`}`;
}

/** The arguments of a call, which a model writes as JSON in a text, or what should be that. */
function unpacked(text) {
  try { return JSON.parse(text); } catch { return text; }
}

function StateThen({ runId, seq, found }) {
  const { value, problem, isOld } = found;
  return html`<section class=${`then ${isOld ? "is-old" : ""}`} aria-label="State then">
    <header class="section-head"><h3>The run after record ${count(seq)}</h3>
      <${Curl} call=${{ method: "GET", path: statePath(runId, seq) }} what="state at this record" />
    </header>
    ${problem && html`<${Fault} error=${problem} />`}
    ${value && html`
      <dl class="facts">
        <dt>Phase</dt><dd>${value.phase}${value.parked ? ", parked" : ""}${
          value.closing ? ", closing" : ""}</dd>
        <dt>Session</dt><dd>${value.session}${value.in_session ? "" : ", over"}</dd>
        <dt>Step</dt><dd>${value.step}${value.attempt > 1 ? `, attempt ${value.attempt}` : ""}</dd>
        <dt>Tokens</dt><dd><${Tokens} usage=${value.usage} /></dd>
        ${value.restarts > 0 && html`<dt>Restarts</dt><dd>${value.restarts}</dd>`}
        ${value.status && html`<dt>Status</dt><dd>${value.status}</dd>`}
      </dl>
      <${Calls} calls=${value.calls || []} />
      <${Transcript} title="What the model sees" messages=${value.conversation || []} />
      <${Transcript} title="What side B sees" messages=${value.conversation_b || []} />
      <${Files} files=${value.files || []} />
      ${Object.keys(value.keys || {}).length > 0 && html`<h4>Keys</h4><${Json} value=${value.keys} />`}`}
  </section>`;
}

export function Tokens({ usage = {} }) {
  const cached = (usage.cache_read_tokens || 0) + (usage.cache_write_tokens || 0);
  return html`${count(usage.input_tokens)} in · ${count(usage.output_tokens)} out${
    cached ? ` · ${count(cached)} cached` : ""}`;
}

function Calls({ calls }) {
  if (calls.length === 0) return null;
  return html`<h4>Calls of this step</h4>
    <ul class="plain">${calls.map((call, index) => html`<li key=${index}>
      <details><summary><span class="mono">${call.name}</span>
        <span class="muted"> ${call.status || "todo"}</span></summary>
        <${Json} value=${call} /></details></li>`)}</ul>`;
}

const SHOWN = 60;

function Transcript({ title, messages }) {
  if (messages.length === 0) return null;
  const last = messages.slice(-SHOWN);
  return html`<h4>${title}</h4>
    ${messages.length > SHOWN && html`<p class="muted">${messages.length - SHOWN} earlier.</p>`}
    <ol class="transcript">${last.map((message, index) => html`<li key=${index}>
      <b>${message.role || message.type}</b><${Prose} limit=${400}
        text=${messageText(message)} /></li>`)}</ol>`;
}

function messageText(message) {
  const said = message.type === "assistant" ? message.text : message.content;
  const calls = (message.calls || []).map((call) =>
    [`→ ${call.name}(${call.arguments})\n${call.is_error ? "✕" : "←"} ${call.output || ""}`,
      ...(call.parts || []).map(partWords)].join("\n"));
  return [said, ...(message.parts || []).map(partWords), ...(message.notes || []), ...calls].filter(Boolean).join("\n");
}

function Files({ files }) {
  if (files.length === 0) return null;
  return html`<h4>Files</h4><ul class="plain">${files.map((file) => html`<li key=${file.path}
    class="row"><span class="mono">${file.path}</span><span class="muted">${size(file.size)}</span></li>`)}
  </ul>`;
}

