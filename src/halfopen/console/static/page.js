// The page: header, list, and for the chosen breaker the answers to the operator's questions, in their order.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Diagram } from "./diagram.js";
import { ACTIONS, Dialogs, asked, say, toast, triable, tryNow } from "./dialogs.js";
import { Evidence } from "./evidence.js";
import { clock, countdown, duration, grouped, percent, plural, rate } from "./format.js";
import { html } from "./html.js";
import { List, rank } from "./list.js";
import { Log } from "./log.js";
import { fitting, follow, place } from "./place.js";
import { Queues } from "./queues.js";
import { Badge, STATES, Shape, summary, word } from "./shapes.js";
import { age, connection, dataAge, picture, serverNow, session, signOut, start, tick } from "./store.js";
import { Timeline } from "./timeline.js";

const AMBER_AFTER = 3, DIMMED_AFTER = 10;
/** Ranges up to here are known by seconds, and so read more often. */
const FINE = 120;

function worst() {
  const all = [...(picture.value?.breakers.values() ?? [])];
  return all.sort((a, b) => rank(a) - rank(b) || b.refused_rate - a.refused_rate || (a.name < b.name ? -1 : 1))[0] ?? null;
}

function Page() {
  const { name } = place.value;
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => follow(() => main.current?.focus({ preventScroll: innerWidth > 1100 })), []);
  const now = picture.value;
  useTitle(now);
  if (!now) return html`<${Top} /><main class="layout"><p class="loading">${session.value.role === null ? "Nobody looks here without an identity: sign in." : "Waiting for the first picture …"}</p></main><${Dialogs} />`;
  const b = (name && now.breakers.get(name)) || worst();
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the breaker</a>
    <${Top} /><${Notices} />
    <${Body} b=${b} main=${main} missing=${name && !now.breakers.has(name) ? name : null} />
    <${Announcer} /><${Dialogs} />${toast.value && html`<div class="toast" role="status">${toast.value}</div>`}`;
}

/** Dimmed when the numbers are old; of its own, so that only it looks at the clock. @param {any} props */
function Body({ b, main, missing }) {
  tick.value;
  const stale = age() > DIMMED_AFTER;
  return html`<div class=${stale ? "layout stale" : "layout"}><${List} selected=${b?.name ?? null} />
    <main id="main" tabindex="-1" ref=${main}>${missing && html`<p class="notice">There is no breaker “${missing}” any more; this is the one that is worst off.</p>`}
      ${b ? html`<${Breaker} key=${b.name} b=${b} />` : html`<section class="card"><h1>No breakers yet</h1><p>They appear here when the program makes them.</p></section>`}</main></div>`;
}

/** @param {any} now */
function useTitle(now) {
  const b = now && worst();
  const own = now?.title || "halfopen console";
  const title = !b ? own : b.state === "closed" ? `all closed · ${own}` : `${b.name} ${titleOf(b)} · ${own}`;
  useEffect(() => { document.title = title; }, [title]);
}

/** @param {any} b */
function titleOf(b) {
  if (b.processes.length === 1) return word(b.state);
  const n = b.processes.filter((/** @type {any} */ p) => !p.gone && p.state === b.state).length;
  return `${word(b.state)} on ${n} of ${b.processes.length}`;
}

function Top() {
  const now = picture.value;
  const all = [...(now?.breakers.values() ?? [])];
  const who = session.value;
  return html`<header class="top"><span class="brand">${now?.title || "halfopen console"}</span>${now?.environment && html`<span class="env">${now.environment}</span>`}
    <span class="counts">${STATES.map((state) => [state, all.filter((b) => b.state === state).length]).filter(([, n]) => n).map(([state, n]) => html`<${Badge} key=${state} state=${state} text=${`${n} ${word(/** @type {string} */ (state))}`} />`)}</span>
    <span class="space" /><${Age} />${now?.store && html`<span class="small">${now.store.kind}: ${now.store.up ? "up" : "down"}</span>`}<${Clock} />
    <span class="small">${who.who ? `${who.who} · ${who.role}` : "read-only"}</span>${who.who ? who.sign_in && html`<button class="link" onClick=${signOut}>sign out</button>` : who.sign_in && html`<button class="link" onClick=${() => { asked.value = { kind: "sign-in" }; }}>sign in</button>`}</header>`;
}

function Clock() { tick.value; return html`<span class="small muted">${picture.value ? `${clock(serverNow())} UTC` : ""}</span>`; }

function Age() {
  tick.value;
  const old = age();
  const level = old > DIMMED_AFTER ? "stale" : old > AMBER_AFTER ? "late" : "";
  const text = old === Infinity ? "connecting" : level ? `${level === "stale" ? "not live, " : ""}${duration(old)} old` : `${connection.value === "polling" ? "polling" : "live"}, ${duration(old)} old`;
  return html`<span class="live ${level}" data-level=${level || "live"}><${Shape} state=${level === "stale" ? "open" : level ? "half_open" : "closed"} />${text}</span>`;
}

function Notices() {
  tick.value;
  if (connection.value === "polling") return html`<p class="notice">The stream of updates does not get through; the page asks every two seconds instead.</p>`;
  if (age() > DIMMED_AFTER) return html`<p class="notice bad" role="alert">Nothing was heard for ${duration(age())}: what you see is how it was at ${clock(serverNow() - age())} UTC. The page tries again by itself.</p>`;
  return null;
}

/** Says changes of state to those who do not see them; numbers it does not say. */
function Announcer() {
  const known = useRef(/** @type {Map<string, string> | null} */ (null));
  const [text, setText] = useState("");
  const now = picture.value;
  useEffect(() => {
    if (!now) return;
    const states = new Map([...now.breakers].map(([name, b]) => [name, b.state]));
    if (known.current) {
      const before = known.current;
      const moved = [...states].filter(([name, state]) => before.has(name) && before.get(name) !== state);
      if (moved.length) setText(moved.slice(0, 4).map(([name, state]) => `${name} is ${word(state)}`).join(", "));
    }
    known.current = states;
  }, [now]);
  return html`<p class="unseen" role="status" aria-live="polite">${text}</p>`;
}

/** What the stream does not carry of every breaker: moves, the window, the past. @param {any} b @param {number} seconds */
function useDetail(b, seconds) {
  const [detail, setDetail] = useState(/** @type {any} */ (null));
  const epochs = b.processes.map((/** @type {any} */ p) => `${p.id}${p.epoch}${p.trials.join("")}`).join(" ");
  useEffect(() => {
    let wanted = true;
    const load = async () => {
      try {
        const answer = await fetch(`api/breakers/${encodeURIComponent(b.name)}?seconds=${seconds}`, { cache: "no-store" });
        if (answer.ok && wanted) setDetail(await answer.json());
      } catch { /* the age of the picture says that the server is away */ }
    };
    const soon = setTimeout(load, 60);
    const timer = setInterval(load, seconds <= FINE ? 2000 : 4000);
    return () => { wanted = false; clearTimeout(soon); clearInterval(timer); };
  }, [b.name, seconds, epochs]);
  return detail;
}

/** @param {{b: any}} props */
function Breaker({ b }) {
  // It grows with what is known, and does not shrink back while somebody looks.
  const fits = useRef(0);
  fits.current = Math.max(fits.current, fitting(b, serverNow()));
  const seconds = place.value.range ?? fits.current;
  const detail = useDetail(b, seconds);
  const events = picture.value?.events ?? [];
  const queues = [...(picture.value?.queues.values() ?? [])];
  return html`<${Head} b=${b} /><${Numbers} b=${b} detail=${detail} />
    <div class="pair"><${Diagram} b=${b} moves=${countMoves(detail)} /><${Evidence} b=${b} detail=${detail} /></div>
    <${Timeline} b=${b} detail=${detail} seconds=${seconds} />
    <${Processes} b=${b} />
    <div class="pair"><${Queues} queues=${queues} b=${b} /><${Log} b=${b} events=${events} detail=${detail} /></div>`;
}

/** @param {any} detail */
function countMoves(detail) {
  /** @type {Record<string, number>} */
  const counts = {};
  const after = serverNow() - 900;
  for (const moves of Object.values(detail?.moves ?? {})) for (const move of /** @type {any[]} */ (moves)) if (move[0] >= after) counts[`${move[1]}>${move[2]}`] = (counts[`${move[1]}>${move[2]}`] ?? 0) + 1;
  return counts;
}

/** @param {{b: any}} props */
function Head({ b }) {
  const operator = session.value.role === "operator";
  const reachable = b.processes.some((/** @type {any} */ p) => picture.value?.processes.get(p.id)?.channel);
  const worstOne = b.processes.find((/** @type {any} */ p) => p.id === b.worst);
  const give = (/** @type {string} */ action) => { asked.value = { kind: "breaker", name: b.name, action }; };
  const triables = triable(b).length;
  return html`<section class="head" aria-label="Breaker"><h1>${b.name} <${Badge} state=${b.state} text=${b.processes.length > 1 ? `${summary(b)}` : undefined} /></h1>
    <p class="why"><${Why} why=${b.why ?? ""} one=${worstOne} several=${b.processes.length > 1 && b.state !== "closed"} />${b.state !== "closed" && lastErrors(b)}<${First} b=${b} /></p>
    ${operator && reachable && html`<div class="actions"><button class="button first" disabled=${triables === 0} title=${triables ? "" : "Only an open circuit can be tried."} onClick=${() => tryNow(b)}>Try now</button>${Object.entries(ACTIONS).slice(1).map(([action, about]) => html`<button key=${action} class=${about.danger ? "button danger" : "button"} onClick=${() => give(action)}>${about.button}</button>`)}</div>`}
    ${operator && !reachable && html`<p class="muted small">No channel leads to these processes: they can be seen, not steered.</p>`}</section>`;
}

/** The sentence of the breaker in the process that is worst off, with how long ago that was.
 *  @param {{why: string, one: any, several: boolean}} props */
function Why({ why, one, several }) {
  tick.value;
  const [, first, rest] = /^(.*? since \d\d:\d\d:\d\d)(.*)$/s.exec(why) ?? [null, why, ""];
  const where = several && one ? first.replace(" since ", ` on ${one.id} since `) : first;
  const sentence = where.charAt(0).toUpperCase() + where.slice(1);
  const ends = one?.ends_at ? ` It ends by itself at ${clock(one.ends_at)}, in ${countdown(one.ends_at - serverNow())}.` : one && /forced_open|disabled|metrics_only/.test(one.state) ? " It stays so until somebody removes it." : "";
  return html`${sentence}${one ? `, for ${duration(serverNow() - one.entered)}` : ""}${rest ? `,${rest}` : ""}.${ends}`;
}

/** What went wrong last in each process, the commonest first. @param {any} b */
function lastErrors(b) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const p of b.processes) if (p.last_error && p.state !== "closed") counts.set(p.last_error, (counts.get(p.last_error) ?? 0) + 1);
  if (counts.size === 0) return null;
  const sorted = [...counts].sort(([, n], [, m]) => m - n).slice(0, 3);
  if (sorted.length === 1) return html` Last error: <span class="mono">${sorted[0][0]}</span>.`;
  return html` Last errors: ${sorted.map(([error, n], i) => html`${i > 0 && ", "}<span class="mono">${error}</span> on ${plural(n, "process")}`)}.`;
}

/** Since when it is not closed, and what opened it first; where the present state has another reason. @param {{b: any}} props */
function First({ b }) {
  tick.value;
  const ill = b.processes.filter((/** @type {any} */ p) => !p.gone && p.left_closed != null && p.state !== "closed");
  if (!ill.length) return null;
  const worstOne = b.processes.find((/** @type {any} */ p) => p.id === b.worst);
  const first = ill.reduce((/** @type {any} */ x, /** @type {any} */ y) => (y.left_closed < x.left_closed ? y : x));
  if (worstOne && Math.abs(worstOne.entered - first.left_closed) < 1) return null;
  const [at, calls, failures, slow] = first.opened ?? [];
  const evidence = at == null || Math.abs(at - first.left_closed) > 1 ? "" : failures ? `: ${failures} of the last ${calls} calls had failed` : `: ${slow} of the last ${calls} calls had been slow`;
  return html`<br />Not closed since ${clock(first.left_closed)}, for ${duration(serverNow() - first.left_closed)}${ill.length > 1 ? `, first on ${first.id}` : ""}${evidence}.`;
}

/** @param {{b: any, detail: any}} props */
function Numbers({ b }) {
  tick.value;
  const here = b.processes.filter((/** @type {any} */ p) => !p.gone);
  const waiting = here.filter((/** @type {any} */ p) => p.next_trial != null).sort((/** @type {any} */ a, /** @type {any} */ c) => a.next_trial - c.next_trial)[0];
  const left = waiting ? waiting.next_trial - serverNow() : null;
  const trying = here.filter((/** @type {any} */ p) => p.state === "half_open").length;
  const refused = b.totals[1];
  const last = here.find((/** @type {any} */ p) => p.step > 0) ?? here[0];
  return html`<section class="card numbers six" aria-label="What it costs">
    <div><b>${rate(b.asked_rate)}</b><span>calls asked for</span></div>
    <div><b>${rate(b.let_rate)}</b><span>let through${b.state === "half_open" ? ": trial calls" : ""}</span></div>
    <div><b>${rate(b.refused_rate)}</b><span>refused, to the fallback if there is one</span></div>
    <div><b>≈ ${grouped(b.estimate ?? 0)}</b><span>of ${grouped(refused)} refused would have succeeded, ${percent(refused ? b.estimate / refused : null)}</span></div>
    <div>${trying
      ? html`<b>now</b><span>trial calls are being made${here.length > 1 ? ` by ${plural(trying, "process")}` : ""}</span>`
      : html`<b>${left == null ? "–" : left > 0 ? countdown(left) : "now"}</b><span>${left == null ? "no trial is due" : `to the next trial${here.length > 1 ? `, ${waiting.id}` : ""}`}</span>`}</div>
    <div><b>${last?.wait ? duration(last.wait) : "–"}</b><span>${last?.wait ? `${b.state === "closed" ? "the last wait" : "wait"}, step ${last.step}` : "no wait yet"}</span></div></section>`;
}

/** @param {{b: any}} props */
function Processes({ b }) {
  tick.value;
  const operator = session.value.role === "operator";
  const now = serverNow();
  return html`<section class="card" aria-label="Processes"><h2>Processes</h2><div class="scroll" tabindex="0" role="group" aria-label="Table of processes, scrolls sideways"><table>
    <thead><tr><th>Process</th><th>State</th><th class="n">Not closed for</th><th class="n">Next trial</th><th class="n">Step</th><th>Window</th><th class="n">Refused/s</th><th>Last error</th><th class="n">Data age</th>${operator && html`<th class="n">Actions</th>`}</tr></thead>
    <tbody>${b.processes.map((/** @type {any} */ p) => {
      const process = picture.value?.processes.get(p.id);
      const old = dataAge(process);
      return html`<tr key=${p.id} class=${p.gone ? "dimmed-row" : ""}><td><b>${p.id}</b></td><td><${Badge} state=${p.gone ? "gone" : p.state} />${p.gone && html` <span class="small muted">last seen ${word(p.state)}</span>`}</td>
        <td class="n">${p.state === "closed" || p.gone ? "–" : duration(now - (p.left_closed ?? p.entered))}</td><td class="n">${p.state === "half_open" && !p.gone ? "now" : p.next_trial == null || p.gone ? "–" : p.next_trial > now ? countdown(p.next_trial - now) : "now"}</td><td class="n">${p.step || "–"}</td>
        <td>${windowWords(p, b.settings)}</td><td class="n">${p.refused_rate == null ? "–" : rate(p.refused_rate).replace("/s", "")}</td><td class="mono">${p.last_error ?? "–"}</td><td class="n">${duration(old)}</td>
        ${operator && html`<td class="n">${process?.channel ? html`<select class="small actions-of" aria-label=${`Actions for ${p.id}`} value="" onChange=${(/** @type {any} */ e) => { const action = e.target.value; e.target.value = ""; if (action === "try_now") void tryNow(b, p.id); else if (action) asked.value = { kind: "breaker", name: b.name, action, only: p.id }; }}>
          <option value="">…</option>${Object.entries(ACTIONS).filter(([action]) => action !== "try_now" || p.state === "open").map(([action, about]) => html`<option value=${action}>${about.button}</option>`)}</select>` : "–"}</td>`}</tr>`;
    })}</tbody></table></div></section>`;
}

/** @param {any} p @param {any} s */
function windowWords(p, s) {
  const [calls, failures] = p.window;
  if (p.state === "half_open") return `trials: ${p.trials.filter((/** @type {string} */ t) => t.startsWith("succeeded")).length} ok, ${p.trials.filter((/** @type {string} */ t) => t.startsWith("failed")).length} failed`;
  if (/open$/.test(p.state) && p.opened) return `frozen, ${percent(p.opened[2] / Math.max(p.opened[1], 1))}`;
  if (p.state === "disabled") return "not recorded";
  return calls < s.minimum_calls ? `${calls} of ${s.minimum_calls} calls, ${failures} failed` : `${failures} of ${calls} failed`;
}

const root = document.getElementById("page");
if (root) {
  root.textContent = "";
  render(html`<${Page} />`, root);
  start().catch((error) => say(String(error)));
}

