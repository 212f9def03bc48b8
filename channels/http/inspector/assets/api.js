// Calls of the HTTP API, and the curl line of each.
import { signal } from "./lib.js";

const ROOT = new URL("./", document.baseURI);
const TOKEN_SEEN = "hubbub.token";

/** Whether the server wants a token that this browser has not given it yet. */
export const needsToken = signal(false);

export const urlOf = (path) => new URL(path.replace(/^\//, ""), ROOT).href;
export const part = encodeURIComponent;
/** A path inside a run's file area: its slashes stay. */
export const pathPart = (path) => path.split("/").map(part).join("/");

/** What the server refused, in its own words (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.type = body.type || "";
    this.body = body;
  }
}

async function problemOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* No JSON: the status has to do. */ }
  return new Problem(response.status, body && typeof body === "object" ? body : {});
}

/** `fetch` that raises a Problem, and asks for the token when it is missing. */
export async function request(method, path, { body, headers, signal: abort, raw } = {}) {
  const json = body !== undefined && !raw;
  const response = await fetch(urlOf(path), {
    method,
    headers: { ...(json ? { "content-type": "application/json" } : {}), ...headers },
    body: json ? JSON.stringify(body) : body,
    signal: abort,
    credentials: "same-origin",
    cache: "no-store",
  });
  if (response.status === 401) rememberToken(true);
  if (!response.ok) throw await problemOf(response);
  return response;
}

export const get = async (path, options) => (await request("GET", path, options)).json();

export async function send(method, path, body, options) {
  const response = await request(method, path, { ...options, body });
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

function rememberToken(isMissing) {
  needsToken.value = isMissing;
  try { localStorage.setItem(TOKEN_SEEN, "1"); } catch { /* Storage is switched off. */ }
}

export async function logIn(token) {
  await send("POST", "api/session", { token });
  needsToken.value = false;
}

const LINK = "#token=";

/** Use the token of a link (`/#token=…`), and take it out of the address before anything else. */
export async function logInByLink() {
  if (!location.hash.startsWith(LINK)) return;
  const token = decodeURIComponent(location.hash.slice(LINK.length));
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  rememberToken(false);
  try {
    await logIn(token);
  } catch {
    needsToken.value = true; // The form says what is wrong with the next one.
  }
}

function wantsToken() {
  try { return localStorage.getItem(TOKEN_SEEN) === "1"; } catch { return false; }
}

/** An id that makes sending idempotent; `randomUUID` exists on secure pages only. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command line that does the same as a button of the page. */
export function curlLine({ method, path, body, file, output, remoteName }) {
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  if (wantsToken()) parts.push('-H "Authorization: Bearer $HUBBUB_TOKEN"');
  if (body !== undefined) {
    parts.push("-H 'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  }
  if (file) parts.push("--data-binary", quoted(`@${file}`));
  if (remoteName) parts.push("-OJ");
  if (output) parts.push("-o", quoted(output));
  parts.push(quoted(urlOf(path)));
  return parts.join(" ");
}
