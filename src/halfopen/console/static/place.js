// Where the page is: the breaker and the time range that were chosen, kept in the address: #/payments-api&range=300.
import { signal } from "@preact/signals";

/** Seconds of the ranges that can be chosen, and what they are called. @type {[number, string, string][]} */
export const RANGES = [
  [60, "1 min", "Last minute"], [120, "2 min", "Last 2 minutes"], [300, "5 min", "Last 5 minutes"],
  [900, "15 min", "Last 15 minutes"], [3600, "1 h", "Last hour"], [21600, "6 h", "Last 6 hours"],
];

/** What is shown when nothing is wrong and nobody has chosen. */
const USUAL = 900;

/** @type {import("@preact/signals").Signal<{name: string | null, range: number | null}>} */
export const place = signal(read());

function read() {
  const parts = location.hash.slice(1).split("&");
  const path = parts.find((part) => part.startsWith("/"));
  const range = Number(parts.find((part) => part.startsWith("range="))?.slice(6));
  return { name: path ? decoded(path.slice(1)) : null, range: RANGES.some(([seconds]) => seconds === range) ? range : null };
}

/** @param {string} text */
function decoded(text) {
  try { return decodeURIComponent(text) || null; } catch { return null; }
}

/** @param {string | null} name @param {number | null} range */
const hash = (name, range) => `#${[name === null ? "" : `/${encodeURIComponent(name)}`, range === null ? "" : `range=${range}`].filter(Boolean).join("&")}`;

/** The link to a breaker; the range stays. @param {string} name */
export const hrefOf = (name) => hash(name, place.value.range);

/** Keep a range in the address, or none: the one that fits. @param {number | null} range */
export function chooseRange(range) {
  history.replaceState(null, "", `${location.pathname}${location.search}${hash(place.value.name, range)}`);
  place.value = read();
}

/** Follow the address; return what ends that. @param {() => void} moved */
export function follow(moved) {
  const changed = () => { place.value = read(); moved(); };
  addEventListener("hashchange", changed);
  return () => removeEventListener("hashchange", changed);
}

/** Take the token out of the address, where no history keeps it; return it. */
export function tokenFromLink() {
  const parts = location.hash.slice(1).split("&");
  const found = parts.find((part) => part.startsWith("token="));
  if (found === undefined) return null;
  const rest = parts.filter((part) => part !== found).join("&");
  history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  place.value = read();
  return decoded(found.slice(6));
}

/** The shortest range that shows all that is known, or the whole outage. @param {any} b @param {number} now */
export function fitting(b, now) {
  const born = Math.min(...b.processes.map((/** @type {any} */ p) => p.born ?? -Infinity));
  const ill = b.processes.filter((/** @type {any} */ p) => !p.gone && p.state !== "closed").map((/** @type {any} */ p) => now - (p.left_closed ?? p.entered));
  const wanted = Math.max(Math.min(now - born, USUAL), 1.25 * Math.max(0, ...ill));
  return RANGES.find(([seconds]) => seconds >= wanted)?.[0] ?? RANGES[RANGES.length - 1][0];
}
