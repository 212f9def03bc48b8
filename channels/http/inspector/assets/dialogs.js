// What stands over the page: help, a curl line, a question before something final, a new run.
import { html, useEffect, useRef, useSignal } from "./lib.js";
import { logIn, needsToken, newKey, send } from "./api.js";
import { Curl, copy, fault, note } from "./controls.js";
import { agents, retryNow } from "./hub.js";
import { closeDialog, dialogs } from "./keyboard.js";
import { go, runLink } from "./router.js";
import { agentName } from "./words.js";

const close = closeDialog;

function Frame({ label, children, onClose = close }) {
  const element = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  const onCancel = (event) => { event.preventDefault(); onClose(); };
  const onClick = (event) => { if (event.target === element.current) onClose(); };
  return html`<dialog ref=${element} aria-label=${label} onCancel=${onCancel} onClick=${onClick}>
    <div class="dialog-inner">${children}</div></dialog>`;
}

const KEYS = [
  ["j, k", "next, previous line"], ["Enter", "open the line"], ["← →", "fold, unfold a run"],
  ["/", "filter"], ["Esc", "back to what is live, or to all runs"], ["1 2 3 4", "the tabs of a run"],
  ["m", "write a message"], ["[ ]", "record before, after"], ["i", "interrupt the run"],
  ["n", "start a run"], ["a", "what people are asked"], ["d", "dead letters and gaps"],
  ["w", "workers"], ["h", "overview"], ["?", "this help"],
];

const Help = () => html`<${Frame} label="Keys"><h2>Keys</h2>
  <dl class="keys">${KEYS.map(([key, text]) => html`<div key=${key}><dt>${key.split(/(?:, | )/)
    .map((each) => html`<kbd>${each}</kbd>`)}</dt><dd>${text}</dd></div>`)}</dl>
  <button type="button" onClick=${close}>Close</button><//>`;

function CurlDialog({ line, what }) {
  const isCopied = useSignal(false);
  useEffect(() => { copy(line).then((done) => { isCopied.value = done; }); }, []);
  return html`<${Frame} label="curl line"><h2>On the command line</h2>
    <p class="muted">To ${what}.</p><pre class="line-of-curl" tabindex="0">${line}</pre>
    <div class="dialog-row"><span class="muted grow" role="status">${
      isCopied.value ? "Copied." : ""}</span>
      <button type="button" onClick=${async () => { isCopied.value = await copy(line); }}>Copy</button>
      <button type="button" class="main" onClick=${close}>Close</button></div><//>`;
}

function Confirm({ verb, what, text, field, onYes }) {
  const reason = useSignal("");
  const submit = (event) => { event.preventDefault(); close(); onYes(reason.value); };
  return html`<${Frame} label=${what}><form onSubmit=${submit}><h2>${what} this run?</h2><p>${text}</p>
    <label class="field"><span>${field === "message" ? "First message" : "Reason"}</span><input type="text" value=${reason} placeholder="optional"
      onInput=${(event) => { reason.value = event.target.value; }} /></label>
    <div class="dialog-row"><span class="grow"></span><button type="button" onClick=${close}>Cancel</button>
      <button type="submit" class=${verb === "terminate" ? "danger" : "main"}>${what}</button></div>
  </form><//>`;
}

function Start({ agent }) {
  const names = agents.value.map((each) => each.name ?? each);
  const chosen = useSignal(agent || names[0] || "");
  const input = useSignal("");
  const sessionKey = useSignal("");
  const body = () => ({
    agent: chosen.value, input: input.value,
    ...(sessionKey.value ? { session_key: sessionKey.value } : {}),
  });
  const submit = async (event) => {
    event.preventDefault();
    try {
      const receipt = await send("POST", "api/runs", body(), {
        headers: { "idempotency-key": newKey() },
      });
      close();
      note("Started.");
      go(runLink(receipt.run_id));
    } catch (problem) {
      fault(problem);
    }
  };
  return html`<${Frame} label="Start a run"><form onSubmit=${submit}><h2>Start a run</h2>
    <label class="field"><span>Agent</span>${names.length > 0
      ? html`<select value=${chosen} onChange=${(event) => { chosen.value = event.target.value; }}>
          ${names.map((name) => html`<option key=${name} value=${name}>${agentName(name)}</option>`)}
        </select>`
      : html`<input type="text" required value=${chosen}
          onInput=${(event) => { chosen.value = event.target.value; }} />`}</label>
    <label class="field"><span>Input</span><textarea rows="3" value=${input} autofocus
      onInput=${(event) => { input.value = event.target.value; }}></textarea></label>
    <label class="field"><span>Session key</span><input type="text" value=${sessionKey}
      placeholder="optional: finds the same run again"
      onInput=${(event) => { sessionKey.value = event.target.value; }} /></label>
    <div class="dialog-row"><${Curl} what="start this run" call=${() => ({ method: "POST",
      path: "api/runs", body: body() })} /><span class="grow"></span>
      <button type="button" onClick=${close}>Cancel</button>
      <button type="submit" class="main" disabled=${!chosen.value}>Start</button></div></form><//>`;
}

function LogIn() {
  const token = useSignal("");
  const problem = useSignal("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await logIn(token.value);
      token.value = "";
      retryNow();
    } catch (error) {
      problem.value = error.status === 401 || error.status === 403 ? "That is not the token." : error.message;
    }
  };
  return html`<${Frame} label="Sign in" onClose=${() => {}}><form onSubmit=${submit}><h2>hubbub</h2>
    <p>This hub asks for its token. The browser gets a session for it, and keeps no token.</p>
    <label class="field"><span>Token</span><input type="password" autocomplete="current-password"
      autofocus value=${token} onInput=${(event) => { token.value = event.target.value; }} /></label>
    ${problem.value && html`<p class="fault-text" role="alert">${problem}</p>`}
    <div class="dialog-row"><span class="grow"></span>
      <button type="submit" class="main" disabled=${!token.value}>Sign in</button></div></form><//>`;
}

const KINDS = { help: Help, curl: CurlDialog, confirm: Confirm, start: Start };

export function Dialogs() {
  if (needsToken.value) return html`<${LogIn} />`;
  return dialogs.value.map((open, index) => {
    const Kind = KINDS[open.kind];
    return html`<${Kind} key=${index} ...${open} />`;
  });
}
