/** Table of the job's processes with the highest load, from the source `process`. */

import { h, setText } from '../elements/dom.js';
import { isValue } from '../values/series.js';
import { Table } from '../elements/table.js';
import { meaningOf, quantity, show } from '../values/units.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {{device: string, pid: string, command: string, values: Map<string, number|null>}} Process */

const PREFIX = 'process_top_';
const TITLES = new Map([['process_top_cpu_seconds_total', 'Cores'], ['process_top_rss_bytes', 'Memory']]);
const REFRESH_MS = 10000;
/** The source reads each process every 30 s by default. */
const STEP_S = 30;
const FRESH_S = 150;

export class Processes {
  /**
   * @param {Page} page
   * @param {{job: number, cluster: string}} selector
   * @param {() => number|null} stop when the job ended
   */
  constructor(page, selector, stop) {
    this.page = page;
    this.selector = selector;
    this.stop = stop;
    this.metrics = [...page.catalogue.values()].filter(({ name }) => name.startsWith(PREFIX));
    /** @type {Table<Process>} */
    this.table = new Table({
      name: 'Processes',
      key: (process) => `${process.device} ${process.pid} ${process.command}`,
      empty: 'No process.',
      columns: [
        {
          id: 'command', title: 'Command', class: 'main',
          text: ({ command }) => command, order: ({ command }) => command,
        },
        { id: 'pid', title: 'PID', class: 'number', text: ({ pid }) => pid, order: ({ pid }) => Number(pid) },
        { id: 'node', title: 'Node', text: ({ device }) => device, order: ({ device }) => device },
        ...this.metrics.map((metric) => column(metric)),
      ],
    });
    this.note = h('p', { class: 'muted' });
    this.element = h('section', { class: 'card', hidden: true, 'aria-labelledby': 'processes-title' },
      h('header', {}, h('h2', { id: 'processes-title' }, 'Processes with the highest load')),
      this.table.element, this.note);
    this.task = this.metrics.length === 0 ? null
      : page.live.every(REFRESH_MS, (signal) => this.refresh(signal), page.say);
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api } = this.page;
    const now = Math.min(this.stop() ?? Infinity, api.now());
    const end = Math.ceil(now / STEP_S) * STEP_S;
    const metric = this.metrics.map(({ name }) => name).join(',');
    const { series } = await api.range({
      ...this.selector, metric, start: end - FRESH_S, end, step: STEP_S, rate: true,
    }, signal);
    const found = latest(series);
    const first = this.metrics.find(({ name }) => /cpu/.test(name)) ?? this.metrics[0];
    const load = (/** @type {Process} */ process) => process.values.get(first.name) ?? -1;
    this.table.update([...found.values()].sort((a, b) => load(b) - load(a)));
    this.element.hidden = found.size === 0;
    setText(this.note, this.stop() === null ? '' : 'As they were at the end of the job.');
  }

  close() {
    this.task?.cancel();
  }
}

/**
 * Returns the processes of each node's latest reading. Processes of earlier readings may have ended.
 * @param {import('../server/api.js').RangeSeries[]} series
 * @returns {Map<string, Process>}
 */
function latest(series) {
  /** @type {Map<string, number>} */
  const read = new Map();
  for (const { device, times } of series) {
    read.set(device, Math.max(read.get(device) ?? 0, times.at(-1) ?? 0));
  }
  /** @type {Map<string, Process>} */
  const found = new Map();
  for (const one of series) {
    const value = one.values.at(-1);
    if (one.times.at(-1) === read.get(one.device) && isValue(value)) {
      processOf(found, one).values.set(one.metric, value);
    }
  }
  return found;
}

/**
 * @param {Map<string, Process>} found
 * @param {import('../server/api.js').RangeSeries} series
 * @returns {Process}
 */
function processOf(found, { device, labels }) {
  const pid = labels.pid ?? '';
  const command = labels.comm ?? '';
  const key = `${device} ${pid} ${command}`;
  const known = found.get(key) ?? { device, pid, command, values: new Map() };
  found.set(key, known);
  return known;
}

/**
 * @param {import('../server/api.js').MetricInfo} metric
 * @returns {import('../elements/table.js').Column<Process>}
 */
function column({ name, unit, kind, help }) {
  const what = quantity(kind === 'counter' ? `${unit}/s` : unit, meaningOf(name));
  const title = TITLES.get(name) ?? name.slice(PREFIX.length).replaceAll('_', ' ');
  return {
    id: name, title, help, class: 'number',
    text: ({ values }) => show(values.get(name), what), order: ({ values }) => values.get(name) ?? null,
  };
}
