// The list at the left: what needs attention first, then the closed ones, nearest to their limit first.
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { countdown, percent, rate } from "./format.js";
import { html } from "./html.js";
import { Badge, STATES, Shape, summary, word } from "./shapes.js";
import { hrefOf } from "./place.js";
import { picture, serverNow, tick } from "./store.js";

const NEAR = 0.6;
const MOST_PIPS = 12;

/** How near a closed breaker is to its failure limit, 0 to 1. @param {any} b */
export function nearness(b) {
  const limit = b.settings.failure_rate_threshold;
  return b.failed == null || !limit ? 0 : b.failed / limit;
}

/** @param {any} b */
export const rank = (b) => STATES.indexOf(b.state === "gone" ? "open" : b.state);

/** @type {Record<string, (a: any, b: any) => number>} */
const ORDERS = {
  worst: (a, b) => rank(a) - rank(b) || share(b) - share(a) || byName(a, b),
  name: (a, b) => byName(a, b),
  refused: (a, b) => b.refused_rate - a.refused_rate || byName(a, b),
};
const byName = (/** @type {any} */ a, /** @type {any} */ b) => (a.name < b.name ? -1 : 1);
// In steps, so that rows do not jump about with every call.
const share = (/** @type {any} */ b) => (b.state === "closed" ? Math.round(nearness(b) * 10) : worstShare(b));
const worstShare = (/** @type {any} */ b) => b.processes.filter((/** @type {any} */ p) => p.state === b.state).length / Math.max(b.processes.length, 1);

/** @param {{selected: string | null}} props */
export function List({ selected }) {
  const [filter, setFilter] = useState("");
  const [order, setOrder] = useState("worst");
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const folded = useNarrow();
  useEffect(() => {
    const slash = (/** @type {KeyboardEvent} */ event) => {
      const at = /** @type {HTMLElement} */ (event.target);
      if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(at.tagName) && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        input.current?.focus();
      }
    };
    document.addEventListener("keydown", slash);
    return () => document.removeEventListener("keydown", slash);
  }, []);
  const now = picture.value;
  if (!now) return null;
  const wanted = filter.toLowerCase();
  const fits = [...now.breakers.values()].filter((b) => b.name.toLowerCase().includes(wanted) || Object.values(b.tags).some((tag) => String(tag).toLowerCase().includes(wanted)));
  fits.sort(ORDERS[order]);
  const ill = fits.filter((b) => b.state !== "closed");
  const well = fits.filter((b) => b.state === "closed");
  const rows = well.map((b) => html`<li key=${b.name}><${Closed} b=${b} href=${hrefOf(b.name)} selected=${b.name === selected} /></li>`);
  return html`<nav class="card list" aria-label="Breakers" onKeyDown=${move} ref=${list}>
    <div class="find"><input ref=${input} type="search" placeholder="Filter breakers  ( / )" aria-label="Filter breakers" value=${filter}
      onInput=${(/** @type {any} */ e) => setFilter(e.target.value)} />
      <select aria-label="Sort" value=${order} onChange=${(/** @type {any} */ e) => setOrder(e.target.value)}><option value="worst">worst first</option><option value="name">name</option><option value="refused">refused/s</option></select></div>
    <div class="section"><span>Needs attention, ${ill.length}</span></div>
    <ul>${ill.map((b) => html`<li key=${b.name}><${Ill} b=${b} selected=${b.name === selected} /></li>`)}</ul>
    ${ill.length === 0 && html`<p class="none">${wanted ? "None that fits." : "Nothing: every circuit is closed."}</p>`}
    ${well.length > 0 && html`<div class="section closed"><span>Closed, ${well.length}${well.length > 1 && order === "worst" ? ", nearest first" : ""}</span><span class="cols" aria-hidden="true"><span>calls</span><span>failed</span></span></div>`}
    ${folded && well.length > 0 ? html`<details><summary>Show the ${well.length} closed</summary><ul>${rows}</ul></details>` : html`<ul>${rows}</ul>`}
  </nav>`;
}

function useNarrow() {
  const query = matchMedia("(max-width: 620px)");
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** Arrows move through the rows; Enter follows the link by itself. @param {KeyboardEvent} event */
function move(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const at = /** @type {HTMLElement} */ (event.target);
  if (at.tagName === "SELECT") return;
  const rows = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("a.row")].filter((row) => row.checkVisibility());
  const here = rows.indexOf(/** @type {Element} */ (document.activeElement));
  const next = rows[Math.min(Math.max(here + (event.key === "ArrowDown" ? 1 : -1), 0), rows.length - 1)];
  event.preventDefault();
  /** @type {HTMLElement | undefined} */ (next)?.focus();
}

/** @param {{b: any, selected: boolean}} props */
function Ill({ b, selected }) {
  tick.value;
  return html`<a class="row" href=${hrefOf(b.name)} aria-current=${selected ? "true" : undefined}>
    <b>${b.name}</b><${Badge} state=${b.state} text=${summary(b, true)} />
    <span class="facts"><${Pips} b=${b} /><span>${next(b)}</span><span>${b.state === "disabled" || b.state === "metrics_only" ? rate(b.asked_rate) : `${rate(b.refused_rate).replace("/s", "")} refused/s`}</span></span>
  </a>`;
}

/** @param {any} b */
function next(b) {
  const here = b.processes.filter((/** @type {any} */ p) => !p.gone);
  const waits = here.map((/** @type {any} */ p) => p.next_trial).filter(Boolean);
  const ordered = here.find((/** @type {any} */ p) => p.ends_at || /forced|disabled|metrics/.test(p.state));
  if (b.state === "half_open") {
    const trials = here.find((/** @type {any} */ p) => p.state === "half_open")?.trials ?? [];
    const done = trials.filter((/** @type {string} */ t) => /succeeded|failed/.test(t)).length;
    return `${done} of ${trials.length} trials`;
  }
  const trying = here.filter((/** @type {any} */ p) => p.state === "half_open").length;
  if (b.state === "open" && trying) return `${trying} on trial`;
  if (b.state === "open" && waits.length) {
    const left = Math.min(...waits) - serverNow();
    return left > 0 ? `next trial ${countdown(left)}` : "next call is a trial";
  }
  if (b.state === "recovering") return `${percent(here.find((/** @type {any} */ p) => p.state === "recovering")?.admitted_share)} admitted`;
  if (ordered) return [ordered.by, ordered.ends_at ? `${countdown(ordered.ends_at - serverNow())} left` : "until removed"].filter(Boolean).join(", ");
  return "no news";
}

/** @param {{b: any}} props */
function Pips({ b }) {
  const all = b.processes;
  if (all.length > MOST_PIPS) return html`<span>${summary(b)}</span>`;
  const words = all.map((/** @type {any} */ p) => `${p.id} ${p.gone ? "gone" : word(p.state)}`).join(", ");
  return html`<span class="pips" role="img" aria-label=${words}>${all.map((/** @type {any} */ p) => html`<${Shape} key=${p.id} state=${p.gone ? "gone" : p.state} className="pip-${p.gone ? "gone" : p.state}" />`)}</span>`;
}

class Closed extends Component {
  /** @param {any} next */
  shouldComponentUpdate(next) {
    return next.b !== this.props.b || next.href !== this.props.href || next.selected !== this.props.selected;
  }

  /** @param {any} props */
  render({ b, href, selected }) {
    return html`<a class="row compact" href=${href} aria-current=${selected ? "true" : undefined}>
      <${Shape} state="closed" label="closed" /><b>${b.name}</b><span>${rate(b.asked_rate)}</span><span class=${nearness(b) >= NEAR ? "near" : ""}>${percent(b.failed)}</span></a>`;
  }
}
