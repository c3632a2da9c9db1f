// One time axis: failure rate while closed, trial rounds, refusals, a lane for each process, and what happened.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock, percent, rate } from "./format.js";
import { html } from "./html.js";
import { RANGES, chooseRange, place } from "./place.js";
import { tone, word } from "./shapes.js";
import { dataAge, picture, serverNow } from "./store.js";

const HIGH = 110, TOP = 10, LANE = 18;
const MOST_LANES = 10;
/** Up to here the axis is drawn with its trials and refusals; longer ones have hundreds of points. */
const SHORT = 900;
/** Moves that a breaker remembers: where there are as many, what was before the first one is not known. */
const HISTORY = 100;
const STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/** @param {{b: any, detail: any, seconds: number}} props */
export function Timeline({ b, detail, seconds }) {
  const [box, wide] = useWidth();
  const title = RANGES.find(([one]) => one === seconds)?.[2] ?? "";
  return html`<section class="card timeline" aria-label="Timeline"><div class="line"><h2>${title}</h2>
    <select aria-label="Time range" value=${String(place.value.range ?? "")} onChange=${(/** @type {any} */ e) => chooseRange(Number(e.target.value) || null)}><option value="">the range that fits</option>${RANGES.map(([one, text]) => html`<option value=${String(one)}>${text}</option>`)}</select></div>
    <div ref=${box} class="axis">${!detail?.timeline ? html`<p class="muted">Loading the past …</p>` : html`
      ${seconds > SHORT && html`<${Long} timeline=${detail.timeline} seconds=${seconds} wide=${wide} />`}
      <${Picture} b=${b} detail=${detail} seconds=${seconds} wide=${wide} title=${title} />`}</div>
    <${Key} b=${b} detail=${detail} />
  </section>`;
}

/** What the colours mean: always the three usual states, the others where they occur. @param {{b: any, detail: any}} props */
function Key({ b, detail }) {
  const states = new Set([...b.processes.map((/** @type {any} */ p) => p.state), ...Object.values(detail?.moves ?? {}).flat().map((m) => m[2])]);
  const other = ["disabled", "metrics_only"].some((state) => states.has(state));
  return html`<div class="key"><span><i class="k-ok" />closed</span><span><i class="k-f" />open</span><span><i class="k-half" />half-open</span>${(b.settings.ramp_seconds != null || states.has("recovering")) && html`<span><i class="k-recovering" />recovering</span>`}${states.has("forced_open") && html`<span><i class="k-forced" />forced open</span>`}${other && html`<span><i class="k-off" />forced closed or observed</span>`}
    <span><i class="k-none" />nothing known</span><span><i class="k-line" />failure rate while closed</span><span><i class="k-ring" />share of trial calls that failed</span><span><i class="k-area" />refused, right scale</span></div>`;
}

/** The width at hand, so that text is drawn as large as it is meant. @returns {[any, number]} */
function useWidth() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [wide, setWide] = useState(0);
  useEffect(() => {
    const at = box.current;
    if (!at) return undefined;
    const observer = new ResizeObserver(() => setWide(Math.floor(at.clientWidth)));
    observer.observe(at);
    setWide(Math.floor(at.clientWidth));
    return () => observer.disconnect();
  }, []);
  return [box, Math.max(wide, 300)];
}

/** @param {string} name @param {number} seconds */
function marks(name, seconds) {
  const after = serverNow() - seconds;
  return (picture.value?.events ?? [])
    .filter((e) => e.at >= after && (e.kind === "mark" || (e.kind === "audit" && e.breaker === name)))
    .map((e) => ({ at: e.at, text: e.kind === "mark" ? e.text : `${e.entry.action.replace("_", " ")} by ${e.entry.who}` }))
    .slice(-8);
}

/** Where the axis is, on a page so wide. @param {number} wide */
function edges(wide) {
  const narrow = wide < 560;
  return { left: narrow ? 58 : 78, right: wide - (narrow ? 40 : 54), narrow };
}

/** @param {any} props */
function Picture({ b, detail, seconds, wide, title }) {
  const end = serverNow(), begin = end - seconds;
  const { left, right, narrow } = edges(wide);
  const X = (/** @type {number} */ at) => left + (Math.min(Math.max(at - begin, 0), seconds) / seconds) * (right - left);
  const chart = seconds <= SHORT;
  const events = marks(b.name, seconds);
  const lanes = b.processes.slice(0, MOST_LANES).map((/** @type {any} */ p) => ({ p, known: segments(p, detail.moves[p.id] ?? [], begin, end) }));
  const from = Math.min(end, ...lanes.flatMap((/** @type {any} */ lane) => lane.known.map((/** @type {any} */ one) => one[0])));
  const top = TOP + (chart ? HIGH : 0) + (events.length ? 40 : 14);
  const bottom = top + lanes.length * LANE;
  const step = STEPS.find((one) => (one / seconds) * (right - left) >= (narrow ? 66 : 84)) ?? 3600;
  const grid = [];
  for (let at = Math.ceil(begin / step) * step; at < end; at += step) grid.push(at);
  const most = narrow ? 7 : 11;
  return html`<svg viewBox="0 0 ${wide} ${bottom + 22}" width=${wide} height=${bottom + 22} role="img" aria-label=${`${title} of ${b.name}; the table of processes and the list of events say the same`}>
    <defs><pattern id="unknown" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line y2="7" stroke="var(--line)" stroke-width="2" /></pattern></defs>
    ${grid.map((at) => html`<line x1=${X(at)} x2=${X(at)} y1="6" y2=${bottom} stroke="var(--line2)" /><text class="t3" x=${X(at)} y=${bottom + 15} text-anchor="middle">${clock(at, step < 60)}</text>`)}
    ${X(from) - left > 2 && html`<rect x=${left} y=${TOP} width=${X(from) - left} height=${bottom - TOP} fill="url(#unknown)" opacity=".6" /><${Unknown} x=${left} wide=${X(from) - left} y=${top + 13} from=${from} />`}
    ${chart && html`<${Chart} b=${b} detail=${detail} X=${X} begin=${begin} left=${left} right=${right} narrow=${narrow} />`}
    ${lanes.map((/** @type {any} */ { p, known }, /** @type {number} */ i) => html`<text class="t2" x=${left - 8} y=${top + i * LANE + 13} text-anchor="end">${p.id.length > most ? `${p.id.slice(0, most - 1)}…` : p.id}</text>
      ${known.map((/** @type {any} */ [since, till, state]) => html`<rect x=${X(since)} y=${top + i * LANE + 2} width=${Math.max(X(till) - X(since) - 0.6, 1.6)} height=${LANE - 4} rx="1.5" fill=${state === "gone" ? "url(#unknown)" : `var(--${tone(state)})`} stroke=${state === "gone" ? "var(--off)" : "none"} stroke-dasharray="3 3" opacity=${state === "closed" ? 0.32 : 1}><title>${p.id} ${word(state)} from ${clock(since)}</title></rect>`)}`)}
    ${b.processes.length > lanes.length && html`<text class="t3" x="0" y=${bottom + 15}>and ${b.processes.length - lanes.length} more</text>`}
    ${events.map((/** @type {any} */ e, /** @type {number} */ i) => {
      const x = X(e.at), after = x > (left + right) / 2;
      const y = TOP + (chart ? HIGH : 0) + 16 + (i % 2) * 15;
      return html`<line x1=${x} x2=${x} y1=${y - 8} y2=${bottom} stroke="var(--accent)" stroke-width="1.5" /><text x=${x + (after ? -5 : 5)} y=${y} text-anchor=${after ? "end" : "start"} style=${{ fill: "var(--accent)" }}>${e.text.slice(0, narrow ? 22 : 42)}</text>`;
    })}</svg>`;
}

/** @param {{x: number, wide: number, y: number, from: number}} props */
function Unknown({ x, wide, y, from }) {
  const text = `nothing known before ${clock(from)}`;
  return wide > text.length * 6.4 ? html`<text class="t2 apart" x=${x + wide / 2} y=${y} text-anchor="middle">${text}</text>` : null;
}

/** @param {any} props */
function Chart({ b, detail, X, begin, left, right, narrow }) {
  const t = detail.timeline;
  const most = nice(Math.max(1, ...t.refused.map((/** @type {any} */ v) => v ?? 0)));
  const Y = (/** @type {number} */ share) => TOP + HIGH * (1 - Math.min(Math.max(share, 0), 1));
  const limit = b.settings.failure_rate_threshold;
  const at = t.time.map((/** @type {number} */ time) => X(time));
  const area = t.refused.map((/** @type {number} */ v, /** @type {number} */ i) => `${at[i].toFixed(1)} ${Y(v / most).toFixed(1)}`);
  const any = t.refused.some((/** @type {number} */ v) => v > 0);
  const words = narrow ? `limit ${percent(limit)}` : `limit for failures, ${percent(limit)}`;
  return html`${[0, 0.5, 1].map((v) => html`<text class="t3" x=${left - 8} y=${Y(v) + 4} text-anchor="end">${v * 100} %</text><text class="t3" x=${right + 6} y=${Y(v) + 4}>${rate(v * most)}</text>`)}
    <line x1=${left} x2=${right} y1=${Y(0)} y2=${Y(0)} stroke="var(--line)" />
    ${any && area.length > 1 && html`<path d=${`M${at[0]} ${Y(0)}L${area.join("L")}L${at[at.length - 1]} ${Y(0)}z`} fill="var(--off)" opacity=".28" />`}
    ${limit != null && html`<line x1=${left} x2=${right} y1=${Y(limit)} y2=${Y(limit)} stroke="var(--ink2)" stroke-dasharray="5 4" /><text class="t3 apart" x=${left + 6} y=${Y(limit) - 5}>${words}</text>`}
    ${pieces(at, t.failed, Y).map((points) => html`<polyline fill="none" stroke="var(--open)" stroke-width="2" stroke-linejoin="round" points=${points} />`)}
    ${openings(detail.moves, begin).map(([when, share]) => html`<rect x=${X(when) - 4} y=${Y(share) - 4} width="8" height="8" fill="var(--open)"><title>opened at ${clock(when)}: ${percent(share)} of the window had failed</title></rect>`)}
    ${rounds(detail.moves, begin).map(([when, share, passed]) => html`<circle cx=${X(when)} cy=${Y(share)} r="4" fill="var(--card)" stroke=${passed ? "var(--closed)" : "var(--open)"} stroke-width="2"><title>${percent(share)} of the trial calls failed at ${clock(when)}</title></circle>`)}`;
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

/** What each opening judged: when, and the share that had failed. @param {Record<string, any[]>} moves @param {number} begin @returns {[number, number][]} */
const openings = (moves, begin) => Object.values(moves).flat().filter((m) => m[0] >= begin && m[1] === "closed" && m[2] === "open" && m[6][0] > 0).map((m) => [m[0], m[6][1] / m[6][0]]);

/** @param {Record<string, any[]>} moves @param {number} begin @returns {[number, number, boolean][]} */
function rounds(moves, begin) {
  return Object.values(moves).flat().filter((m) => m[0] >= begin && m[1] === "half_open" && m[6][0] > 0).map((m) => [m[0], m[6][1] / m[6][0], m[2] !== "open"]);
}

/** What is known of a process: from, to, state. Before it was made, and after it was last heard of, nothing is.
 *  @param {any} p @param {any[]} moves @param {number} begin @param {number} end @returns {[number, number, string][]} */
function segments(p, moves, begin, end) {
  /** @type {[number, number, string][]} */
  const found = [];
  const whole = moves.length > 0 && moves.length < HISTORY;
  let from = moves.length === 0 ? p.entered : whole ? (p.born ?? moves[0][0]) : moves[0][0];
  let state = moves.length ? moves[0][1] : p.state;
  for (const move of moves) {
    found.push([from, move[0], state]);
    [from, state] = [move[0], move[2]];
  }
  const heard = p.gone ? end - dataAge(picture.value?.processes.get(p.id)) : end;
  found.push([from, Math.max(heard, from), state]);
  if (p.gone) found.push([heard, end, "gone"]);
  return found.filter(([, till]) => till > begin).map(([since, till, what]) => [Math.max(since, begin), till, what]);
}

const nice = (/** @type {number} */ value) => { const unit = 10 ** Math.floor(Math.log10(value)); return Math.ceil(value / unit) * unit; };

/** Long ranges have hundreds of points: uPlot draws them on a canvas. @param {{timeline: any, seconds: number, wide: number}} props */
function Long({ timeline, seconds, wide }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const at = place.current;
    if (!at) return undefined;
    const colours = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => colours.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("ink2"), grid: { stroke: colour("line2"), width: 1 }, ticks: { show: false } };
    const now = serverNow();
    const { left, right } = edges(wide);
    const plot = new uPlot({
      width: wide, height: 150, padding: [8, 0, 8, 0], cursor: { show: false },
      scales: { x: { time: true, range: [now - seconds, now] }, share: { range: [0, 1] }, rate: { range: (/** @type {any} */ _u, /** @type {number} */ _a, /** @type {number} */ max) => [0, max || 1] } },
      series: [{}, { scale: "rate", stroke: colour("off"), fill: `${colour("off")}44` }, { scale: "share", stroke: colour("open"), width: 2 }],
      axes: [{ show: false }, { ...axis, scale: "rate", side: 1, size: wide - right, values: (/** @type {any} */ _u, /** @type {number[]} */ v) => v.map((one) => rate(one)) }, { ...axis, scale: "share", size: left, values: (/** @type {any} */ _u, /** @type {number[]} */ v) => v.map((one) => percent(one)) }],
    }, [timeline.time, timeline.refused, timeline.failed], at);
    return () => plot.destroy();
  }, [timeline, seconds, wide]);
  return html`<div ref=${place} role="img" aria-label="Failure rate while closed and calls refused" />`;
}
