/** Formats instants and durations. Times are seconds since 1970, as in the API. */

const DAY_S = 86400;

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});
const DATE_CLOCK = new Intl.DateTimeFormat(undefined, {
  day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23',
});
const FULL = new Intl.DateTimeFormat(undefined, {
  year: 'numeric', month: 'short', day: 'numeric',
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZoneName: 'short',
});

/**
 * Formats an instant: the time of day if it is within 18 hours of now, else date and time.
 * @param {number} at
 * @param {number} now
 */
export function instant(at, now) {
  const format = Math.abs(now - at) < 0.75 * DAY_S ? CLOCK : DATE_CLOCK;
  return format.format(at * 1000);
}

/**
 * Formats an instant in full, for tooltips.
 * @param {number} at
 */
export const fullInstant = (at) => FULL.format(at * 1000);

/**
 * Formats the time of day.
 * @param {number} at
 */
export const clock = (at) => CLOCK.format(at * 1000);

/**
 * Formats a duration in two parts such as `4 min 12 s` or `3 d 4 h`. Durations below 1 min have decimals.
 * @param {number|null|undefined} seconds
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  const s = Math.max(0, seconds);
  if (s === 0) return '0\u00a0s';
  if (s < 0.001) return `${Math.round(s * 1e6)}\u00a0µs`;
  if (s < 0.9995) return `${Number((s * 1000).toPrecision(3))}\u00a0ms`;
  if (s < 9.995) return `${s.toFixed(2)}\u00a0s`;
  if (s < 59.95) return `${s.toFixed(1)}\u00a0s`;
  const whole = Math.round(s);
  if (whole < 3600) return pair(Math.floor(whole / 60), 'min', whole % 60, 's');
  if (whole < DAY_S) return pair(Math.floor(whole / 3600), 'h', Math.floor((whole % 3600) / 60), 'min');
  return pair(Math.floor(whole / DAY_S), 'd', Math.floor((whole % DAY_S) / 3600), 'h');
}

/**
 * @param {number} big
 * @param {string} bigUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function pair(big, bigUnit, small, smallUnit) {
  const head = `${big}\u00a0${bigUnit}`;
  return small === 0 ? head : `${head}\u00a0${small}\u00a0${smallUnit}`;
}

/**
 * Formats an age coarsely: `now`, `40 s ago`, `3 h ago`.
 * @param {number} at
 * @param {number} now
 */
export function ago(at, now) {
  const s = now - at;
  if (s < 3) return 'now';
  if (s < 120) return `${Math.round(s)}\u00a0s ago`;
  if (s < 2 * 3600) return `${Math.round(s / 60)}\u00a0min ago`;
  if (s < 2 * DAY_S) return `${Math.round(s / 3600)}\u00a0h ago`;
  return `${Math.round(s / DAY_S)}\u00a0d ago`;
}
