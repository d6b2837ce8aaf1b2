/** From a plot's definition and the server's answers to the lines that are drawn. */

import { gapsOf, grid, isValue, labelText, mean, place, sum, sumDevices } from './series.js';
import { quantity } from './units.js';

/** @typedef {import('./api.js').Range} Range */
/** @typedef {import('./api.js').RangeSeries} RangeSeries */
/** @typedef {import('./series.js').Row} Row */

/**
 * One metric of a plot.
 * @typedef {object} Wanted
 * @property {string} metric
 * @property {string} [label] its name in the legend; the metric's own when left out
 * @property {boolean} [ceiling] a limit, drawn dashed
 * @property {number} [color] index in the palette, where the next free one says too little
 */

/**
 * A plot's definition.
 * @typedef {object} PlotSpec
 * @property {string} id
 * @property {string} title
 * @property {Wanted[]} lines
 * @property {string} [by] one line for each value of this label, or for each `device`, `job` or
 *   `series`; else all series of a metric are added up
 * @property {boolean} [stacked]
 * @property {import('./units.js').Meaning} [meaning]
 * @property {string} [things] what a plain count counts
 */

/**
 * A line with what is told about it.
 * @typedef {import('./plot.js').Line & {metric: string, help: string}} ToldLine
 */

/** Lines drawn at most; the palette has as many colours. */
const LINES_MAX = 8;

/** The legend's name of what was put together beyond that. */
const REST = 'others';

/**
 * @param {PlotSpec} spec
 * @param {Wanted[]} wanted those of its lines that were asked for
 * @param {Range} answer
 * @param {object} about
 * @param {(device: string, time: number) => boolean} about.expected see `sumDevices`
 * @param {(label: string, line: ToldLine) => number} about.colorOf
 * @param {(series: RangeSeries) => string} about.jobName
 */
export function compose(spec, wanted, answer, about) {
  const { series, start, end } = answer;
  const times = grid(series);
  const lines = wanted.flatMap((one) =>
    linesOf(spec, one, series.filter(({ metric }) => metric === one.metric), times, about));
  const kept = strongest(spec, lines);
  for (const line of kept.lines) line.color = about.colorOf(line.label, line);
  return {
    times,
    lines: kept.lines,
    left: kept.left,
    quantity: quantity(wordOf(series), spec.meaning, spec.things),
    stacked: spec.stacked === true,
    gaps: gapsOf(answer.gaps, wanted.map(({ metric }) => metric), start, end),
    truncated: answer.truncated,
  };
}

/**
 * The unit of a plot: a rate's, where only its limit is none.
 * @param {RangeSeries[]} series
 */
function wordOf(series) {
  const rate = series.find(({ value_unit: unit }) => unit.endsWith('/s'));
  return (rate ?? series[0])?.value_unit ?? '';
}

/**
 * The lines of one metric: one for each group.
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
  const told = { devices: severalOf(series, 'device'), jobs: severalOf(series, 'job') };
  for (const one of series) {
    const name = wanted.ceiling ? '' : groupOf(spec.by, one, about.jobName, told);
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  const plain = wanted.label ?? wanted.metric;
  return [...groups].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }))
    .map(([name, members]) => ({
      label: name === '' ? plain : [name, spec.lines.length > 1 ? wanted.label : ''].join(' ').trim(),
      metric: wanted.metric,
      help: members[0].help,
      values: total(members, times, about),
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
 * @param {{devices: boolean, jobs: boolean}} told what tells the series apart beside their labels
 */
function groupOf(by, series, jobName, told) {
  switch (by) {
    case undefined: return '';
    case 'device': return series.device;
    case 'job': return jobName(series);
    case 'series': {
      const parts = [
        told.devices ? series.device : '', told.jobs && series.job !== null ? jobName(series) : '',
        labelText(series.labels),
      ];
      return parts.filter((part) => part !== '').join(' ');
    }
    default: return series.labels[by] ?? '';
  }
}

/**
 * @param {RangeSeries[]} members
 * @param {number[]} times
 * @param {Parameters<typeof compose>[3]} about
 * @returns {Row}
 */
function total(members, times, about) {
  /** @type {Map<string, Row[]>} */
  const devices = new Map();
  for (const member of members) {
    const row = place(member, times);
    devices.set(member.device, [...(devices.get(member.device) ?? []), row]);
  }
  const parts = [...devices].map(([device, rows]) => ({ device, row: sum(rows) }));
  return sumDevices(parts, times, about.expected);
}

/**
 * The lines with the highest average, when there are too many: the others of a stack are added up
 * into one, those of a plain plot are left out, and counted. Lines that are zero throughout go
 * first where each stands for a part of its own.
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
