// How times, sizes and events are put into words.

// The browser's formatters (Intl) load the rules of all languages: that took longer than any other
// task of the page, before anything was drawn.
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const padded = (number, length = 2) => String(number).padStart(length, "0");
const LAST_YEAR = 9_999;

/** A moment's date; null where the calendar of the command line has no name for it either. */
function dateOf(at) {
  const date = new Date(at / 1_000);
  const year = date.getUTCFullYear(); // NaN where the browser has none.
  return year >= 1 && year <= LAST_YEAR ? date : null;
}
const clock = (date) =>
  `${padded(date.getHours())}:${padded(date.getMinutes())}:${padded(date.getSeconds())}`;
const day = (date) => `${date.getDate()} ${MONTHS[date.getMonth()]} ${date.getFullYear()}`;

/** 12345 as 12,345. */
export const count = (number) => String(number || 0).replace(/\B(?=(\d{3})+$)/g, ",");

/** 12345 as 12.3k: where there is little room. */
export function short(number) {
  if (number < 1_000) return String(number || 0);
  if (number < 1_000_000) return `${(number / 1_000).toFixed(number < 10_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

/** A part of a message: what it is, its name, its type and its size. */
export const partWords = (part) => {
  const facts = [part.media_type, part.size ? size(part.size) : ""].filter(Boolean).join(", ");
  return [part.kind, part.name, part.url, facts && `(${facts})`].filter(Boolean).join(" ");
};

/** Times are µs since the Unix epoch, as the hub has them; one without a date is its number. */
const said = (at, words) => {
  if (!at) return "";
  const date = dateOf(at);
  return date ? words(date) : String(at);
};
export const time = (at) => said(at, clock);
export const moment = (at) => said(at, (date) => `${day(date)}, ${clock(date)}`);
/** What follows the seconds: 5.009 s past the minute end in ".009". */
export const fraction = (at) =>
  at && dateOf(at) ? `.${padded(dateOf(at).getMilliseconds(), 3)}` : "";

export function span(us) {
  const ms = us / 1_000;
  if (ms < 1) return "< 1 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round(ms / 1_000) % 60} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round(ms / 60_000) % 60} min`;
}

export function age(at, now) {
  const seconds = Math.max(0, (now - at / 1_000) / 1_000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

export function size(bytes) {
  if (bytes < 1_024) return `${bytes} B`;
  if (bytes < 1_048_576) return `${(bytes / 1_024).toFixed(1)} KB`;
  return `${(bytes / 1_048_576).toFixed(1)} MB`;
}

export const cut = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

/** A value that came as JSON, as text: a string stands for itself. */
export function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

const SKILL = "skill:";
export const agentName = (agent) => (agent || "").replace(SKILL, "") || "unknown";

/** An id's end: the part that differs. */
export const tail = (id) => (id.length > 14 ? `…${id.slice(-8)}` : id);

const KINDS = {
  "session:message": "say", "session:open": "say", "session:result": "say", "session:reply": "say",
  "agent:text": "say", "agent:message": "say", "agent:thinking": "model", "agent:step": "model",
  "agent:retry": "fault", "agent:tool:start": "tool", "agent:tool:complete": "tool",
  "session:prompt": "ask", "session:prompt:end": "ask", "session:variables": "ask",
  "agent:failed": "fault", "agent:interrupted": "fault", "session:abort": "fault",
  "session:cancel": "fault", "session:terminate": "fault", "session:dropped": "fault",
  "hub:dead_letter": "fault", "hub:gap": "fault", "hub:error": "fault", "channel:error": "fault",
  "agent:child": "kin", "agent:immediate": "kin", "agent:handoff": "kin", "session:push": "kin",
  "session:pop": "kin", "agent:read": "kin", "agent:file": "data", "agent:key": "data",
  "agent:record": "data",
};

/** Names a call among those of its run; numbers that are 0 are left out of events. */
export const callKey = (event) => `${event.step || 0}/${event.index || 0}`;

/** What an event is about: say, model, tool, ask, kin, data, fault or life. */
export function kindOf(event) {
  if (event.is_error || event.success === false) return "fault";
  return KINDS[event.type] || "life";
}

export const KIND_NAMES = {
  say: "Said", model: "Model", tool: "Tools", ask: "Asked", kin: "Family", data: "Data",
  fault: "Faults", life: "Life",
};

const COMMON = new Set([
  "type", "at", "run_id", "root_run_id", "parent_run_id", "agent", "lane", "seq", "side", "label",
  "turn", "call_id", "position",
]);

/** The fields that are an event's own. */
export function ownFields(event) {
  return Object.fromEntries(Object.entries(event).filter(([name]) => !COMMON.has(name)));
}

const LONG = 300; // Characters of a text that a line can show.
const told = (value) => cut(asText(value), LONG);

/** What an event says, in one line. */
export function headline(event) {
  switch (event.type) {
    case "session:taken":
    case "session:dropped":
      return (event.items || []).map(itemWords).join(" · ");
    case "agent:text":
    case "agent:thinking":
      return told(event.text);
    case "agent:tool:start":
      return `${event.name}(${cut(event.arguments || "", LONG)})`;
    case "agent:tool:complete":
      return `${event.name}${event.is_error ? " failed" : ""}: ${told(event.output)}`;
    case "agent:step":
      return stepWords(event);
    case "agent:status": return told(event.status);
    case "agent:child":
      return event.error
        ? `${event.child_agent || event.name} could not be started: ${told(event.error)}`
        : `${agentName(event.child_agent)} ${event.name || ""}${event.takeover ? " takes over" : ""}`;
    case "agent:start": return told(event.input);
    case "agent:complete":
    case "session:end": {
      const how = event.reason && event.reason !== event.outcome ? `: ${event.reason}` : "";
      const output = asText(event.output);
      return `${event.outcome || "completed"}${how}${output ? ` · ${cut(output, LONG)}` : ""}`;
    }
    case "agent:failed": return `${event.error_type || ""} ${told(event.error)}`.trim();
    case "agent:retry": return `${told(event.error)}, again in ${event.delay || 0} s`;
    case "session:prompt": return told(event.question || `${event.tool}(${asText(event.arguments)})`);
    case "session:variables": return (event.names || []).join(", ");
    case "session:push": return `${agentName(event.frame_agent)} takes over`;
    case "session:pop": return `${agentName(event.frame_agent)} gives the conversation back`;
    case "agent:file":
      return [...(event.files || []).map((file) => file.path),
        ...(event.deleted || []).map((path) => `${path} deleted`)].join(", ");
    case "agent:key": return `${event.key}${event.deleted ? " deleted" : ` = ${told(event.value)}`}`;
    default:
      return event.lane === "in" ? itemWords(event) : fieldWords(event);
  }
}

function stepWords(event) {
  const usage = event.usage || {};
  const calls = (event.calls || []).map((call) => call.name).join(", ");
  const tokens = `${short(usage.input_tokens || 0)} in, ${short(usage.output_tokens || 0)} out`;
  return `step ${event.step || 0} · ${tokens}${calls ? ` · calls ${calls}` : ""}`;
}

/** What an item of an inbox says. */
export function itemWords(item) {
  switch (item.type) {
    case "session:open": return `input: ${told(item.input) || "none"}`;
    case "session:message": return `${item.source || item.role || "user"}: ${told(item.content)}`;
    case "session:result":
      return `${item.name || agentName(item.child_agent)}: ${told(item.content || item.reason)}`;
    case "session:reply": return `${item.decision || "reply"} ${told(item.content)}`.trim();
    case "session:variables": return `variables: ${(item.names || []).join(", ")}`;
    default: {
      const name = (item.type || "").replace("session:", "");
      const detail = told(item.reason || item.message || item.timer || "");
      return detail ? `${name}: ${detail}` : name;
    }
  }
}

function fieldWords(event) {
  return Object.entries(ownFields(event))
    .map(([name, value]) => `${name}=${cut(asText(value), 120)}`).join(" ");
}
