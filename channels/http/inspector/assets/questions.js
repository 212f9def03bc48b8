// What people are asked: questions, approvals, results of external tools, variables.
import { html, useSignal } from "./lib.js";
import { part, send } from "./api.js";
import { Age, Curl, Empty, Json, fault, note } from "./controls.js";
import { answered, given, prompts, variableOf, variableRequests } from "./hub.js";
import { runLink } from "./router.js";
import { agentName, asText } from "./words.js";

const promptPath = (id, verb) => `api/prompts/${part(id)}/${verb}`;

async function answer(prompt, verb, body) {
  try {
    await send("POST", promptPath(prompt.prompt_id, verb), body);
    answered(prompt.prompt_id);
    note(`${verb === "reply" ? "Answered" : verb === "approve" ? "Approved" : "Denied"}.`);
  } catch (problem) {
    fault(problem);
  }
}

export function PromptCard({ prompt, isLinked = true }) {
  const Body = { approval: Approval, external: External }[prompt.kind] || Question;
  return html`<article class="card ask" data-prompt=${prompt.prompt_id}
      aria-label=${`${agentName(prompt.agent)} asks`}>
    <header class="card-head">
      <b>${agentName(prompt.agent)}</b>
      <span class="muted">${KIND_WORDS[prompt.kind] || "asks"}</span>
      ${isLinked && html`<a class="quiet" href=${runLink(prompt.run_id)}>Go to run</a>`}
      <${Age} at=${prompt.since} />
    </header>
    ${prompt.is_answered ? html`<p class="muted">Answered; its run has not taken the answer yet.</p>`
      : html`<${Body} prompt=${prompt} />`}
  </article>`;
}

const KIND_WORDS = { approval: "wants to run a tool", external: "waits for a result" };

// ── a question ───────────────────────────────────────────────────────────────────────────────

function Question({ prompt }) {
  const text = useSignal("");
  const reply = (content) => answer(prompt, "reply", { content });
  const submit = (event) => { event.preventDefault(); if (text.value) reply(text.value); };
  return html`<p class="ask-text">${prompt.question}</p>
    ${(prompt.options || []).length > 0 && html`<div class="ask-options">
      ${prompt.options.map((option) => html`<button type="button" key=${option}
        onClick=${() => reply(option)}>${option}</button>`)}</div>`}
    ${prompt.schema && html`<details><summary>The answer must fit a schema</summary>
      <${Json} value=${prompt.schema} /></details>`}
    <form class="ask-form" onSubmit=${submit}>
      <input type="text" value=${text} placeholder="Answer" aria-label="Answer"
        onInput=${(event) => { text.value = event.target.value; }} />
      <button type="submit" disabled=${!text.value}>Reply</button>
      <${Curl} what="reply" call=${() => ({
        method: "POST", path: promptPath(prompt.prompt_id, "reply"),
        body: { content: text.value || prompt.options?.[0] || "…" },
      })} />
      <${Deny} prompt=${prompt} label="Decline" />
    </form>`;
}

// ── an approval ──────────────────────────────────────────────────────────────────────────────

function Approval({ prompt }) {
  const proposed = asText(prompt.arguments) ? JSON.stringify(prompt.arguments, null, 2) : "{}";
  const text = useSignal(proposed);
  const isEdited = useSignal(false);
  const body = () => {
    if (!isEdited.value || text.value === proposed) return {};
    return { arguments: JSON.parse(text.value) };
  };
  const approve = (event) => {
    event.preventDefault();
    try {
      answer(prompt, "approve", body());
    } catch {
      fault(new Error("The arguments are no JSON."));
    }
  };
  const call = () => {
    let shown = {};
    try { shown = body(); } catch { /* As it stands it is no JSON: shown without it. */ }
    return { method: "POST", path: promptPath(prompt.prompt_id, "approve"), body: shown };
  };
  return html`<p class="ask-text"><code>${prompt.tool}</code>${
      prompt.question ? html` · ${prompt.question}` : ""}</p>
    ${isEdited.value
      ? html`<textarea class="mono" rows="4" value=${text} aria-label="Arguments"
          onInput=${(event) => { text.value = event.target.value; }}></textarea>`
      : html`<${Json} value=${prompt.arguments ?? {}} />`}
    <form class="ask-form" onSubmit=${approve}>
      <button type="submit" class="main">Approve</button>
      <button type="button" class="quiet" aria-pressed=${String(isEdited.value)}
        onClick=${() => { isEdited.value = !isEdited.value; }}>Edit arguments</button>
      <${Curl} what="approve" call=${call} />
      <${Deny} prompt=${prompt} label="Deny" />
    </form>`;
}

function Deny({ prompt, label }) {
  const reason = useSignal("");
  const isOpen = useSignal(false);
  const deny = () => {
    if (isOpen.value) answer(prompt, "deny", { reason: reason.value });
    else isOpen.value = true;
  };
  return html`<span class="deny">
    ${isOpen.value && html`<input type="text" value=${reason} placeholder="Reason for the model"
      aria-label="Reason" onInput=${(event) => { reason.value = event.target.value; }}
      onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); deny(); } }} />`}
    <button type="button" class=${isOpen.value ? "danger" : "quiet"} onClick=${deny}>${label}</button>
    ${isOpen.value && html`<${Curl} what="deny" call=${() => ({
      method: "POST", path: promptPath(prompt.prompt_id, "deny"), body: { reason: reason.value },
    })} />`}</span>`;
}

// ── the result of an external tool ───────────────────────────────────────────────────────────

function External({ prompt }) {
  const text = useSignal("");
  const isError = useSignal(false);
  const body = () => ({ content: text.value, is_error: isError.value });
  const submit = (event) => { event.preventDefault(); answer(prompt, "reply", body()); };
  return html`<p class="ask-text"><code>${prompt.tool}</code></p>
    <${Json} value=${prompt.arguments ?? {}} />
    <form class="ask-form" onSubmit=${submit}>
      <textarea rows="2" value=${text} aria-label="Result" placeholder="Its result"
        onInput=${(event) => { text.value = event.target.value; }}></textarea>
      <label class="switch"><input type="checkbox" checked=${isError}
        onChange=${(event) => { isError.value = event.target.checked; }} />It failed</label>
      <button type="submit" class="main">Give result</button>
      <${Curl} what="give the result" call=${() => ({
        method: "POST", path: promptPath(prompt.prompt_id, "reply"), body: body(),
      })} />
    </form>`;
}

// ── variables ────────────────────────────────────────────────────────────────────────────────

const variablesPath = (event) =>
  `threads/${part(event.run_id)}/variables/${part(event.request_id)}`;

export function VariablesCard({ event, isLinked = true }) {
  const values = useSignal({});
  const submit = async (submitted) => {
    submitted.preventDefault();
    try {
      await send("POST", variablesPath(event), { variables: values.value });
      given(event.request_id);
      note(`${agentName(event.child_agent)} starts.`);
    } catch (problem) {
      fault(problem);
    }
  };
  const shown = Object.fromEntries(event.names.map((name) => [name, "…"]));
  return html`<article class="card ask" aria-label="Variables are wanted">
    <header class="card-head"><b>${agentName(event.child_agent)}</b>
      <span class="muted">needs values before it starts</span>
      ${isLinked && html`<a class="quiet" href=${runLink(event.run_id)}>Go to run</a>`}
      <${Age} at=${event.at} /></header>
    <form class="ask-values" onSubmit=${submit} autocomplete="off">
      ${event.names.map((name) => {
        const { type, description } = variableOf(event.child_agent, name);
        return html`<label key=${name}><span class="mono">${name}</span>
          <input type=${type === "text" ? "text" : "password"} autocomplete="off"
            title=${description} placeholder=${description} value=${values.value[name] || ""}
            onInput=${(input) => { values.value = { ...values.value, [name]: input.target.value }; }} />
        </label>`;
      })}
      <div class="ask-form"><button type="submit" class="main">Provide</button>
        <${Curl} what="provide variables" call=${{
          method: "POST", path: variablesPath(event), body: { variables: shown },
        }} /></div>
    </form>
  </article>`;
}

// ── all of them ──────────────────────────────────────────────────────────────────────────────

export const askedCount = () => prompts.value.size + variableRequests.value.size;

export function Asked() {
  const all = [...prompts.value.values()];
  const requests = [...variableRequests.value.values()];
  return html`<section class="page" aria-label="Asked">
    <h2>Asked of people</h2>
    ${all.length + requests.length === 0 && html`<${Empty}>Nobody is asked anything.<//>`}
    <div class="cards">
      ${all.map((each) => html`<${PromptCard} key=${each.prompt_id} prompt=${each} />`)}
      ${requests.map((each) => html`<${VariablesCard} key=${each.request_id} event=${each} />`)}
    </div>
  </section>`;
}
