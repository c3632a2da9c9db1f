// What is waiting: each retry queue by lane, how fast it drains, and what can be done.
import { asked, hold } from "./dialogs.js";
import { duration, grouped, plural, rate, roughly } from "./format.js";
import { html } from "./html.js";
import { serverNow, session, tick } from "./store.js";

const MOST_LANES = 12;
/** The share of the alert's limit from which on the oldest message is marked. */
const OLD = 1 / 3;

/** @type {Record<string, string>} */
const WAITS = {
  "": "nothing", open: "open circuit", half_open: "trial calls", recovering: "the ramp", forced_open: "forced open",
  "half_open elsewhere": "trial calls elsewhere", spread: "its turn", due: "the next try", seats: "free senders", rate: "its rate limit",
  order: "an earlier message", hold: "paused", empty: "empty",
};

/** @param {{queues: any[], b: any}} props */
export function Queues({ queues, b }) {
  tick.value;
  if (!queues.length) return html`<section class="card quiet" aria-label="Retry queue"><h2>Retry queue</h2><p class="muted">None is shown here: hand queues to the console as <span class="mono">queues=</span>.</p></section>`;
  return html`<section class="card" aria-label="Retry queue">${queues.map((q) => html`<${Queue} key=${q.name} q=${q} b=${b} />`)}</section>`;
}

/** @param {{q: any, b: any}} props */
function Queue({ q, b }) {
  if (q.up === false && q.lanes == null) return html`<div class="queue"><h2>Retry queue “${q.name}”</h2><p class="warn">Its store cannot be read.</p></div>`;
  const live = q.ready + q.delayed + q.in_flight + q.awaiting;
  const held = q.held_by?.[b.name] ?? 0;
  const oldest = q.oldest == null ? null : serverNow() - q.oldest;
  const lanes = [...q.lanes].sort((x, y) => Number(y.lane === b.name) - Number(x.lane === b.name) || y.waiting - x.waiting).slice(0, MOST_LANES);
  const drain = lanes.find((lane) => lane.lane === b.name)?.drain ?? q.drain;
  const dead = q.dead + q.error;
  return html`<div class="queue"><h2>Retry queue “${q.name}”${q.up === false ? ", store down" : ""}</h2>
    <div class="numbers"><div><b>${grouped(live)}</b><span>${live === 1 ? "message" : "messages"}${held ? `, ${held === live ? "all" : grouped(held)} held by this breaker` : ""}</span></div>
      <div><b class=${oldest != null && q.alert_after && oldest > q.alert_after * OLD ? "warm" : ""}>${oldest == null ? "–" : duration(oldest)}</b><span>the oldest${q.alert_after ? `, alert\u00a0at\u00a0${roughly(q.alert_after).replace(" ", "\u00a0")}` : ""}</span></div>
      <div><b>${rate(q.rates?.in ?? 0)}</b><span>coming in, ${rate(q.rates?.out ?? 0)} going out</span></div>
      <div><b>${drain == null ? "–" : `≈ ${roughly(drain)}`}</b><span>${held ? "to drain, once closed, at the last pace" : "to drain at this pace"}</span></div></div>
    <${Stack} parts=${[[q.ready, "accent"], [q.delayed, "off"], [q.in_flight + q.awaiting, "half"], [dead, "open"]]} />
    <div class="key"><span><i class="k-accent" />ready ${grouped(q.ready)}</span><span><i class="k-off" />waiting ${grouped(q.delayed)}</span><span><i class="k-half" />being tried ${grouped(q.in_flight + q.awaiting)}</span><span><i class="k-f" />given up ${grouped(dead)}</span></div>
    ${lanes.length > 0 ? html`<${Lanes} q=${q} lanes=${lanes} />` : html`<p class="muted below">No lane has held a message yet.</p>`}
    ${q.lanes.length > lanes.length && html`<p class="muted small">and ${plural(q.lanes.length - lanes.length, "lane")} more</p>`}
    ${dead > 0 && html`<p class="below"><button class="button" onClick=${() => { asked.value = { kind: "messages", queue: q.name }; }}>Look at the ${grouped(dead)} given up</button></p>`}</div>`;
}

/** @param {{q: any, lanes: any[]}} props */
function Lanes({ q, lanes }) {
  const operator = session.value.role === "operator";
  const now = serverNow();
  return html`<div class="scroll lanes" tabindex="0" role="group" aria-label=${`Lanes of ${q.name}, scrolls sideways`}><table><thead><tr><th>Lane</th><th class="n">Waiting</th><th class="n">Oldest</th><th class="n">Drains in</th><th>Waits for</th><th>Actions</th></tr></thead><tbody>
    ${lanes.map((lane) => html`<tr key=${lane.lane}><td>${lane.lane}</td><td class="n">${grouped(lane.waiting)}</td><td class="n">${lane.oldest == null ? "–" : duration(now - lane.oldest)}</td><td class="n">${lane.drain == null ? "–" : `≈ ${roughly(lane.drain)}`}</td><td>${lane.hold ? "paused" : WAITS[lane.waits_for] ?? lane.waits_for.replaceAll("_", " ")}</td>
      <td>${operator && html`<button class="button tiny" aria-label=${`${lane.hold ? "Resume" : "Pause"} lane ${lane.lane}`} onClick=${() => hold(q.name, lane.lane, !lane.hold)}>${lane.hold ? "Resume" : "Pause"}</button> `}<button class="button tiny" aria-label=${`Messages of lane ${lane.lane}`} onClick=${() => { asked.value = { kind: "messages", queue: q.name, lane: lane.lane }; }}>Messages</button></td></tr>`)}</tbody></table></div>`;
}

/** @param {{parts: [number, string][]}} props */
function Stack({ parts }) {
  const total = parts.reduce((sum, [n]) => sum + n, 0);
  let x = 0;
  return html`<div class="stack" aria-hidden="true"><svg viewBox="0 0 1000 16" preserveAspectRatio="none">${total > 0 && parts.map(([n, tone]) => {
    if (!n) return null;
    const wide = Math.max((n / total) * 1000, 8);
    const bar = html`<rect x=${x} width=${Math.max(wide - 3, 4)} height="16" fill="var(--${tone})" />`;
    x += wide;
    return bar;
  })}</svg></div>`;
}
