// What was said in a run, as people read it: from its records, and the text under way.
import { html, useLayoutEffect, useRef, useSignal } from "./lib.js";
import { shownDrafts } from "./drafts.js";
import { prompts, variableRequests } from "./hub.js";
import { PromptCard, VariablesCard } from "./questions.js";
import { Empty, Json, Prose } from "./controls.js";
import { runLink } from "./router.js";
import { agentName, asText, callKey, cut, partWords, span, time } from "./words.js";

const PIECES = 120;

/** The last pieces of a conversation, and whether there are earlier ones. */
function piecesOf(records, most) {
  const found = [];
  const state = { taken: new Set(), calls: new Map() };
  const { list } = records;
  let index = list.length - 1;
  for (; index >= 0 && found.length < most; index -= 1) {
    if (!TOLD.has(list[index].type)) continue;
    for (const piece of pieceOf(list[index], state)) found.push(piece);
  }
  return { pieces: found.reverse(), hasMore: index >= 0 };
}

/** The types of record that add something. */
const TOLD = new Set([
  "session:taken", "session:message", "agent:text", "agent:thinking", "agent:tool:complete",
  "agent:tool:start", "agent:step", "agent:child", "session:push", "session:pop", "agent:handoff",
  "session:prompt", "session:variables", "agent:interrupted", "agent:failed", "agent:retry",
  "session:end", "agent:complete",
]);

/** What one record adds, the last piece first. */
function pieceOf(event, state) {
  const make = (kind, facts) => ({
    kind, seq: event.seq, lane: event.lane, at: event.at, agent: event.agent, event, ...facts,
  });
  switch (event.type) {
    case "session:taken":
      return (event.items || []).map((item) => {
        state.taken.add(item.seq);
        return takenItem(item, make);
      }).filter(Boolean).reverse();
    case "session:message":
      if (event.lane !== "in" || state.taken.has(event.seq)) return [];
      return [make("said", { who: event.source || event.role || "user", text: event.content || "",
        isWaiting: true })];
    case "agent:text": return [make("answer", { text: event.text || "" })];
    case "agent:thinking": return event.text ? [make("thinking", { text: event.text })] : [];
    case "agent:tool:complete": {
      const piece = make("tool", { call: event, start: null });
      state.calls.set(callKey(event), piece);
      return [piece];
    }
    case "agent:tool:start": {
      const piece = state.calls.get(callKey(event));
      if (piece && !piece.start) { piece.start = event; return []; }
      return [make("tool", { call: null, start: event })];
    }
    case "agent:step":
      // A call that was refused never started: what it was asked with is here.
      (event.calls || []).forEach((call, index) => {
        const piece = state.calls.get(`${event.step || 0}/${index}`);
        if (piece && !piece.start && piece.call.name === call.name) piece.args = call.arguments;
      });
      return [];
    case "agent:child":
      return event.takeover && !event.error ? [] : [make("kin", {
        text: event.error ? `could not start ${agentName(event.child_agent)}: ${event.error}`
          : `started ${agentName(event.child_agent)}`, to: event.error ? "" : event.child_run_id })];
    case "session:push":
      return [make("kin", { text: `${agentName(event.frame_agent)} takes the conversation over`,
        to: event.frame_run_id })];
    case "session:pop":
      return [make("kin", { text: `${agentName(event.frame_agent)} gives the conversation back`,
        to: event.frame_run_id })];
    case "agent:handoff": return [make("kin", { text: `goes on as ${agentName(event.to)}`, to: "" })];
    case "session:prompt": return [make("asked", { prompt: event })];
    case "session:variables":
      return event.lane === "own" ? [make("wanted", { request: event })] : [];
    case "session:compaction": return [event.error
      ? make("fault", { text: `older messages were not summarised: ${event.error}` })
      : make("note", { text: `a summary stands for ${event.covers} older messages: ${event.summary}` })];
    case "agent:interrupted": return [make("fault", { text: `interrupted ${event.reason || ""}` })];
    case "agent:failed": return [make("fault", { text: event.error })];
    case "agent:retry": return [make("fault", { text: `${event.error}: tried again` })];
    case "session:end":
      return event.success === false ? [make("fault", {
        text: `the session is over: ${event.reason || event.outcome}` })] : [];
    case "agent:complete": return [make("end", { text: event.outcome || "completed",
      output: event.output })];
    default: return [];
  }
}

function takenItem(item, make) {
  const shown = item.parts || (item.message || {}).parts || [];
  const files = [...(item.files || []).map((file) => file.path), ...shown.map(partWords)];
  switch (item.type) {
    case "session:open": {
      const text = asText(item.input);
      return text ? make("said", { who: "input", text, files, item }) : null;
    }
    case "session:message":
      return make("said", { who: item.source || item.role || "user", text: item.content || "", files,
        item });
    case "session:result":
      return make("said", { who: item.name || agentName(item.child_agent), item, files,
        text: item.content || item.reason || item.outcome || "", to: item.child_run_id });
    case "session:reply":
      return make("said", { who: item.decision || "reply", text: item.content || "", item });
    case "session:compact": return make("note", { text: "older messages are to be summarised" });
    case "session:reset": return make("note", { text: `reset ${item.message || ""}` });
    case "session:close": case "session:terminate": case "session:abort": case "session:cancel":
      return make("note", { text: `${item.type.slice(8)} ${item.reason || ""}` });
    default: return null;
  }
}

// ── pieces ───────────────────────────────────────────────────────────────────────────────────

const When = ({ piece, runId }) => html`<a class="when" title=${`Record ${piece.seq}`}
  href=${piece.lane === "own" ? runLink(runId, piece.seq) : runLink(runId)}>${time(piece.at)}</a>`;

function Piece({ piece, runId }) {
  switch (piece.kind) {
    case "said":
      return html`<div class=${`piece said ${piece.isWaiting ? "is-waiting" : ""}`}>
        <header><b>${piece.who}</b><${When} piece=${piece} runId=${runId} />
          ${piece.isWaiting && html`<span class="badge">in the inbox</span>`}
          ${piece.to && html`<a class="quiet" href=${runLink(piece.to)}>its run</a>`}</header>
        <${Prose} text=${piece.text} />
        ${(piece.files || []).map((path) => html`<span key=${path} class="file mono">${path}</span>`)}
      </div>`;
    case "answer":
      return html`<div class="piece answer"><header><b>${agentName(piece.agent)}</b>
        <${When} piece=${piece} runId=${runId} /></header><${Prose} text=${piece.text} /></div>`;
    case "thinking":
      return html`<details class="piece thinking"><summary>Thinking</summary>
        <${Prose} text=${piece.text} /></details>`;
    case "tool": return html`<${ToolPiece} piece=${piece} />`;
    case "asked": return html`<${AskedPiece} piece=${piece} />`;
    case "wanted": return html`<${WantedPiece} piece=${piece} />`;
    case "kin":
      return html`<p class="piece aside is-kin">${piece.to
        ? html`<a href=${runLink(piece.to)}>${piece.text}</a>` : piece.text}</p>`;
    case "fault": return html`<p class="piece aside is-fault">${piece.text}</p>`;
    case "end":
      return html`<div class="piece end"><p class="aside">The run has ended: ${piece.text}</p>
        ${piece.output !== undefined && piece.output !== null
          && html`<details><summary>Output</summary>${typeof piece.output === "string"
            ? html`<${Prose} text=${piece.output} />` : html`<${Json} value=${piece.output} />`}
          </details>`}</div>`;
    default: return html`<p class="piece aside">${piece.text}</p>`;
  }
}

function ToolPiece({ piece }) {
  const { call, start } = piece;
  const name = (call || start).name;
  const took = call && start ? span(call.at - start.at) : "";
  const args = start?.arguments || piece.args || "";
  const told = call?.is_error ? call.output : args === "{}" ? "" : args;
  return html`<details class=${`piece tool ${call?.is_error ? "is-fault" : ""}`}>
    <summary><span class="mono">${name}</span>
      <span class="tool-args mono">${cut(told || "", 120)}</span>
      <span class="muted">${call ? took : "at work…"}</span></summary>
    ${args && args !== "{}" && html`<${Prose} text=${args} />`}
    ${call && html`<${Prose} text=${call.output || "no output"} />`}
  </details>`;
}

function AskedPiece({ piece }) {
  const open = prompts.value.get(piece.prompt.prompt_id);
  if (open) return html`<${PromptCard} prompt=${open} isLinked=${false} />`;
  const { question, tool } = piece.prompt;
  return html`<p class="piece aside">asked: ${question || tool}</p>`;
}

function WantedPiece({ piece }) {
  const open = variableRequests.value.get(piece.request.request_id);
  if (open) return html`<${VariablesCard} event=${open} isLinked=${false} />`;
  return html`<p class="piece aside">${agentName(piece.request.child_agent)} needed ${
    (piece.request.names || []).join(", ")}</p>`;
}

// ── the pane ─────────────────────────────────────────────────────────────────────────────────

export function Conversation({ view }) {
  const most = useSignal(PIECES);
  const box = useRef(null);
  const atEnd = useRef(true);
  const version = view.records.version.value;
  const drafts = shownDrafts.value;
  const { pieces, hasMore } = piecesOf(view.records, most.value);
  useLayoutEffect(() => {
    if (atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [version, drafts.length && drafts[drafts.length - 1].length, view]);
  const onScroll = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    atEnd.current = scrollTop + clientHeight > scrollHeight - 40;
  };
  const below = [...prompts.value.values()].filter((each) =>
    each.run_id !== view.id && each.root_run_id === view.id);
  return html`<section class="talk" aria-label="Conversation" ref=${box} onScroll=${onScroll}
      tabindex="0">
    <div class="talk-inner">
      ${hasMore && html`<button type="button" class="quiet" onClick=${() => { most.value += PIECES; }}>
        Show earlier</button>`}
      ${pieces.length === 0 && drafts.length === 0 && !view.records.isLoading.value
        && html`<${Empty}>Nothing has been said yet.<//>`}
      ${pieces.map((piece) => html`<${Piece} piece=${piece} runId=${view.id}
        key=${`${piece.lane}-${piece.seq}-${piece.kind}-${piece.item?.seq ?? ""}`} />`)}
      ${below.map((each) => html`<${PromptCard} key=${each.prompt_id} prompt=${each} />`)}
      ${drafts.map((draft) => html`<div key=${draft.kind} class=${
        `piece draft ${draft.kind === "text" ? "answer" : "thinking"}`}>
        <header><b>${draft.kind === "text" ? "writing" : "thinking"}</b></header>
        <div class="prose">${draft.text}<span class="caret" aria-hidden="true"></span></div></div>`)}
    </div>
  </section>`;
}
