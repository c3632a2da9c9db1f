// One time axis: failure rate while closed, trial rounds, refusals, a lane for each process, and what happened.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, percent, rate } from "./format.js";
import { html } from "./html.js";
import { tone, word } from "./shapes.js";
import { picture, serverNow } from "./store.js";

const WIDE = 1060, LEFT = 74, RIGHT = WIDE - 58, HIGH = 92, TOP = 8, LANE = 18;
const MOST_LANES = 10;

/** @param {{b: any, detail: any, seconds: number, setSeconds: (n: number) => void}} props */
export function Timeline({ b, detail, seconds, setSeconds }) {
  const events = marks(b.name, seconds);
  return html`<section class="card timeline" aria-label="Timeline"><div class="line"><h2>Last ${{ 120: "2 minutes", 900: "15 minutes", 3600: "hour" }[seconds] ?? "6 hours"}</h2>
    <select aria-label="Time range" value=${String(seconds)} onChange=${(/** @type {any} */ e) => setSeconds(Number(e.target.value))}><option value="120">2 min</option><option value="900">15 min</option><option value="3600">1 h</option><option value="21600">6 h</option></select></div>
    ${!detail?.timeline ? html`<p class="muted">Loading the past …</p>` : html`<div class="scroll" tabindex="0" role="group" aria-label="Time axis, scrolls sideways">
      ${seconds > 900 && html`<${Long} timeline=${detail.timeline} seconds=${seconds} />`}
      <${Picture} b=${b} detail=${detail} seconds=${seconds} events=${events} chart=${seconds <= 900} /></div>`}
    <div class="key"><span><i class="k-ok" />closed</span><span><i class="k-f" />open</span><span><i class="k-half" />half-open</span>${b.settings.ramp_seconds != null && html`<span><i class="k-recovering" />recovering</span>`}<span><i class="k-forced" />forced open</span><span><i class="k-off" />other orders</span><span><i class="k-ring" />share of trial calls that failed</span><span><i class="k-area" />refused, right scale</span></div>
  </section>`;
}

/** @param {string} name @param {number} seconds */
function marks(name, seconds) {
  const after = serverNow() - seconds;
  return (picture.value?.events ?? [])
    .filter((e) => e.at >= after && (e.kind === "mark" || (e.kind === "audit" && e.breaker === name)))
    .map((e) => ({ at: e.at, text: e.kind === "mark" ? e.text : `${e.entry.action.replace("_", " ")} by ${e.entry.who}` }))
    .slice(-8);
}

/** @param {any} props */
function Picture({ b, detail, seconds, events, chart }) {
  const end = serverNow(), begin = end - seconds;
  const X = (/** @type {number} */ at) => LEFT + (Math.min(Math.max(at - begin, 0), seconds) / seconds) * (RIGHT - LEFT);
  const lanes = b.processes.slice(0, MOST_LANES);
  const top = chart ? TOP + HIGH + 42 : 40;
  const bottom = top + lanes.length * LANE;
  const step = seconds / 7.5;
  const grid = [];
  for (let at = Math.ceil(begin / step) * step; at < end; at += step) grid.push(at);
  return html`<svg viewBox="0 0 ${WIDE} ${bottom + 22}" width="100%" role="img" aria-label=${`The last ${seconds / 60} minutes of ${b.name}; the table of processes and the list of events say the same`}>
    ${grid.map((at) => html`<line x1=${X(at)} x2=${X(at)} y1="6" y2=${bottom} stroke="var(--line2)" /><text class="t3" x=${X(at)} y=${bottom + 15} text-anchor="middle">${clock(at, seconds < 900)}</text>`)}
    ${chart && html`<${Chart} b=${b} detail=${detail} X=${X} begin=${begin} />`}
    ${lanes.map((/** @type {any} */ p, /** @type {number} */ i) => html`<text class="t2" x=${LEFT - 8} y=${top + i * LANE + 13} text-anchor="end">${p.id.length > 11 ? `${p.id.slice(0, 10)}…` : p.id}</text>
      ${segments(p, detail.moves[p.id] ?? [], begin, end).map(([from, to, state]) => html`<rect x=${X(from)} y=${top + i * LANE + 2} width=${Math.max(X(to) - X(from) - 0.6, 1.6)} height=${LANE - 4} rx="1.5" fill="var(--${tone(state)})" opacity=${state === "closed" ? 0.32 : 1}><title>${p.id} ${word(state)} from ${clock(from)}</title></rect>`)}`)}
    ${b.processes.length > lanes.length && html`<text class="t3" x=${LEFT} y=${bottom + 15}>and ${b.processes.length - lanes.length} more</text>`}
    ${events.map((/** @type {any} */ e, /** @type {number} */ i) => {
      const x = X(e.at), right = x > (LEFT + RIGHT) / 2;
      const y = (chart ? TOP + HIGH + 16 : 14) + (i % 2) * 15;
      return html`<line x1=${x} x2=${x} y1=${y - 8} y2=${bottom} stroke="var(--accent)" stroke-width="1.5" /><text x=${x + (right ? -5 : 5)} y=${y} text-anchor=${right ? "end" : "start"} style=${{ fill: "var(--accent)" }}>${e.text.slice(0, 42)}</text>`;
    })}</svg>`;
}

/** @param {any} props */
function Chart({ b, detail, X, begin }) {
  const t = detail.timeline;
  const most = nice(Math.max(1, ...t.refused.map((/** @type {any} */ v) => v ?? 0)));
  const Y = (/** @type {number} */ share) => TOP + HIGH * (1 - Math.min(Math.max(share, 0), 1));
  const limit = b.settings.failure_rate_threshold;
  const at = t.time.map((/** @type {number} */ time) => X(time));
  const area = t.refused.map((/** @type {number} */ v, /** @type {number} */ i) => `${at[i].toFixed(1)} ${Y(v / most).toFixed(1)}`);
  const any = t.refused.some((/** @type {number} */ v) => v > 0);
  return html`${[0, 0.5, 1].map((v) => html`<text class="t3" x=${LEFT - 8} y=${Y(v) + 4} text-anchor="end">${v * 100} %</text><text class="t3" x=${RIGHT + 8} y=${Y(v) + 4}>${rate(v * most)}</text>`)}
    ${any && area.length > 1 && html`<path d=${`M${at[0]} ${Y(0)}L${area.join("L")}L${at[at.length - 1]} ${Y(0)}z`} fill="var(--off)" opacity=".28" />`}
    ${limit != null && html`<line x1=${LEFT} x2=${RIGHT} y1=${Y(limit)} y2=${Y(limit)} stroke="var(--ink2)" stroke-dasharray="5 4" /><text class="t3" x=${LEFT + 6} y=${Y(limit) - 5}>limit for failures, ${percent(limit)}</text>`}
    ${pieces(at, t.failed, Y).map((points) => html`<polyline fill="none" stroke="var(--open)" stroke-width="2" points=${points} />`)}
    ${rounds(detail.moves, begin).map(([when, share]) => html`<circle cx=${X(when)} cy=${Y(share)} r="4" fill="var(--card)" stroke="var(--open)" stroke-width="2"><title>${percent(share)} of the trial calls failed at ${clock(when)}</title></circle>`)}`;
}

/** The line breaks where nothing was closed. @param {number[]} at @param {(number | null)[]} values @param {(n: number) => number} Y */
function pieces(at, values, Y) {
  const found = [];
  let piece = [];
  for (let i = 0; i <= values.length; i++) {
    const value = values[i];
    if (value == null) { if (piece.length) found.push(piece.join(" ")); piece = []; } else piece.push(`${at[i].toFixed(1)},${Y(value).toFixed(1)}`);
  }
  return found;
}

/** @param {Record<string, any[]>} moves @param {number} begin */
function rounds(moves, begin) {
  return Object.values(moves).flat().filter((m) => m[0] >= begin && m[1] === "half_open" && m[6][0] > 0).map((m) => [m[0], m[6][1] / m[6][0]]);
}

/** @param {any} p @param {any[]} moves @param {number} begin @param {number} end @returns {[number, number, string][]} */
function segments(p, moves, begin, end) {
  /** @type {[number, number, string][]} */
  const found = [];
  let from = begin, state = moves.length ? moves[0][1] : p.state;
  if (!moves.length) from = p.state === "closed" ? begin : Math.max(begin, p.entered);
  for (const move of moves) {
    if (move[0] > from) found.push([from, move[0], state]);
    from = Math.max(move[0], begin);
    state = move[2];
  }
  found.push([from, end, p.gone ? "gone" : state]);
  return found;
}

const nice = (/** @type {number} */ value) => { const unit = 10 ** Math.floor(Math.log10(value)); return Math.ceil(value / unit) * unit; };

/** Long ranges have hundreds of points: uPlot draws them on a canvas. @param {{timeline: any, seconds: number}} props */
function Long({ timeline, seconds }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const at = place.current;
    if (!at) return undefined;
    const colours = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => colours.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("ink2"), grid: { stroke: colour("line2"), width: 1 }, ticks: { show: false } };
    const now = serverNow();
    const plot = new uPlot({
      width: Math.max(at.clientWidth, 700), height: 190, cursor: { show: false }, tzDate: (/** @type {number} */ ts) => uPlot.tzDate(new Date(ts * 1000), "UTC"),
      scales: { x: { time: true, range: [now - seconds, now] }, share: { range: [0, 1] }, rate: { range: (/** @type {any} */ _u, /** @type {number} */ _a, /** @type {number} */ max) => [0, max || 1] } },
      series: [{}, { scale: "rate", stroke: colour("off"), fill: `${colour("off")}44` }, { scale: "share", stroke: colour("open"), width: 2 }],
      axes: [axis, { ...axis, scale: "rate", side: 1, values: (/** @type {any} */ _u, /** @type {number[]} */ v) => v.map((one) => rate(one)) }, { ...axis, scale: "share", values: (/** @type {any} */ _u, /** @type {number[]} */ v) => v.map((one) => percent(one)) }],
    }, [timeline.time, timeline.refused, timeline.failed], at);
    return () => plot.destroy();
  }, [timeline, seconds]);
  return html`<div ref=${place} role="img" aria-label="Failure rate while closed and calls refused" />`;
}
