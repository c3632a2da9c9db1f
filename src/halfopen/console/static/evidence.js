// Is it getting better, and was it right to open: rounds of trial calls, rates against limits, the window call by call.
import { clock, percent, plural } from "./format.js";
import { html } from "./html.js";

const MOST_ROUNDS = 22;
const MOST_HIGH = 6;

const narrow = () => matchMedia("(max-width: 620px)").matches;

/** @param {{b: any, detail: any}} props */
export function Evidence({ b, detail }) {
  const s = b.settings;
  const worst = b.processes.find((/** @type {any} */ p) => p.id === b.worst) ?? b.processes[0];
  if (!worst) return null;
  const shut = /open$/.test(worst.state) && worst.opened != null;
  const [calls, failures, slow] = shut ? worst.opened.slice(1) : worst.window;
  const judged = calls > 0 && (shut || calls >= s.minimum_calls);
  const when = shut ? "when it opened" : "now";
  return html`<section class="card better" aria-label="Evidence"><h2>${b.state === "closed" ? "How near is it to opening?" : "Is it getting better?"}</h2>
    <${Rounds} b=${b} moves=${detail?.moves ?? {}} />
    ${s.failure_rate_threshold != null && html`<${Bar} title=${`Failure rate ${when}`} share=${calls ? failures / calls : null} limit=${s.failure_rate_threshold} tone="open" judged=${judged}
      left=${`${failures} of ${plural(calls, "call")}, minimum ${s.minimum_calls}`} />`}
    ${s.slow_call_rate_threshold != null && s.slow_call_duration != null && html`<${Bar} title=${`Slow calls ${when}, over ${s.slow_call_duration} s`} share=${calls ? slow / calls : null} limit=${s.slow_call_rate_threshold} tone="amber" judged=${judged}
      left=${`${slow} of ${plural(calls, "call")}`} />`}
    <${Window} worst=${worst} window=${detail?.windows?.[worst.id]} shut=${shut} s=${s} />
  </section>`;
}

/** @param {any} props */
function Bar({ title, share, limit, tone, judged, left }) {
  const over = share != null && judged && share >= limit;
  const filled = Math.min((share ?? 0) * 100, 100);
  return html`<div><div class="line"><span>${title}</span><b style=${{ color: over ? "var(--open)" : "inherit" }}>${percent(share)}${over ? ", limit reached" : ""}</b></div>
    <svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true"><rect width=${filled} height="12" fill="var(--${tone})" /><rect x=${Math.min(limit * 100, 99.5)} width=".7" height="12" fill="var(--ink)" /></svg>
    <div class="line small muted"><span>${left}</span><span>limit ${percent(limit)}</span></div></div>`;
}

/** Each finished round as a column: what is known is how many failed, were slow, were fine. @param {{b: any, moves: any}} props */
function Rounds({ b, moves }) {
  const here = b.processes.filter((/** @type {any} */ p) => !p.gone);
  const since = Math.min(...here.map((/** @type {any} */ p) => p.left_closed ?? Infinity));
  const all = Object.values(moves).flat().filter((/** @type {any} */ m) => m[1] === "half_open" && m[6][0] > 0 && (since === Infinity || m[0] >= since - 1));
  all.sort((a, b_) => a[0] - b_[0]);
  const present = here.filter((/** @type {any} */ p) => p.state === "half_open").map((/** @type {any} */ p) => p.trials);
  const columns = [
    ...all.map((m) => [...Array(m[6][0] - m[6][1] - m[6][2] + m[6][3]).fill("ok"), ...Array(m[6][2] - m[6][3]).fill("slow"), ...Array(m[6][1]).fill("failed")]),
    ...present.map((/** @type {string[]} */ trials) => trials.filter((t) => t !== "free").map((t) => (t === "succeeded" ? "ok" : t.startsWith("succeeded") ? "slow" : t.startsWith("failed") ? "failed" : "running"))),
  ].slice(-MOST_ROUNDS);
  const flat = columns.flat();
  const good = flat.filter((t) => t === "ok" || t === "slow").length;
  const high = Math.min(Math.max(3, ...columns.map((column) => column.length)), MOST_HIGH);
  const title = since === Infinity ? "Trial calls of the last rounds" : `Trial calls since it opened${b.processes.length > 1 ? ", all processes" : ""}`;
  return html`<div><div class="line"><span>${title}</span><b>${flat.length ? `${good} of ${flat.length} succeeded` : "none yet"}</b></div>
    <div class="rounds">${columns.length > 0 && html`<svg width=${columns.length * 17} height=${high * 16 + 2} role="img" aria-label=${`${good} of ${plural(flat.length, "trial call")} succeeded in ${plural(columns.length, "round")}`}>
      ${columns.map((column, i) => column.slice(0, high).map((/** @type {string} */ kind, /** @type {number} */ j) => html`<g transform="translate(${i * 17} ${(high - 1 - j) * 16})"><${Trial} kind=${kind} /></g>`))}</svg>`}</div>
    <p class="key"><span>Each column is a half-open period.</span><span><svg width="11" height="11" aria-hidden="true"><circle cx="5.5" cy="5.5" r="5.2" fill="var(--closed)" /></svg> ok</span><span><svg width="11" height="11" aria-hidden="true"><circle cx="5.5" cy="5.5" r="5.2" fill="var(--half)" /></svg> ok but slow</span><span><svg width="11" height="11" aria-hidden="true"><rect width="11" height="11" rx="2" fill="var(--open)" /></svg> failed</span></p></div>`;
}

/** @param {{kind: string}} props */
function Trial({ kind }) {
  if (kind === "failed") return html`<rect x="1" y="1" width="12" height="12" rx="2" fill="var(--open)" /><path d="M4 4l6 6m0-6l-6 6" stroke="var(--card)" stroke-width="1.7" />`;
  if (kind === "running") return html`<circle cx="7" cy="7" r="5.4" fill="none" stroke="var(--half)" stroke-width="1.8" stroke-dasharray="3 2" />`;
  return html`<circle cx="7" cy="7" r="6.4" fill="var(--${kind === "slow" ? "half" : "closed"})" /><path d="M3.8 7l2.3 2.5 4-4.6" stroke="var(--card)" stroke-width="1.8" fill="none" />`;
}

/** @param {any} props */
function Window({ worst, window, shut, s }) {
  if (!window) return null;
  const frozen = window.live ? "" : shut ? `, frozen at ${clock(worst.opened[0])}` : ", as it was last";
  if (window.buckets) return html`<${Buckets} worst=${worst} buckets=${window.buckets} frozen=${frozen} s=${s} />`;
  const cells = [...window.cells];
  const count = (/** @type {string} */ kind) => cells.filter((cell) => cell === kind).length;
  const empty = Math.max(Math.min(s.window_calls ?? 0, 100) - cells.length, 0);
  const words = `${count("o")} ok, ${count("s")} slow, ${count("f")} failed, ${count("b")} failed and slow`;
  return html`<div><div class="line"><span>Window of ${worst.id}, oldest first${frozen}</span></div>
    <div class="cells" role="img" aria-label=${words} style=${{ gridTemplateColumns: `repeat(${Math.min(cells.length + empty, narrow() ? 25 : 50)}, 1fr)` }}>${cells.map((cell) => html`<i class=${cell} />`)}${Array(empty).fill(0).map(() => html`<i class="e" />`)}</div>
    <div class="key"><span><i class="k-ok" />ok ${count("o")}</span><span><i class="k-s" />slow ${count("s")}</span><span><i class="k-f" />failed ${count("f")}</span><span><i class="k-b" />failed and slow ${count("b")}</span></div></div>`;
}

/** @param {any} props */
function Buckets({ worst, buckets, frozen, s }) {
  const top = Math.max(1, ...buckets.map((/** @type {number[]} */ b) => b[0]));
  return html`<div><div class="line"><span>Window of ${worst.id}, ${s.window_seconds} s, calls in steps${frozen}</span></div>
    <svg class="bar" viewBox=${`0 0 ${Math.max(buckets.length, 1) * 10} 40`} preserveAspectRatio="none" height="40" role="img" aria-label=${`${buckets.length} steps of time`} style=${{ height: "40px" }}>
      ${buckets.map((/** @type {number[]} */ [calls, failures], /** @type {number} */ i) => html`<rect x=${i * 10 + 0.5} width="9" y=${40 - (40 * calls) / top} height=${(40 * calls) / top} fill="var(--closed)" opacity=".45" /><rect x=${i * 10 + 0.5} width="9" y=${40 - (40 * failures) / top} height=${(40 * failures) / top} fill="var(--open)" />`)}</svg>
    <div class="key"><span><i class="k-ok" />calls</span><span><i class="k-f" />failed</span></div></div>`;
}
