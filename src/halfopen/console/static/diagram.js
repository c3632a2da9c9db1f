// The state machine with one token for each process; the present states are lit.
import { countdown, often, percent, plural } from "./format.js";
import { html } from "./html.js";
import { Badge, STATES, WORDS, tone } from "./shapes.js";
import { serverNow, tick } from "./store.js";

const LARGE = 4, ONE_ROW = 6, MOST_TOKENS = 12;
/** Height below which a box has room for two rows of tokens only if they begin higher up. */
const LOW = 110;
const ORDERED = ["forced_open", "disabled", "metrics_only"];

/** @param {{b: any, moves: any}} props */
export function Diagram({ b, moves }) {
  tick.value;
  const here = b.processes.filter((/** @type {any} */ p) => !p.gone);
  const inState = (/** @type {string} */ state) => here.filter((/** @type {any} */ p) => p.state === state);
  const counts = STATES.map((state) => [state, inState(state).length]).filter(([, n]) => n);
  const words = counts.map(([state, n]) => `${plural(/** @type {number} */ (n), "process")} ${WORDS[/** @type {string} */ (state)].toLowerCase()}`).join(", ");
  const s = b.settings;
  const ramp = s.ramp_seconds != null || inState("recovering").length > 0;
  const count = (/** @type {string} */ from, /** @type {string} */ to) => moves[`${from}>${to}`] ?? 0;
  const waits = inLines((s.wait ?? "").replace(/(\d) s\b/g, "$1\u00a0s"), 18).slice(0, 3);
  const ordered = here.filter((/** @type {any} */ p) => ORDERED.includes(p.state));
  return html`<section class="card diagram" aria-label="State diagram"><h2>${here.length > 1 ? "State diagram, one token for each process" : "State diagram"}</h2>
    <svg class="big" viewBox="0 0 600 372" width="100%" role="img" aria-label=${words || "no process is left"}>
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0l8 4-8 4z" fill="var(--ink2)" /></marker></defs>
      <${Arrow} d="M176 66 H394" />
      ${rules(s).map((line, i) => html`<text x="285" y=${38 + i * 16 - (rules(s).length - 1) * 8} text-anchor="middle">${line}</text>`)}
      <text x="285" y="85" text-anchor="middle" class="t3">${often(count("closed", "open"))} in 15 min</text>
      <${Arrow} d="M482 150 C482 206 460 246 424 256" />
      <text x="488" y="186">wait over</text>${waits.map((line, i) => html`<text x="488" y=${202 + 15 * i} class="t2">${line}</text>`)}<text x="488" y=${203 + 15 * waits.length} class="t3">${often(count("open", "half_open"))}</text>
      <${Arrow} d="M352 234 C354 196 368 158 396 132" />
      <text x="346" y="180" text-anchor="end">${trialsFail(s)[0]}</text><text x="346" y="196" text-anchor="end">${trialsFail(s)[1]}</text><text x="346" y="213" text-anchor="end" class="t3">${often(count("half_open", "open"))}</text>
      ${ramp
        ? html`<${Arrow} d="M192 312 H182" /><${Arrow} d="M92 260 V154" /><text x="100" y="200">ramp over</text><text x="100" y="217" class="t3">${often(count("recovering", "closed"))}</text>
          <${Box} x=${8} y=${262} w=${172} h=${102} state="recovering" lit=${inState("recovering").length} sub=${rampSub(inState("recovering"), s)} tokens=${inState("recovering")} />`
        : html`<${Arrow} d="M192 308 C134 302 94 238 92 154" /><text x="8" y="236">${trialsPass(s)[0]}</text><text x="8" y="252">${trialsPass(s)[1]}</text><text x="8" y="269" class="t3">${often(count("half_open", "closed"))}</text>`}
      <${Box} x=${8} y=${14} w=${166} h=${136} state="closed" lit=${inState("closed").length} sub="calls go through" tokens=${inState("closed")} below=${closedBelow(inState("closed"), s)} />
      <${Box} x=${396} y=${14} w=${196} h=${136} state="open" lit=${inState("open").length} sub="calls are refused" tokens=${inState("open")} ring=${true} />
      <${HalfOpen} s=${s} tokens=${inState("half_open")} />
      ${ordered.length > 0 && html`<${Box} x=${436} y=${266} w=${156} h=${98} state=${ordered[0].state} lit=${1} sub=${orderedSub(ordered[0])} tokens=${ordered} />`}
    </svg>
    <ul class="words">${counts.map(([state, n]) => html`<li><${Badge} state=${state} /><span>${plural(/** @type {number} */ (n), "process")}${state === "open" ? `, ${soonest(inState("open"))}` : ""}</span></li>`)}</ul>
    <p class="key legend">Ring: how much of the wait has passed. Below it: time to the next trial.</p>
  </section>`;
}

const shorten = (/** @type {string} */ text, /** @type {number} */ most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Words in lines of at most so many characters. @param {string} text @param {number} most */
function inLines(text, most) {
  /** @type {string[]} */
  const lines = [];
  for (const piece of text.split(" ").filter(Boolean)) {
    const longer = `${lines.at(-1) ?? ""} ${piece}`;
    if (lines.length && longer.length <= most) lines[lines.length - 1] = longer; else lines.push(piece);
  }
  return lines;
}

/** @param {any} s */
function rules(s) {
  const rates = [s.failure_rate_threshold && `failures ≥ ${percent(s.failure_rate_threshold)}`, s.slow_call_rate_threshold && s.slow_call_duration && `slow ≥ ${percent(s.slow_call_rate_threshold)}`].filter(Boolean);
  const lines = rates.length ? [rates.join(" or "), `of at least ${s.minimum_calls} calls`] : [];
  const counted = [s.consecutive_failures && `${s.consecutive_failures} failures in a row`, s.failure_count_threshold && `${s.failure_count_threshold} failures`].filter(Boolean);
  return counted.length ? [...lines, (lines.length ? "or " : "") + counted.join(" or ")] : lines;
}

const trialsFail = (/** @type {any} */ s) => (s.trials_by_rate ? [`${percent(s.trial_failure_rate_threshold)} of`, `${s.trial_calls} trials fail`] : ["a trial call", "fails or is slow"]);
const trialsPass = (/** @type {any} */ s) => (s.trials_by_rate ? ["enough trial", "calls succeed"] : [`all ${s.trial_calls} trial`, "calls succeed"]);
const rampSub = (/** @type {any[]} */ tokens, /** @type {any} */ s) => (tokens.length ? `${percent(tokens[0].admitted_share)} of calls admitted` : `a ramp of ${countdown(s.ramp_seconds ?? 0)}`);
const orderedSub = (/** @type {any} */ p) => (p.ends_at ? `ends in ${countdown(p.ends_at - serverNow())}` : "until removed");
const soonest = (/** @type {any[]} */ open) => `next trial in ${countdown(Math.min(...open.map((p) => p.next_trial ?? Infinity)) - serverNow())}`;

/** @param {any[]} tokens @param {any} s */
function closedBelow(tokens, s) {
  if (tokens.length !== 1) return [];
  const [calls, failures] = tokens[0].window;
  return calls < s.minimum_calls ? [`${plural(calls, "call")}, ${s.minimum_calls - calls} short of`, "the minimum to judge"] : [`${failures} of the last ${calls} failed`];
}

const Arrow = (/** @type {{d: string}} */ { d }) => html`<path class="arrow" d=${d} marker-end="url(#tip)" />`;

/** @param {any} props */
function Box({ x, y, w, h, state, lit, sub, tokens, ring, below = [] }) {
  const c = tone(state);
  return html`<g class=${lit ? "" : "unlit"}><rect class=${lit ? "lit" : ""} x=${x} y=${y} width=${w} height=${h} rx="14" fill="var(--${c}-bg)" stroke="var(--${c})" stroke-width=${lit ? 3 : 1.4} />
    <text x=${x + w / 2} y=${y + 22} text-anchor="middle" style=${{ fontWeight: 700, fontSize: "14px", fill: `var(--${c})` }}>${WORDS[state]}</text>
    <text x=${x + w / 2} y=${y + 39} text-anchor="middle" class="t2">${sub}</text>
    <${Tokens} tokens=${tokens} x=${x + w / 2} y=${y + (h < LOW && tokens.length > ONE_ROW ? 61 : 72)} c=${c} ring=${ring} />
    ${below.map((/** @type {string} */ line, /** @type {number} */ i) => html`<text x=${x + w / 2} y=${y + h - 12 - 15 * (below.length - 1 - i)} text-anchor="middle" class="t3">${line}</text>`)}</g>`;
}

/** @param {any} props */
function Tokens({ tokens, x, y, c, ring }) {
  if (tokens.length > MOST_TOKENS) return html`<text x=${x} y=${y + 6} text-anchor="middle" style=${{ fontWeight: 700, fontSize: "17px", fill: `var(--${c})` }}>${tokens.length}</text>
    ${ring && html`<text x=${x} y=${y + 30} text-anchor="middle" class="t2">${soonest(tokens)}</text>`}`;
  const small = tokens.length > LARGE, perRow = tokens.length > ONE_ROW ? Math.ceil(tokens.length / 2) : ONE_ROW;
  return tokens.map((/** @type {any} */ p, /** @type {number} */ i) => {
    const row = Math.floor(i / perRow), inRow = Math.min(tokens.length - row * perRow, perRow);
    const dx = (i - row * perRow - (inRow - 1) / 2) * (small ? (ring ? 35 : 27) : 52), dy = small ? row * (ring ? 41 : 27) - (ring ? 10 : 4) : 0;
    const left = p.next_trial == null ? null : p.next_trial - serverNow();
    const named = tokens.length === 1 && !NUMBERED.test(p.id);
    return html`<g key=${p.id} transform="translate(${x + dx} ${y + dy})">
      ${named ? html`<${Named} id=${p.id} c=${c} wide=${ring ? 96 : 140} />` : html`<circle r=${small ? 9.5 : 13} fill="var(--card)" stroke="var(--${c})" stroke-width="2" /><text text-anchor="middle" y="4.2" style=${{ fontWeight: 650, fill: `var(--${c})` }}>${label(p.id)}</text>`}<title>${p.id}</title>
      ${ring && left != null && html`<${Ring} share=${1 - Math.max(left, 0) / (p.wait || 1)} c=${c} r=${small ? 12.5 : 17} dx=${named ? -68 : 0} /><text x=${named ? -68 : 0} y=${small ? 26 : 36} text-anchor="middle" class=${small ? "t3" : "t2"}>${left > 0 ? countdown(left) : "now"}</text>`}</g>`;
  });
}

const NUMBERED = /(\d{1,3})$/;

/** @param {string} id */
const label = (id) => NUMBERED.exec(id)?.[1] ?? id.slice(0, 1).toUpperCase();

/** The only process, by its name. @param {{id: string, c: string, wide: number}} props */
function Named({ id, c, wide }) {
  const text = shorten(id, Math.floor(wide / 7.5));
  const half = Math.min(wide, text.length * 7.5 + 20) / 2;
  return html`<rect x=${-half} y="-13" width=${2 * half} height="26" rx="13" fill="var(--card)" stroke="var(--${c})" stroke-width="2" /><text text-anchor="middle" y="4.2" style=${{ fontWeight: 650, fill: `var(--${c})` }}>${text}</text>`;
}

/** @param {{share: number, c: string, r: number, dx: number}} props */
function Ring({ share, c, r, dx }) {
  const around = 2 * Math.PI * r;
  return html`<circle cx=${dx} r=${r} fill="none" stroke="var(--line)" stroke-width="3" /><circle class="ring" cx=${dx} r=${r} fill="none" stroke="var(--${c})" stroke-width="3" stroke-dasharray="${(around * Math.min(Math.max(share, 0), 1)).toFixed(1)} ${around.toFixed(1)}" transform="rotate(-90 ${dx} 0)" />`;
}

/** @param {{s: any, tokens: any[]}} props */
function HalfOpen({ s, tokens }) {
  const slots = tokens[0]?.trials ?? Array(Math.min(s.trial_calls ?? 0, 8)).fill("free");
  const shown = slots.slice(0, 8);
  const begin = 308 - (shown.length * 25) / 2;
  return html`<g class=${tokens.length ? "" : "unlit"}><rect class=${tokens.length ? "lit" : ""} x="194" y="236" width="228" height="128" rx="14" fill="var(--half-bg)" stroke="var(--half)" stroke-width=${tokens.length ? 3 : 1.4} />
    <text x="308" y="258" text-anchor="middle" style=${{ fontWeight: 700, fontSize: "14px", fill: "var(--half)" }}>Half-open</text>
    <text x="308" y="275" text-anchor="middle" class="t2">up to ${plural(s.trial_calls ?? 0, "trial call")}, others refused</text>
    <${Tokens} tokens=${tokens} x=${308} y=${299} c="half" />
    ${(tokens.length <= ONE_ROW || tokens.length > MOST_TOKENS) && html`<g transform="translate(${begin} ${tokens.length ? 318 : 298})">${shown.map((/** @type {string} */ slot, /** @type {number} */ i) => html`<g transform="translate(${i * 25 + 4} 0)"><${Slot} kind=${slot} /></g>`)}</g>`}
    ${tokens.length > 0 && html`<text x="308" y="355" text-anchor="middle" class="t3">${tokens.length > 1 ? `${shorten(tokens[0].id, 10)}: ` : ""}${slotWords(slots)}</text>`}</g>`;
}

/** @param {string[]} slots */
function slotWords(slots) {
  const count = (/** @type {RegExp} */ kind) => slots.filter((slot) => kind.test(slot)).length;
  return `${count(/succeeded/)} ok, ${count(/failed/)} failed, ${count(/running/)} running, ${count(/free/)} left`;
}

/** @param {{kind: string}} props */
function Slot({ kind }) {
  if (kind.startsWith("succeeded")) return html`<circle cx="8" cy="9" r="8" fill="var(--${kind.endsWith("slow") ? "half" : "closed"})" /><path d="M4.4 9l2.6 2.8 4.8-5.4" stroke="var(--card)" stroke-width="2" fill="none" />`;
  if (kind.startsWith("failed")) return html`<rect y="1" width="16" height="16" rx="3" fill="var(--open)" /><path d="M5 6l6 6m0-6l-6 6" stroke="var(--card)" stroke-width="2" />`;
  if (kind === "running") return html`<circle cx="8" cy="9" r="7" fill="none" stroke="var(--half)" stroke-width="2" stroke-dasharray="4 3" />`;
  return html`<circle cx="8" cy="9" r="7" fill="none" stroke="var(--ink3)" stroke-width="1.2" />`;
}
