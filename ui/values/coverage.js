/** Sums and averages over nodes, with the number of nodes that they cover. */

import { isValue } from './series.js';

/** @typedef {import('./series.js').Row} Row */

/**
 * The series of one node.
 * @typedef {object} Part
 * @property {string} device
 * @property {Row} row
 * @property {Row} [weights] of an average: how much of each step the value covers
 */

/**
 * @typedef {{device: string, since: number|null}} Silent
 * @typedef {{nodes: number, of: number, silent: Silent[]}} Coverage
 */

/** A node without a value for longer than this is silent. Until then its value may still arrive. */
export const PATIENCE_S = 60;
/** Maximum number of silent nodes that a text names. */
const NAMED = 3;

/**
 * Joins the rows of several nodes into their sum, or into their average if the values are shares. A node
 * whose value may still arrive makes the value unknown. A silent node is left out and does not count in the
 * first number of `covers`.
 * @param {Part[]} parts
 * @param {number[]} times
 * @param {object} about
 * @param {(device: string, time: number) => boolean} about.expected whether the node has to have a value
 * @param {boolean} [about.share] the values are shares
 * @param {number} [about.patience] seconds
 * @returns {{row: Row, covers: Array<[number, number]>}} `covers`: nodes with a value, and nodes that should have one
 */
export function joinNodes(parts, times, { expected, share = false, patience = PATIENCE_S }) {
  if (parts.length === 1) return { row: parts[0].row, covers: parts[0].row.map(() => [1, 1]) };
  const held = parts.map(() => ({ value: 0, weight: 1 }));
  const last = parts.map(({ row }) => times[row.findLastIndex(isValue)] ?? -Infinity);
  /** @type {Array<[number, number]>} */
  const covers = [];
  const row = times.map((time, i) => {
    const at = { sum: 0, weight: 0, alive: 0, missing: 0, fresh: false, late: false };
    parts.forEach((part, p) => {
      const value = part.row[i];
      if (value === null) {
        if (!expected(part.device, time)) return;
        at.missing += 1;
        at.late ||= time > last[p] && time - last[p] <= patience;
        return;
      }
      if (value !== undefined) {
        const weight = part.weights?.[i];
        held[p] = { value, weight: share && isValue(weight) ? weight : 1 };
        at.fresh = true;
      }
      at.sum += held[p].value * held[p].weight;
      at.weight += held[p].weight;
      at.alive += 1;
    });
    covers.push([at.alive, at.alive + at.missing]);
    if (at.alive === 0 || at.late) return null;
    if (!at.fresh) return undefined;
    return share ? at.sum / Math.max(at.weight, Number.MIN_VALUE) : at.sum;
  });
  return { row, covers };
}

/**
 * Lists nodes that have no value up to the last time at which they should have one.
 * @param {Part[]} parts
 * @param {string[]} devices every node, those without any series too
 * @param {number[]} times
 * @param {(device: string, time: number) => boolean} expected
 * @param {number} [patience] seconds
 * @returns {Coverage}
 */
export function coverageOf(parts, devices, times, expected, patience = PATIENCE_S) {
  const rows = new Map(parts.map(({ device, row }) => [device, row]));
  const all = [...new Set([...rows.keys(), ...devices])].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const silent = all.flatMap((device) => {
    const until = times.findLast((time) => expected(device, time));
    if (until === undefined) return [];
    const since = times[rows.get(device)?.findLastIndex(isValue) ?? -1] ?? null;
    const begun = since ?? times.find((time) => expected(device, time)) ?? until;
    return until - begun > patience ? [{ device, since }] : [];
  });
  return { nodes: all.length - silent.length, of: all.length, silent };
}

/**
 * Returns a text such as `63 of 64 nodes; n017 silent since 14:58`. The text is empty if every node is
 * covered.
 * @param {Coverage} coverage
 * @param {(time: number) => string} when
 */
export function coverageText({ nodes, of, silent }, when) {
  if (nodes >= of) return '';
  const named = silent.slice(0, NAMED).map(({ device, since }) =>
    (since === null ? `${device} without samples` : `${device} silent since ${when(since)}`));
  const more = silent.length > NAMED ? [`and ${silent.length - NAMED} more`] : [];
  const list = [...named, ...more].join(', ');
  return `${nodes} of ${of} nodes${list === '' ? '' : `; ${list}`}`;
}
