/**
 * Arithmetic on the answers of `/api/v1/range`: one grid of times, sums, gaps, stacks.
 *
 * In a row of values, a number is a value, `null` is a hole that is drawn as a hole, and `undefined`
 * is a place between two values of a slower series, over which the line goes on.
 */

/** @typedef {import('./api.js').RangeSeries} RangeSeries */
/** @typedef {import('./api.js').Gap} Gap */
/** @typedef {Array<number|null|undefined>} Row */

/**
 * @param {number|null|undefined} value
 * @returns {value is number}
 */
export const isValue = (value) => typeof value === 'number' && Number.isFinite(value);

/**
 * All times of some series, ascending.
 * @param {Array<{times: number[]}>} pieces
 * @returns {number[]}
 */
export function grid(pieces) {
  const all = new Set(pieces.flatMap((piece) => piece.times));
  return [...all].sort((a, b) => a - b);
}

/**
 * A series on a grid. The server puts a point without a value into each hole; then there is nothing from
 * the value before it to the one after. Elsewhere the line goes on over times of faster series.
 * @param {{times: number[], values: Row}} piece
 * @param {number[]} times the grid
 * @returns {Row}
 */
export function place(piece, times) {
  const at = new Map(piece.times.map((time, i) => [time, piece.values[i]]));
  /** @type {Row} */
  const row = times.map(() => null);
  let last = -1;
  let torn = false;
  times.forEach((time, i) => {
    const value = at.get(time);
    if (!isValue(value)) {
      torn ||= at.has(time);
      return;
    }
    if (last >= 0 && !torn) row.fill(undefined, last + 1, i);
    row[i] = value;
    last = i;
    torn = false;
  });
  return row;
}

/**
 * The sum of rows at each time. A row before its first and after its last value adds nothing; one
 * that has a hole makes the sum unknown there. Where only slower rows lie between two values, their
 * last value counts.
 * @param {Row[]} rows
 * @returns {Row}
 */
export function sum(rows) {
  if (rows.length === 1) return rows[0];
  const ends = rows.map((row) => [row.findIndex(isValue), row.findLastIndex(isValue)]);
  const held = rows.map(() => 0);
  return (rows[0] ?? []).map((_, i) => {
    let total = 0;
    let alive = 0;
    let fresh = false;
    for (let r = 0; r < rows.length; r += 1) {
      if (ends[r][0] < 0 || i < ends[r][0] || i > ends[r][1]) continue;
      const value = rows[r][i];
      if (value === null) return null;
      if (value !== undefined) {
        held[r] = value;
        fresh = true;
      }
      total += held[r];
      alive += 1;
    }
    if (alive === 0) return null;
    return fresh ? total : undefined;
  });
}

/**
 * The average of rows at each time, over those that have a value.
 * @param {Row[]} rows
 * @returns {Row}
 */
export function average(rows) {
  if (rows.length === 1) return rows[0];
  const total = sum(rows);
  const ends = rows.map((row) => [row.findIndex(isValue), row.findLastIndex(isValue)]);
  return total.map((value, i) => (isValue(value)
    ? value / ends.filter(([first, last]) => first >= 0 && first <= i && i <= last).length : value));
}

/**
 * Rows laid upon each other, the first at the bottom. A hole in one is a hole of its own layer only.
 * @param {Row[]} rows
 * @returns {Row[]}
 */
export function stack(rows) {
  const top = (rows[0] ?? []).map(() => 0);
  return rows.map((row) => {
    let held = 0;
    return row.map((value, i) => {
      if (value === null) {
        held = 0;
        return null;
      }
      if (value === undefined) {
        top[i] += held;
        return undefined;
      }
      held = value;
      top[i] += value;
      return top[i];
    });
  });
}

/**
 * The largest value of some rows.
 * @param {Row[]} rows
 * @returns {number} 0 when there is none
 */
export function largest(rows) {
  let max = 0;
  for (const row of rows) {
    for (const value of row) if (isValue(value) && value > max) max = value;
  }
  return max;
}

/**
 * The last value of a row.
 * @param {Row} row
 * @returns {number|null}
 */
export function lastValue(row) {
  const value = row.findLast(isValue);
  return value ?? null;
}

/**
 * The average of the values of a row; 0 when there is none.
 * @param {Row} row
 */
export function mean(row) {
  const values = row.filter(isValue);
  return values.length === 0 ? 0 : values.reduce((a, b) => a + b, 0) / values.length;
}

/**
 * Gaps that a metric's source or its whole device has, each once.
 * @param {Gap[]} gaps
 * @param {string[]} metrics
 * @param {number} start
 * @param {number} end
 * @returns {Gap[]}
 */
export function gapsOf(gaps, metrics, start, end) {
  const seen = new Set();
  return gaps.filter((gap) => {
    const mine = gap.source === '' || metrics.some((metric) => metric.startsWith(`${gap.source}_`));
    const key = `${gap.device} ${gap.source} ${gap.from} ${gap.to} ${gap.cause}`;
    if (!mine || gap.to <= start || gap.from >= end || seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}

/** Steps that people read well, in seconds. */
const STEPS_S = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
];

/**
 * The step for a range drawn so many points wide: the next round one. Where the data comes slower, the
 * server answers with the points that there are.
 * @param {number} seconds length of the range
 * @param {number} points most points wanted
 */
export function stepFor(seconds, points) {
  const want = seconds / Math.max(points, 1);
  return STEPS_S.find((step) => step >= want * 0.999) ?? Math.ceil(want / 86400) * 86400;
}

/**
 * Labels as text: `{device="sda", mode="user"}` without the frame.
 * @param {Record<string, string>} labels
 */
export function labelText(labels) {
  const keys = Object.keys(labels).filter((key) => !key.startsWith('_')).sort();
  if (keys.length === 1) return labels[keys[0]];
  return keys.map((key) => `${key}=${labels[key]}`).join(' ');
}
