// The pane to talk to a run while it works; what was sent shows how far it has come.
import { html, useRef, useSignal } from "./lib.js";
import { Curl } from "./controls.js";
import { runLink } from "./router.js";
import { messagePath, sendMessage, sent } from "./sent.js";
import { agentName, cut } from "./words.js";

const WORDS = {
  sending: "sending", accepted: "accepted", duplicate: "duplicate", rejected: "rejected",
  taken: "taken",
};

export function Composer({ run, runId }) {
  const text = useSignal("");
  const area = useRef(null);
  const isOver = run?.status.value === "ended";
  const submit = (event) => {
    event?.preventDefault();
    const content = text.value.trim();
    if (!content) return;
    sendMessage(runId, content);
    text.value = "";
    area.current.focus();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  if (isOver) {
    return html`<div class="composer is-over"><${Receipts} runId=${runId} />
      <p class="muted">This run has ended: it takes no more messages.</p></div>`;
  }
  return html`<form class="composer" onSubmit=${submit} aria-label="Talk to this run">
    <${Receipts} runId=${runId} />
    <div class="composer-row">
      <textarea id="message" ref=${area} rows="1" value=${text} onKeyDown=${onKeyDown}
        onInput=${(event) => { text.value = event.target.value; }} aria-label="Message"
        placeholder=${`Message ${agentName(run?.agent.value)}`}></textarea>
      <${Curl} what="send this message" call=${() => ({
        method: "POST", path: messagePath(runId), body: { content: text.value.trim() || "Hello" },
      })} />
      <button type="submit" class="main" disabled=${!text.value.trim()}>Send</button>
    </div>
  </form>`;
}

function Receipts({ runId }) {
  const list = (sent.value.get(runId) || []).slice(-3);
  if (list.length === 0) return null;
  return html`<ol class="receipts" aria-label="Receipts" aria-live="polite">
    ${list.map((each) => html`<li key=${each.key} class=${`receipt is-${each.state}`}>
      <span class="receipt-text">${cut(each.content, 80)}</span>
      <${Way} entry=${each} runId=${runId} />
    </li>`)}
  </ol>`;
}

function Way({ entry, runId }) {
  const { state, record, detail } = entry;
  if (state === "taken") {
    return html`<span class="way"><i>accepted</i> → <b>taken</b>${" "}
      <a href=${runLink(runId, record)}>record ${record}</a></span>`;
  }
  if (state === "accepted") {
    return html`<span class="way"><b>accepted</b> → <i>waits in its inbox</i></span>`;
  }
  return html`<span class="way"><b>${WORDS[state] || state}</b> ${detail}</span>`;
}
