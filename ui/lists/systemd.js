/** Table of systemd units with the processor time and memory that they use on a node. */

import { h } from '../elements/dom.js';
import { nodeHash } from '../server/route.js';
import { isValue } from '../values/series.js';
import { Table } from '../elements/table.js';
import { bytes, cores } from '../values/units.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {{device: string, unit: string, cores: number|null, memory: number|null}} UnitRow */

const CPU = 'cgroup_unit_cpu_seconds_total';
const MEMORY = 'cgroup_unit_memory_bytes';
const LABEL = 'unit';
const STEP_S = 15;
const FRESH_S = 90;
const ROWS_SHOWN = 20;

/** @param {Map<string, unknown>} catalogue */
export const unitMetrics = (catalogue) => catalogue.has(CPU) || catalogue.has(MEMORY);

export class UnitTable {
  /**
   * @param {Page} page
   * @param {string|null} device null for all nodes
   */
  constructor(page, device) {
    this.page = page;
    this.device = device;
    /** @type {Table<UnitRow>} */
    this.table = new Table({
      name: 'Services',
      key: (row) => `${row.device} ${row.unit}`,
      empty: 'No unit.',
      columns: [
        { id: 'unit', title: 'Unit', class: 'main', text: (row) => row.unit, order: (row) => row.unit },
        ...(device !== null ? [] : [{
          id: 'node', title: 'Node', text: (/** @type {UnitRow} */ row) => row.device,
          cell: (/** @type {UnitRow} */ row) => h('a', { href: nodeHash(row.device) }, row.device),
          order: (/** @type {UnitRow} */ row) => row.device,
        }]),
        {
          id: 'cores', title: 'Cores', class: 'number', help: this.help(CPU),
          text: (row) => cores(row.cores), order: (row) => row.cores,
        },
        {
          id: 'memory', title: 'Memory', class: 'number', help: this.help(MEMORY),
          text: (row) => bytes(row.memory), order: (row) => row.memory,
        },
      ],
    });
    this.element = h('section', { class: 'card', hidden: true, 'aria-labelledby': 'units-title' },
      h('header', {}, h('h2', { id: 'units-title' }, 'Services and sessions'),
        h('span', { class: 'muted' }, 'systemd units with the highest load')),
      this.table.element);
  }

  /** @param {string} metric */
  help(metric) {
    return this.page.catalogue.get(metric)?.help;
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api, catalogue } = this.page;
    const { device } = this;
    const end = Math.ceil(api.now());
    const [cpu, memory] = await Promise.all([
      catalogue.has(CPU)
        ? api.range({ device, metric: CPU, start: end - FRESH_S, end, step: STEP_S, rate: true }, signal)
        : { series: [] },
      catalogue.has(MEMORY) ? api.last({ device, metric: MEMORY }, signal) : [],
    ]);
    /** @type {Map<string, UnitRow>} */
    const rows = new Map();
    /** @param {{device: string, labels: Record<string, string>}} of */
    const row = (of) => {
      const unit = of.labels[LABEL] ?? '';
      const key = `${of.device} ${unit}`;
      const known = rows.get(key) ?? { device: of.device, unit, cores: null, memory: null };
      rows.set(key, known);
      return known;
    };
    for (const series of cpu.series) row(series).cores = series.values.findLast(isValue) ?? null;
    for (const last of memory) if (last.time >= end - FRESH_S) row(last).memory = last.value;
    const load = (/** @type {UnitRow} */ of) => of.cores ?? -1;
    const ranked = [...rows.values()].sort((a, b) =>
      load(b) - load(a) || (b.memory ?? 0) - (a.memory ?? 0) || a.unit.localeCompare(b.unit));
    this.table.update(ranked.slice(0, ROWS_SHOWN));
    this.element.hidden = ranked.length === 0;
  }
}
