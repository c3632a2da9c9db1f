// What changed and what others did: moves, orders, deployments, processes that came and went; newest first.
import { clock, duration } from "./format.js";
import { html } from "./html.js";
import { word } from "./shapes.js";

const MOST_ROWS = 40;
/** Seconds within which the same move of several processes is one line. */
const TOGETHER = 20;
/** Seconds from an order's entry in the audit log to the move that it makes, at most. */
const ORDER_TAKES = 5;

/** @param {{b: any, events: any[], detail: any}} props */
export function Log({ b, events, detail }) {
  const told = new Map(untold(b, events, detail).map((row) => [row.id, row]));
  for (const entry of detail?.audit ?? []) told.set(entry.id, { at: entry.at, entry });
  for (const event of events) {
    if (event.kind === "audit") told.set(event.entry.id, { at: event.entry.at, entry: event.entry });
    else if (event.kind !== "move" || (event.breaker === b.name && event.move[2] !== "manual")) told.set(event.id, event);
  }
  const rows = together([...told.values()].reverse().sort((x, y) => y.at - x.at)).slice(0, MOST_ROWS);
  return html`<section class="card" aria-label="Actions and events"><h2>Actions and events</h2>
    ${rows.length === 0 && html`<p class="muted">Nothing has happened since the console began to look.</p>`}
    <ul class="log" tabindex="0" aria-label="Actions and events, newest first">${rows.map((row) => html`<li key=${row.id ?? row.entry.id}><time title=${new Date(row.at * 1000).toISOString()}>${clock(row.at)}</time><span>${row.entry ? html`<${Order} entry=${row.entry} scope=${row.all ?? row.entry.scope ?? []} b=${b} />` : happened(row, detail)}</span></li>`)}</ul></section>`;
}

/** @type {Record<string, string>} */
const ORDERED = { half_open: "try_now", open: "trip", forced_open: "force_open", disabled: "disable", metrics_only: "observe", closed: "reset" };

/** Moves that no event tells, such as those before the console began to look, from the breaker's own history.
 *  @param {any} b @param {any[]} events @param {any} detail @returns {any[]} */
function untold(b, events, detail) {
  const known = new Set(events.filter((event) => event.kind === "move" && event.breaker === b.name).map((event) => `${event.process} ${event.at} ${event.move[1]}`));
  const entries = [...(detail?.audit ?? []), ...events.filter((event) => event.kind === "audit").map((event) => event.entry)];
  /** @type {any[]} */
  const found = [];
  for (const [process, moves] of Object.entries(detail?.moves ?? {})) for (const move of moves) {
    const [at, , to, reason, , , , note, by, epoch] = move;
    const id = `${process} ${epoch}`, action = ORDERED[to];
    const written = (/** @type {any} */ entry) => entry.action === action && entry.target === b.name && Math.abs(entry.at - at) < ORDER_TAKES && entry.scope?.includes(process);
    if (reason !== "manual" && known.has(`${process} ${at} ${to}`)) continue;
    if (reason !== "manual") found.push({ id, at, kind: "move", process, move: move.slice(1, 6) });
    else if (!entries.some(written)) found.push({ id, at, entry: { id, who: by ?? "code", source: "code", action, target: b.name, scope: [process], reason: note, after: { [process]: to } } });
  }
  return found;
}

/** @type {Record<string, [string, string]>} */
const DID = {
  try_now: ["tried", ""], trip: ["tripped", ""], force_open: ["forced", "open"], disable: ["forced", "closed"],
  observe: ["set", "to observe only"], reset: ["reset", ""],
};

/** @param {{entry: any, scope: string[], b: any}} props */
function Order({ entry, scope, b }) {
  if (entry.action?.startsWith("queue ")) return html`<b>${entry.who}</b> ${ofQueue(entry)}${entry.reason ? `: ${entry.reason}` : ""}${entry.after?.refused ? `; refused: ${entry.after.refused}` : ""}`;
  if (entry.source === "api") return html`${entry.action} ${entry.reason}, by <b>${entry.who}</b>`;
  const [did, how] = DID[entry.action] ?? [entry.action, ""];
  const where = entry.everywhere ? "" : `on ${scope.length > 3 ? `${scope.length} processes` : [...scope].sort().join(", ")}`;
  const after = entry.after && Object.keys(entry.after).length ? "" : ", no answer yet";
  const whom = entry.target === b.name ? (how ? "it" : "") : entry.target;
  const words = [did, whom, how, where, entry.ends_at ? `until ${clock(entry.ends_at)}` : ""].filter(Boolean).join(" ");
  return html`<b>${entry.who}</b> ${words}${entry.reason ? `: ${entry.reason}` : ""}${after}`;
}

/** @type {Record<string, string>} */
const DID_TO_QUEUE = { pause: "paused", resume: "resumed", retry: "retried", resend: "sent again", resubmit: "resubmitted", cancel: "cancelled" };

/** @param {any} entry */
function ofQueue(entry) {
  const action = entry.action.slice(6);
  const lane = entry.lane ?? entry.selection?.lane;
  const what = entry.message ?? (entry.expected == null ? `lane ${lane}` : `${entry.expected} of ${lane ?? entry.target}`);
  return `${DID_TO_QUEUE[action] ?? action} ${what}`;
}

/** Processes that did the same soon after one another stand in one line. @param {any[]} rows */
function together(rows) {
  /** @type {any[]} */
  const found = [];
  for (const row of rows) {
    const at = row.kind === "move" ? [row.process] : (row.entry?.source === "code" && row.entry.scope) || null;
    const same = at && found.find((one) => one.all && one.what === what(row) && one.at - row.at < TOGETHER && !at.some((/** @type {string} */ process) => one.all.includes(process)));
    if (same) same.all.push(...at);
    else found.push(at ? { ...row, what: what(row), all: [...at] } : row);
  }
  return found;
}

/** What two rows must share to be told as one. @param {any} row */
const what = (row) => (row.entry ? [row.entry.who, row.entry.action, row.entry.target, row.entry.reason] : row.move.slice(0, 4)).join("|");

/** @param {any} event @param {any} detail */
function happened(event, detail) {
  if (event.kind !== "move") return event.text;
  const [from, to, reason, step, wait] = event.move;
  const who = event.all.length > 3 ? `${event.all.length} processes` : [...event.all].sort().join(", ");
  const moves = event.all.length > 1 ? [] : (detail?.moves[event.process] ?? []);
  const move = moves.find((/** @type {any} */ one) => one[2] === to && Math.abs(one[0] - event.at) < 0.05);
  const shut = to === "open" && wait ? `; it waits ${duration(wait)}${step > 1 ? `, step ${step}` : ""}` : "";
  return `${who} ${went(from, to)}: ${because(reason, move?.[6])}${shut}`;
}

/** @param {string} from @param {string} to */
function went(from, to) {
  if (to === "open") return from === "closed" ? "opened" : "opened again";
  if (to === "closed") return "closed";
  return `went ${word(to)}`;
}

/** What the sentence of the breaker says of a move, shorter. @param {string} reason @param {number[] | undefined} held */
function because(reason, held) {
  const [calls, failures, slow, both] = held ?? [0, 0, 0, 0];
  const bad = failures + slow - both;
  switch (reason) {
    case "failure_rate": return calls ? `${failures} of the last ${calls} calls failed` : "too many calls failed";
    case "slow_call_rate": return calls ? `${slow} of the last ${calls} calls were slow` : "too many calls were slow";
    case "failure_count": return "too many calls failed";
    case "consecutive": return "too many calls failed in a row";
    case "wait_elapsed": return "the wait was over";
    case "trial_succeeded": return calls ? `${calls - failures} of ${calls} trial calls succeeded` : "enough trial calls succeeded";
    case "trial_failed": return calls === 1 ? "its trial call failed or was slow" : calls ? `${bad} of ${calls} trial calls failed or were slow` : "a trial call failed or was slow";
    case "trial_expired": return "a trial call did not report in time";
    case "ramp_finished": return "the ramp was finished";
    case "override_ended": return "the end of an order had come";
    default: return reason.replaceAll("_", " ");
  }
}
