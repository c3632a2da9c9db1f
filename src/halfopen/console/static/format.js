// Numbers, times and ages as people read them.

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds == null) return "–";
  const s = Math.max(seconds, 0);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** One unit: for estimates, and for limits. @param {number} seconds */
export function roughly(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 10800 && seconds % 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** How often something happened. @param {number} n */
export const often = (n) => ["never", "once", "twice"][n] ?? `${grouped(n)} times`;

/** Whole seconds, for countdowns. @param {number} seconds */
export const countdown = (seconds) => (seconds < 90 ? `${Math.max(Math.ceil(seconds), 0)} s` : duration(seconds));

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond == null) return "–";
  if (perSecond === 0) return "0/s";
  return `${perSecond < 10 ? perSecond.toFixed(1) : grouped(Math.round(perSecond))}/s`;
}

/** @param {number | null | undefined} share */
export const percent = (share) => (share == null ? "–" : `${Math.round(share * 100)} %`);

/** @param {number} number */
export const grouped = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** UTC, as the sentences of the breakers are. @param {number} unix @param {boolean} [seconds] */
export function clock(unix, seconds = true) {
  return new Date(unix * 1000).toISOString().slice(11, seconds ? 19 : 16);
}

/** @param {number} count @param {string} one */
export const plural = (count, one) => `${grouped(count)} ${one}${count === 1 ? "" : one.endsWith("s") ? "es" : "s"}`;
