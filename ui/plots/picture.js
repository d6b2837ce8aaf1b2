/** Composes the drawn lines of a plot from its definition and the server's response. */

import { coverageOf, joinNodes } from '../values/coverage.js';
import { average, gapsOf, grid, isValue, labelText, mean, place, sum } from '../values/series.js';
import { quantity } from '../values/units.js';

/** @typedef {import('../server/api.js').Range} Range */
/** @typedef {import('../server/api.js').RangeSeries} RangeSeries */
/** @typedef {import('../values/series.js').Row} Row */

/**
 * A metric of a plot.
 * @typedef {object} Wanted
 * @property {string} metric
 * @property {string} [label] its name in the legend; the metric's own when left out
 * @property {boolean} [ceiling] a limit, drawn dashed
 * @property {number} [color] index in the palette, where the next free one says too little
 */

/**
 * Definition of a plot.
 * @typedef {object} PlotSpec
 * @property {string} id
 * @property {string} title
 * @property {Wanted[]} lines
 * @property {string} [by] one line for each value of this label, or for each `device`, `job` or
 *   `series`; else all series of a metric are added up
 * @property {boolean} [stacked]
 * @property {import('../values/units.js').Meaning} [meaning]
 * @property {string} [things] what a plain count counts
 */

/**
 * A line with its metric, its help text and its coverage.
 * @typedef {import('./plot.js').Line & {metric: string, help: string,
 *   covers?: Array<[number, number]>, coverage?: import('../values/coverage.js').Coverage}} ToldLine
 */

/** Maximum number of drawn lines; the palette has as many colours. */
const LINES_MAX = 8;

/** Name in the legend of the line that joins all further lines. */
const REST = 'others';

/**
 * @param {PlotSpec} spec
 * @param {Wanted[]} wanted those of its lines that were requested
 * @param {Range} answer
 * @param {object} about
 * @param {(device: string, time: number) => boolean} about.expected see `joinNodes`
 * @param {string[]} [about.devices] nodes that the sums are of, those without samples too
 * @param {number} [about.step] seconds
 * @param {(label: string, line: ToldLine) => number} about.colorOf
 * @param {(series: RangeSeries) => string} about.jobName
 */
export function compose(spec, wanted, answer, about) {
  const { series, start, end } = answer;
  const times = grid(series);
  const lines = wanted.flatMap((one) =>
    linesOf(spec, one, series.filter(({ metric }) => metric === one.metric), times,
      { ...about, step: answer.step_seconds }));
  const kept = strongest(spec, lines);
  for (const line of kept.lines) line.color = about.colorOf(line.label, line);
  return {
    times,
    lines: kept.lines,
    left: kept.left,
    quantity: quantity(wordOf(series), spec.meaning, spec.things),
    stacked: spec.stacked === true,
    coverage: worst(kept.lines),
    covers: fewest(kept.lines, times),
    gaps: gapsOf(answer.gaps, wanted.map(({ metric }) => metric), start, end),
    truncated: answer.truncated,
  };
}

/**
 * Returns the coverage of the line that covers the fewest nodes.
 * @param {ToldLine[]} lines
 */
function worst(lines) {
  const known = lines.flatMap(({ coverage }) => (coverage === undefined ? [] : [coverage]));
  return known.sort((a, b) => a.nodes - a.of - (b.nodes - b.of))[0] ?? { nodes: 0, of: 0, silent: [] };
}

/**
 * Returns, for each time, the node counts of the line that covers the fewest nodes.
 * @param {ToldLine[]} lines
 * @param {number[]} times
 * @returns {Array<[number, number]>}
 */
const fewest = (lines, times) => times.map((_, i) => lines.reduce((least, { covers }) => {
  const [have, of] = covers?.[i] ?? [0, 0];
  return have - of < least[0] - least[1] ? [have, of] : least;
}, /** @type {[number, number]} */ ([0, 0])));

/**
 * Returns the unit of a plot. If rates and limits differ, it is the unit of the rate.
 * @param {RangeSeries[]} series
 */
function wordOf(series) {
  const rate = series.find(({ value_unit: unit }) => unit.endsWith('/s'));
  return (rate ?? series[0])?.value_unit ?? '';
}

/**
 * Returns the lines of one metric, one for each group.
 * @param {PlotSpec} spec
 * @param {Wanted} wanted
 * @param {RangeSeries[]} series
 * @param {number[]} times
 * @param {Parameters<typeof compose>[3]} about
 * @returns {ToldLine[]}
 */
function linesOf(spec, wanted, series, times, about) {
  /** @type {Map<string, RangeSeries[]>} */
  const groups = new Map();
  const differs = { devices: severalOf(series, 'device'), jobs: severalOf(series, 'job') };
  for (const one of series) {
    const name = wanted.ceiling ? '' : groupOf(spec.by, one, about.jobName, differs);
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  const plain = wanted.label ?? wanted.metric;
  return [...groups].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }))
    .map(([name, members]) => ({
      label: name === '' ? plain : [name, spec.lines.length > 1 ? wanted.label : ''].join(' ').trim(),
      metric: wanted.metric,
      help: members[0].help,
      ...total(members, times, spec, about),
      color: wanted.color ?? -1,
      ceiling: wanted.ceiling,
    }));
}

/**
 * @param {RangeSeries[]} series
 * @param {'device'|'job'} key
 */
const severalOf = (series, key) => new Set(series.map((one) => one[key])).size > 1;

/**
 * @param {string|undefined} by
 * @param {RangeSeries} series
 * @param {(series: RangeSeries) => string} jobName
 * @param {{devices: boolean, jobs: boolean}} differs which of device and job differ between the series
 */
function groupOf(by, series, jobName, differs) {
  switch (by) {
    case undefined: return '';
    case 'device': return series.device;
    case 'job': return jobName(series);
    case 'series': {
      const parts = [
        differs.devices ? series.device : '', differs.jobs && series.job !== null ? jobName(series) : '',
        labelText(series.labels),
      ];
      return parts.filter((part) => part !== '').join(' ');
    }
    default: return series.labels[by] ?? '';
  }
}

/**
 * Joins the series of a group. It adds amounts, and averages shares weighted by the time that each of them
 * covers.
 * @param {RangeSeries[]} members
 * @param {number[]} times
 * @param {PlotSpec} spec
 * @param {Parameters<typeof compose>[3]} about
 */
function total(members, times, spec, { expected, devices = [], step = 0 }) {
  const share = spec.meaning === 'share' || members[0].value_unit === 'ratio';
  /** @type {Map<string, {rows: Row[], weights: Row[]}>} */
  const nodes = new Map();
  for (const member of members) {
    const node = nodes.get(member.device) ?? { rows: [], weights: [] };
    node.rows.push(place(member, times));
    node.weights.push(place({ times: member.times, values: weights(member, step) }, times));
    nodes.set(member.device, node);
  }
  const join = share ? average : sum;
  const parts = [...nodes].map(([device, node]) =>
    ({ device, row: join(node.rows), weights: average(node.weights) }));
  const { row, covers } = joinNodes(parts, times, { expected, share });
  // A group of one node, job or disk is no sum over nodes.
  const whole = spec.by === undefined ? devices : [];
  return { values: row, covers, coverage: coverageOf(parts, whole, times, expected) };
}

/**
 * Returns the covered share of each step. The first and the last step are covered in part.
 * @param {RangeSeries} series
 * @param {number} step
 */
const weights = ({ values, seconds }, step) => values.map((value, i) => {
  if (value === null) return null;
  const covered = seconds?.[i];
  return covered === undefined || !(step > 0) ? 1 : Math.min(covered / step, 1);
});

/**
 * Selects the lines with the highest averages if there are too many. In a stacked plot it adds the others up
 * into one line. In a plain plot it leaves the others out and counts them. If each line is a part of its own
 * (`by`), it drops lines that are zero throughout first.
 * @param {PlotSpec} spec
 * @param {ToldLine[]} lines
 */
function strongest(spec, lines) {
  const ceilings = lines.filter((line) => line.ceiling);
  let drawn = lines.filter((line) => !line.ceiling);
  let left = 0;
  if (spec.by !== undefined) {
    const busy = drawn.filter((line) => line.values.some((value) => isValue(value) && value !== 0));
    const shown = busy.length === 0 ? drawn.slice(0, 1) : busy;
    left = drawn.length - shown.length;
    drawn = shown;
  }
  if (drawn.length > LINES_MAX) {
    const ranked = [...drawn].sort((a, b) => mean(b.values) - mean(a.values));
    const keep = new Set(ranked.slice(0, spec.stacked ? LINES_MAX - 1 : LINES_MAX));
    const rest = drawn.filter((line) => !keep.has(line));
    drawn = drawn.filter((line) => keep.has(line));
    if (spec.stacked) {
      const values = sum(rest.map((line) => line.values));
      drawn.push({ ...rest[0], label: `${REST} (${rest.length})`, values });
    } else {
      left += rest.length;
    }
  }
  return { lines: [...drawn, ...ceilings], left };
}
