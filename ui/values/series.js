/**
 * Arithmetic on responses of `/api/v1/range`: a common time grid, sums, gaps and stacks.
 *
 * In a row, a number is a value. `null` is a hole, which interrupts the line. `undefined` is a point between
 * two values of a slower series, and the line continues over it.
 */

/** @typedef {import('../server/api.js').RangeSeries} RangeSeries */
/** @typedef {import('../server/api.js').Gap} Gap */
/** @typedef {Array<number|null|undefined>} Row */

/**
 * @param {number|null|undefined} value
 * @returns {value is number}
 */
export const isValue = (value) => typeof value === 'number' && Number.isFinite(value);

/**
 * Returns the sorted times of all series.
 * @param {Array<{times: number[]}>} pieces
 * @returns {number[]}
 */
export function grid(pieces) {
  const all = new Set(pieces.flatMap((piece) => piece.times));
  return [...all].sort((a, b) => a - b);
}

/**
 * Places a series on a grid. The server inserts a point without a value into each hole. There the line is
 * interrupted from the value before to the value after. Elsewhere the line continues over times of faster
 * series.
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
 * Sums rows at each time. A row adds nothing before its first and after its last value. A hole in a row makes
 * the sum unknown. Between two values of a slower row, its last value counts.
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
 * Averages rows at each time, over the rows that have a value.
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
 * Stacks rows, the first at the bottom. A hole in a row interrupts only its own layer.
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
 * Returns the largest value of all rows.
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
 * Returns the last value of a row.
 * @param {Row} row
 * @returns {number|null}
 */
export function lastValue(row) {
  const value = row.findLast(isValue);
  return value ?? null;
}

/**
 * Returns the average of a row's values, or 0 if it has none.
 * @param {Row} row
 */
export function mean(row) {
  const values = row.filter(isValue);
  return values.length === 0 ? 0 : values.reduce((a, b) => a + b, 0) / values.length;
}

/**
 * Returns the distinct gaps of the metrics' sources and of whole devices in a time range.
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

/** Round step lengths in seconds. */
const STEPS_S = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
];

/**
 * Returns the smallest round step for which a range has at most `points` points. If samples are sparser, the
 * server returns the existing points.
 * @param {number} seconds length of the range
 * @param {number} points most points wanted
 */
export function stepFor(seconds, points) {
  const want = seconds / Math.max(points, 1);
  return STEPS_S.find((step) => step >= want * 0.999) ?? Math.ceil(want / 86400) * 86400;
}

/**
 * Formats labels without braces, such as `device=sda mode=user`; a single label is only its value.
 * @param {Record<string, string>} labels
 */
export function labelText(labels) {
  const keys = Object.keys(labels).filter((key) => !key.startsWith('_')).sort();
  if (keys.length === 1) return labels[keys[0]];
  return keys.map((key) => `${key}=${labels[key]}`).join(' ');
}
