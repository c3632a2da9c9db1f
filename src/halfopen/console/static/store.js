// What the page knows: a snapshot, patches on top of it, how old it is, and who looks.
import { signal } from "@preact/signals";
import { tokenFromLink } from "./place.js";

/** @typedef {{version: number, start: string, title: string, environment: string, store: any, processes: Map<string, any>,
 *  breakers: Map<string, any>, queues: Map<string, any>, events: any[]}} Picture */

/** @type {import("@preact/signals").Signal<Picture | null>} */
export const picture = signal(null);
export const connection = signal("connecting");
export const session = signal({ who: null, role: "viewer", csrf: null, sign_in: false });
export const tick = signal(0);

const received = { at: 0, time: 0 };
const FRESH_MS = 8000;

/** Seconds since something came, by this machine's steady clock: a wrong wall clock does no harm. */
export const age = () => (received.at ? (performance.now() - received.at) / 1000 : Infinity);

/** The server's Unix time, as well as it is known here. */
export const serverNow = () => received.time + (performance.now() - received.at) / 1000;

/** How old the numbers of a process are: what the server said, and what has passed since. @param {any} process */
export const dataAge = (process) => (process?.data_age ?? 0) + age();

/** @param {number} time */
function heard(time) {
  received.at = performance.now();
  received.time = time;
}

/** @param {any} document */
function adopt(document) {
  heard(document.time);
  const byKey = (/** @type {any[]} */ list, /** @type {string} */ key) => new Map(list.map((one) => [one[key], one]));
  picture.value = {
    version: document.version, start: document.start, title: document.title, environment: document.environment,
    store: document.store, processes: byKey(document.processes, "id"), breakers: byKey(document.breakers, "name"),
    queues: byKey(document.queues, "name"), events: document.events,
  };
}

/** Apply a patch on the version it names; return whether it fitted. @param {any} patch */
export function apply(patch) {
  const now = picture.value;
  if (!now || patch.version <= now.version) return Boolean(now);
  if (patch.base !== now.version) return false;
  heard(patch.time);
  const next = { ...now, version: patch.version };
  const copied = new Set();
  for (const change of patch.changes) change_(next, change, copied);
  picture.value = next;
  return true;
}

/** @param {any} next @param {any[]} change @param {Set<string>} copied */
function change_(next, change, copied) {
  const [kind, name] = change;
  const fields = change[change.length - 1];
  if (kind === "store") next.store = { ...next.store, ...fields };
  else if (kind === "event") next.events = [...next.events.filter((/** @type {any} */ e) => e.id !== name.id), name].slice(-200);
  else if (kind === "member") changeMember(next, change, copied);
  else {
    const place = { process: "processes", breaker: "breakers", queue: "queues" }[/** @type {"process"} */ (kind)];
    if (!place) return;
    if (!copied.has(place)) { next[place] = new Map(next[place]); copied.add(place); }
    if (fields === null) next[place].delete(name);
    else next[place].set(name, { ...(next[place].get(name) ?? fresh(kind, name)), ...fields });
  }
}

/** @param {any} next @param {any[]} change @param {Set<string>} copied */
function changeMember(next, [, name, process, fields], copied) {
  if (!copied.has("breakers")) { next.breakers = new Map(next.breakers); copied.add("breakers"); }
  const known = next.breakers.get(name) ?? fresh("breaker", name);
  const others = known.processes.filter((/** @type {any} */ one) => one.id !== process);
  const index = known.processes.findIndex((/** @type {any} */ one) => one.id === process);
  const member = fields === null ? [] : [{ id: process, ...known.processes[index], ...fields }];
  const at = index < 0 ? others.length : index;
  next.breakers.set(name, { ...known, processes: [...others.slice(0, at), ...member, ...others.slice(at)] });
}

/** @param {string} kind @param {string} name */
function fresh(kind, name) {
  return kind === "process" ? { id: name } : { name, processes: [], settings: {}, totals: [0, 0, 0, 0], state: "closed", tags: {} };
}

// Transport

export async function fetchSnapshot() {
  const answer = await fetch("api/snapshot", { cache: "no-store" });
  if (!answer.ok) throw new Error(String(answer.status));
  adopt(await answer.json());
}

/** @type {EventSource | null} */
let source = null;
let silentSince = 0;

function open() {
  source?.close();
  silentSince = performance.now();
  source = new EventSource("api/events");
  source.addEventListener("snapshot", (event) => { adopt(JSON.parse(event.data)); live(); });
  source.addEventListener("patch", (event) => {
    live();
    if (!apply(JSON.parse(event.data))) fetchSnapshot().catch(() => {});
  });
  source.addEventListener("error", () => { if (connection.value === "live") connection.value = "reconnecting"; });
}

function live() {
  silentSince = performance.now();
  connection.value = "live";
}

/** Without a stream, ask every two seconds, and try the stream again now and then. */
async function watchdog() {
  if (performance.now() - silentSince < FRESH_MS && source?.readyState !== EventSource.CLOSED) return;
  try {
    await fetchSnapshot();
    if (connection.value !== "live") connection.value = "polling";
  } catch {
    connection.value = "lost";
  }
  if (!source || source.readyState === EventSource.CLOSED || performance.now() - silentSince > 30000) open();
}

export async function start() {
  await signInFromLink();
  await learnSession();
  open();
  setInterval(() => { tick.value += 1; }, 500);
  setInterval(() => { void watchdog(); }, 2000);
}

// Who looks, and orders

export async function learnSession() {
  try {
    const answer = await fetch("api/session", { cache: "no-store" });
    if (answer.ok) session.value = await answer.json();
  } catch { /* the watchdog says that the server is away */ }
}

/** @param {string} token */
export async function signIn(token) {
  const answer = await fetch("api/login", { method: "POST", body: JSON.stringify({ token }) });
  if (answer.ok) { await learnSession(); open(); }
  return answer.ok;
}

export async function signOut() {
  await fetch("api/logout", { method: "POST" });
  await learnSession();
}

async function signInFromLink() {
  const token = tokenFromLink();
  if (token) await signIn(token);
}

/** Post an order; the CSRF token is another one after a restart of the server. @param {string} path @param {any} body
 *  @returns {Promise<{status: number, data: any}>} */
export async function post(path, body) {
  for (const last of [false, true]) {
    const headers = { "content-type": "application/json", "halfopen-csrf": session.value.csrf ?? "" };
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    const data = await answer.json().catch(() => ({}));
    if (answer.status !== 403 || last || !String(data.error).includes("CSRF")) return { status: answer.status, data };
    await learnSession();
  }
  return { status: 0, data: {} };
}

export const requestId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
