// Orders: what will happen, where, until when, why; the button names the effect and waits until all is filled in.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { clock, grouped, plural, rate } from "./format.js";
import { html } from "./html.js";
import { picture, post, requestId, serverNow, session, signIn } from "./store.js";
import { word } from "./shapes.js";

/** @type {import("@preact/signals").Signal<any>} */
export const asked = signal(null);
/** @type {import("@preact/signals").Signal<string>} */
export const toast = signal("");

/** @type {Record<string, {button: string, title: string, effect: string, ends?: boolean, danger?: boolean}>} */
export const ACTIONS = {
  try_now: { button: "Try now", title: "Try", effect: "Try now" },
  trip: { button: "Trip…", title: "Trip", effect: "Trip" },
  force_open: { button: "Force open…", title: "Force open", effect: "Force open", ends: true },
  disable: { button: "Force closed…", title: "Force closed", effect: "Force closed", ends: true, danger: true },
  observe: { button: "Observe only…", title: "Only observe", effect: "Observe only", ends: true },
  reset: { button: "Reset…", title: "Reset", effect: "Reset" },
};

const ENDS = [[900, "15 minutes"], [3600, "1 hour"], [14400, "4 hours"], ["until_removed", "when I remove it"]];

let toastTimer = 0;
/** @param {string} text */
export function say(text) {
  toast.value = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.value = ""; }, 8000);
}

/** What an order means in current numbers. @param {string} action @param {any} b @param {any[]} scope */
function consequence(action, b, scope) {
  const asks = scope.reduce((sum, p) => sum + (p.asked_rate ?? 0), 0);
  const refused = scope.reduce((sum, p) => sum + (p.refused_rate ?? 0), 0);
  const s = b.settings;
  switch (action) {
    case "force_open": return `All calls will be refused: now ${rate(asks)}. A fallback, where one is set, takes over. No trial calls will be made until this ends.`;
    case "disable": return `All calls will be let through, now ${rate(asks)}, of which ${rate(refused)} are refused at present, and nothing will be recorded. If the other side is ill, they will reach it.`;
    case "observe": return `All calls will be let through, now ${rate(asks)}, of which ${rate(refused)} are refused at present. They are recorded, and the circuit never opens until this ends.`;
    case "trip": return `Calls will be refused, now ${rate(asks)}, until the wait (${s.wait ?? "of its backoff"}) is over; then trial calls decide.`;
    case "reset": return `The circuit closes with an empty window and forgets its backoff: ${rate(asks)} will go through until ${s.minimum_calls} calls can be judged.`;
    default: return "";
  }
}

export function Dialogs() {
  const what = asked.value;
  if (!what) return null;
  if (what.kind === "sign-in") return html`<${SignIn} />`;
  if (what.kind === "messages") return html`<${Messages} ...${what} />`;
  if (what.kind === "queue") return html`<${QueueOrder} ...${what} />`;
  return html`<${BreakerOrder} key=${`${what.name} ${what.action}`} ...${what} />`;
}

/** A modal dialog: Esc closes it, and the focus goes back to where it came from. @param {any} props */
function Modal({ title, wide, children }) {
  const place = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const gone = useRef(false);
  useEffect(() => {
    const dialog = place.current;
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    if (dialog && !dialog.open) dialog.showModal();
    return () => { gone.current = true; dialog?.close(); if (before?.isConnected) before.focus(); };
  }, []);
  return html`<dialog ref=${place} class=${wide ? "wide" : ""} aria-labelledby="dialog-title" onClose=${() => { if (!gone.current) close(); }}><div class="body"><h2 id="dialog-title">${title}</h2>${children}</div></dialog>`;
}

function close() { asked.value = null; }

/** @param {{name: string, action: string, only?: string}} props */
function BreakerOrder({ name, action, only }) {
  const b = picture.value?.breakers.get(name);
  const about = ACTIONS[action];
  const reachable = (b?.processes ?? []).filter((/** @type {any} */ p) => picture.value?.processes.get(p.id)?.channel);
  const [scope, setScope] = useState(only ?? "all");
  const [ends, setEnds] = useState("900");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [mistakes, setMistakes] = useState(/** @type {Record<string, string>} */ ({}));
  const [busy, setBusy] = useState(false);
  // Kept from the first look: what the operator saw is what he decides on.
  const [seen, setSeen] = useState(/** @type {Record<string, number>} */ (epochs(b)));
  const [id] = useState(requestId);
  if (!b) return null;
  const inScope = scope === "all" ? reachable : reachable.filter((/** @type {any} */ p) => p.id === scope);
  const all = scope === "all";
  const ready = reason.trim() !== "" && inScope.length > 0 && (!all || typed === name) && !busy;
  const until = ends === "until_removed" ? "" : ` (${clock(serverNow() + Number(ends), false)} UTC)`;
  const changed = inScope.some((/** @type {any} */ p) => seen[p.id] !== p.epoch);

  /** @param {Event} event */
  async function send(event) {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    const body = {
      action, reason, scope: all ? "all" : [scope], typed_name: typed, seen_epochs: seen, request_id: id,
      ends_in: about.ends ? (ends === "until_removed" ? ends : Number(ends)) : null,
    };
    const answer = await order(name, body);
    setBusy(false);
    if (answer.status === 202) { close(); return; }
    if (answer.status === 422) setMistakes(Object.fromEntries(answer.data.mistakes.map((/** @type {any} */ m) => [m.field, m.error])));
    else setMistakes({ "": answer.data.error ?? `The server answered ${answer.status}.` });
  }

  return html`<${Modal} title=${`${about.title} ${name}?`}><form onSubmit=${send} style=${{ padding: 0 }}>
    <div class=${about.danger || action === "force_open" ? "warn" : "warn mild"}>${consequence(action, b, inScope)}</div>
    ${changed && html`<div class="warn" role="alert">It changed meanwhile, look again: ${statesOf(inScope)}.
      <button type="button" class="button tiny" onClick=${() => { setSeen(epochs(b)); setMistakes({}); }}>I have looked</button></div>`}
    <div class=${about.ends ? "two" : ""}><label>Where<select value=${scope} onChange=${(/** @type {any} */ e) => setScope(e.target.value)}><option value="all">${reachable.length > 1 ? `All ${reachable.length} processes` : `All: ${reachable[0]?.id ?? "no process can be reached"}`}</option>${reachable.map((/** @type {any} */ p) => html`<option value=${p.id}>${p.id} only</option>`)}</select></label>
      ${about.ends && html`<label>Ends by itself after<select value=${ends} onChange=${(/** @type {any} */ e) => setEnds(e.target.value)}>${ENDS.map(([value, text]) => html`<option value=${String(value)}>${text}${String(value) === ends ? until : ""}</option>`)}</select></label>`}</div>
    ${ends === "until_removed" && about.ends && html`<p class="small">After an hour the alert CircuitBreakerOverrideLeftOn reminds of it.</p>`}
    <label>Reason, kept in the audit log<input value=${reason} maxlength="300" onInput=${(/** @type {any} */ e) => setReason(e.target.value)} autocomplete="off" />${mistakes.reason && html`<span class="wrong">${mistakes.reason}</span>`}</label>
    ${all && html`<label>Type the breaker's name to confirm<input value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} autocomplete="off" spellcheck=${false} />${mistakes.typed_name && html`<span class="wrong">${mistakes.typed_name}</span>`}</label>`}
    ${Object.entries(mistakes).filter(([field]) => !/^(reason|typed_name)$/.test(field)).map(([field, error]) => html`<p class="wrong" role="alert">${field} ${error}</p>`)}
    <div class="ends"><button type="button" class="button" onClick=${close}>Cancel</button><button class="button danger" disabled=${!ready}>${about.effect} on ${plural(inScope.length, "process")}</button></div></form><//>`;
}

/** "web-1 is open", or for more of them "3 are open, 1 is closed". @param {any[]} scope */
function statesOf(scope) {
  if (scope.length === 1) return `${scope[0].id} is ${word(scope[0].state)}`;
  const states = [...new Set(scope.map((p) => p.state))];
  return states.map((state) => { const n = scope.filter((p) => p.state === state).length; return `${n} ${n === 1 ? "is" : "are"} ${word(state)}`; }).join(", ");
}

/** @param {any} b */
function epochs(b) {
  return Object.fromEntries((b?.processes ?? []).map((/** @type {any} */ p) => [p.id, p.epoch]));
}

/** @param {string} name @param {any} body */
async function order(name, body) {
  const answer = await post(`api/breakers/${encodeURIComponent(name)}/actions`, body);
  if (answer.status === 202) {
    const pending = answer.data.pending ?? [];
    say(`${ACTIONS[body.action].effect}: done on ${plural((answer.data.obeyed ?? []).length, "process")}${pending.length ? `; not yet heard of ${pending.join(", ")}` : ""}.`);
  }
  return answer;
}

/** The processes whose open circuit can be tried now. On a closed one that would refuse what goes well, and an order
 *  of somebody else is not lifted in passing. @param {any} b @returns {string[]} */
export const triable = (b) => b.processes.filter((/** @type {any} */ p) => !p.gone && p.state === "open" && picture.value?.processes.get(p.id)?.channel).map((/** @type {any} */ p) => p.id);

/** Try now asks nothing. @param {any} b @param {string} [only] */
export async function tryNow(b, only) {
  const answer = await order(b.name, { action: "try_now", scope: only ? [only] : triable(b), reason: "", ends_in: null, seen_epochs: epochs(b), request_id: requestId() });
  if (answer.status !== 202) say(answer.data.error ?? answer.data.mistakes?.map((/** @type {any} */ m) => m.error).join("; ") ?? `The server answered ${answer.status}.`);
}

// Signing in

function SignIn() {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState(false);
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await signIn(token)) close(); else setWrong(true);
  };
  return html`<${Modal} title="Sign in"><form onSubmit=${send} style=${{ padding: 0 }}><label>Token<input type="password" value=${token} autocomplete="current-password" onInput=${(/** @type {any} */ e) => setToken(e.target.value)} /></label>
    ${wrong && html`<p class="wrong" role="alert">Nobody has this token.</p>`}
    <div class="ends"><button type="button" class="button" onClick=${close}>Cancel</button><button class="button first" disabled=${!token}>Sign in</button></div></form><//>`;
}

// Retry queues

/** @param {string} queue @param {any} body */
async function orderQueue(queue, body) {
  const answer = await post(`api/queues/${encodeURIComponent(queue)}/actions`, { request_id: requestId(), ...body });
  say(answer.status === 202 ? `${body.action}: done${answer.data.done > 1 ? ` for ${grouped(answer.data.done)} messages` : ""}.` : answer.data.error ?? answer.data.mistakes?.map((/** @type {any} */ m) => m.error).join("; "));
  return answer.status === 202;
}

/** @param {string} queue @param {string} lane @param {boolean} pause */
export const hold = (queue, lane, pause) => orderQueue(queue, { action: pause ? "pause" : "resume", lane });

const PAGE_STATES = [["dead", "error"], ["waiting", "unknown_delivery"], ["sending"], ["awaiting_receipt"]];

/** @param {{queue: string, lane?: string}} props */
function Messages({ queue, lane }) {
  const [states, setStates] = useState(0);
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [open, setOpen] = useState(/** @type {any} */ (null));
  const operator = session.value.role === "operator";
  const load = async () => {
    const ask = new URLSearchParams(PAGE_STATES[states].map((state) => ["state", state]));
    if (lane) ask.set("lane", lane);
    const answer = await fetch(`api/queues/${encodeURIComponent(queue)}/messages?${ask}`);
    if (answer.ok) setFound(await answer.json());
  };
  useEffect(() => { void load(); }, [states, queue, lane]);
  const inspect = async (/** @type {string} */ id) => {
    const answer = await fetch(`api/queues/${encodeURIComponent(queue)}/messages/${encodeURIComponent(id)}`);
    if (answer.ok) setOpen(await answer.json());
  };
  const bulk = (/** @type {string} */ action) => { asked.value = { kind: "queue", queue, action, selection: { lane: lane ?? null, states: PAGE_STATES[states] }, expected: found.count }; };
  const one = (/** @type {string} */ action, /** @type {any} */ message) => { asked.value = { kind: "queue", queue, action, message: message.id, maybe: message.maybe_delivered }; };
  return html`<${Modal} wide title=${`Messages of ${lane ?? queue}`}>
    <div class="line"><select aria-label="Which messages" value=${String(states)} onChange=${(/** @type {any} */ e) => setStates(Number(e.target.value))}><option value="0">given up</option><option value="1">waiting</option><option value="2">being sent</option><option value="3">awaiting a receipt</option></select><span>${found ? plural(found.count, "message") : "…"}</span></div>
    <div class="scroll" tabindex="0" role="group" aria-label="Messages, scrolls sideways"><table><thead><tr><th>Message</th><th>Lane</th><th>State</th><th class="n">Attempts</th><th>Since</th><th>Actions</th></tr></thead><tbody>
      ${(found?.messages ?? []).map((/** @type {any} */ m) => html`<tr key=${m.id}><td class="mono">${m.id.slice(0, 44)}</td><td>${m.lane}</td><td>${m.state.replace("_", " ")}</td><td class="n">${m.attempts}</td><td>${clock(m.created)}</td>
        <td><button class="button tiny" aria-label=${`Inspect ${m.id}`} onClick=${() => inspect(m.id)}>Inspect</button> ${operator && ["retry", "resubmit", "cancel"].map((action) => html`<button class="button tiny" aria-label=${`${action[0].toUpperCase() + action.slice(1)} ${m.id}`} onClick=${() => one(action, m)}>${action[0].toUpperCase() + action.slice(1)}</button> `)}</td></tr>`)}</tbody></table></div>
    ${found?.count === 0 && html`<p class="muted">None.</p>`}
    ${open && html`<div class="card"><h3>${open.message.id}</h3><p class="small">${open.message.detail ?? "What the partner answered is shown to operators."}</p><ul class="log">${open.history.map((/** @type {any} */ h) => html`<li><time>${clock(h.at)}</time><span>${h.what} ${h.outcome ?? ""} ${h.who ? `by ${h.who}` : ""} ${h.detail ?? ""}</span></li>`)}</ul></div>`}
    <div class="ends">${operator && found?.count > 0 && states < 2 && ["retry", "resubmit", "cancel"].map((action) => html`<button class="button" onClick=${() => bulk(action)}>${action[0].toUpperCase() + action.slice(1)} all ${grouped(found.count)}…</button>`)}<button class="button first" onClick=${close}>Close</button></div><//>`;
}

/** @type {Record<string, string>} */
const QUEUE_CONSEQUENCES = {
  retry: "They become due now, with fresh tries and the same Message-ID: a partner that has them already drops them.",
  resubmit: "Their content goes out again under a new Message-ID: a partner cannot tell that it is the same, so it may be taken twice.",
  cancel: "They are taken out and will not be sent.",
};

/** @param {any} props */
function QueueOrder({ queue, action, selection, expected, message, maybe }) {
  const [reason, setReason] = useState("");
  const [sure, setSure] = useState(false);
  const needsSure = action === "resubmit";
  const ready = reason.trim() !== "" && (!needsSure || sure);
  const count = message ? 1 : expected;
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (ready && (await orderQueue(queue, { action, reason, confirm: sure, ...(message ? { message } : { selection, expected }) }))) asked.value = { kind: "messages", queue, lane: selection?.lane };
  };
  return html`<${Modal} title=${`${action[0].toUpperCase() + action.slice(1)} ${message ?? plural(count, "message")}?`}><form onSubmit=${send} style=${{ padding: 0 }}>
    <div class="warn">${QUEUE_CONSEQUENCES[action]}${maybe ? " The partner may have this one already." : ""}</div>
    <label>Reason, kept in the audit log<input value=${reason} onInput=${(/** @type {any} */ e) => setReason(e.target.value)} autocomplete="off" /></label>
    ${needsSure && html`<label class="check"><input type="checkbox" checked=${sure} onChange=${(/** @type {any} */ e) => setSure(e.target.checked)} /> It may arrive twice, and that is all right</label>`}
    <div class="ends"><button type="button" class="button" onClick=${close}>Cancel</button><button class="button danger" disabled=${!ready}>${action[0].toUpperCase() + action.slice(1)} ${plural(count, "message")}</button></div></form><//>`;
}
