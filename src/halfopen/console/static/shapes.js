// What a state looks like: a shape, a word, a colour.
import { html } from "./html.js";

export const STATES = ["open", "half_open", "recovering", "forced_open", "disabled", "metrics_only", "closed", "gone"];

/** @type {Record<string, string>} */
export const WORDS = {
  closed: "Closed", open: "Open", half_open: "Half-open", recovering: "Recovering", forced_open: "Forced open",
  disabled: "Forced closed", metrics_only: "Observed only", gone: "Gone",
};

/** @param {string} state */
export const word = (state) => (WORDS[state] ?? state).toLowerCase();

/** @param {{state: string, label?: string, className?: string}} props */
export function Shape({ state, label, className }) {
  const hidden = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg viewBox="0 0 12 12" class=${className} ...${hidden}>${drawn(state)}</svg>`;
}

/** @param {string} state */
function drawn(state) {
  switch (state) {
    case "closed": return html`<circle cx="6" cy="6" r="5" fill="currentColor" />`;
    case "open": return html`<rect x="1" y="1" width="10" height="10" fill="currentColor" />`;
    case "half_open":
      return html`<circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="M6 1.4a4.6 4.6 0 0 0 0 9.2z" fill="currentColor" />`;
    case "recovering": return html`<path d="M6 1l5 9.5H1z" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="M3.2 7h5.6L11 10.5H1z" fill="currentColor" />`;
    case "forced_open":
      return html`<rect x="2" y="5.2" width="8" height="6" rx="1" fill="currentColor" /><path d="M3.8 5.2V3.6a2.2 2.2 0 0 1 4.4 0v1.6" fill="none" stroke="currentColor" stroke-width="1.5" />`;
    case "disabled": return html`<path d="M2 6h8M6 2v8" stroke="currentColor" stroke-width="2.4" />`;
    case "metrics_only":
      return html`<circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.6" /><circle cx="6" cy="6" r="1.6" fill="currentColor" />`;
    default: return html`<path d="M2 2l8 8M10 2l-8 8" stroke="currentColor" stroke-width="1.8" />`;
  }
}

/** @param {{state: string, text?: string}} props */
export const Badge = ({ state, text }) =>
  html`<span class="badge s-${state}"><${Shape} state=${state} />${text ?? WORDS[state] ?? state}</span>`;

/** The colours of a state in SVG: its token without the leading dashes. @param {string} state */
export const tone = (state) =>
  ({ closed: "closed", open: "open", half_open: "half", recovering: "recovering", forced_open: "forced" })[state] ?? "off";

/** "4 of 6 open, 1 half-open" for a breaker; what the list, the heading and the title of the tab say. @param {any} breaker */
export function summary(breaker, short = false) {
  const all = breaker.processes;
  const state = breaker.state;
  if (state === "gone") return "Gone";
  if (all.length < 2) return WORDS[state];
  const count = (/** @type {string} */ wanted) => all.filter((/** @type {any} */ one) => (one.gone ? "gone" : one.state) === wanted).length;
  const most = `${count(state)} of ${all.length} ${word(state)}`;
  if (short) return most;
  const others = STATES.filter((one) => one !== state && one !== "closed" && count(one) > 0);
  return [most, ...others.map((one) => `${count(one)} ${word(one)}`)].join(", ");
}
