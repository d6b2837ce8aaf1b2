/** Table of every metric of a job or a node, with its help text and a button that plots it. */

import { h, setText } from '../elements/dom.js';
import { plotOf } from '../plots/plot_definitions.js';
import { Table } from '../elements/table.js';
import { meaningOf } from '../values/units.js';

/** @typedef {import('../server/api.js').MetricInfo} MetricInfo */
/** @typedef {MetricInfo & {value: string}} MetricRow */

export class Metrics {
  /**
   * @param {import('../plots/plots.js').Plots} plots
   * @param {string} [value] title of a column with what is known of each metric
   */
  constructor(plots, value) {
    this.plots = plots;
    /** @type {MetricRow[]} */
    this.rows = [];
    this.filter = h('input', {
      type: 'search', class: 'filter', placeholder: 'Filter', 'aria-label': 'Filter metrics',
      oninput: () => this.render(),
    });
    this.place = h('div', { class: 'plots' });
    /** @type {Table<MetricRow>} */
    this.table = new Table({
      name: 'Metrics',
      key: (row) => row.name,
      empty: 'No metric with this name.',
      columns: [
        {
          id: 'metric', title: 'Metric', class: 'main', text: (row) => row.name, order: (row) => row.name,
          cell: (row) => h('button', {
            type: 'button', class: 'link', title: 'Show or hide the plot',
            onclick: () => this.plot(row),
          }, row.name),
        },
        { id: 'unit', title: 'Unit', text: (row) => row.unit || 'count', order: (row) => row.unit },
        { id: 'kind', title: 'Kind', text: (row) => row.kind, order: (row) => row.kind },
        ...(value === undefined ? [] : [{
          id: 'value', title: value, class: 'number', text: (/** @type {MetricRow} */ row) => row.value,
        }]),
        { id: 'help', title: 'Meaning', class: 'prose', text: (row) => row.help },
      ],
    });
    this.summary = h('summary', {}, 'All metrics');
    this.element = h('details', { class: 'card metrics', ontoggle: () => this.render() },
      this.summary, this.filter, this.place, this.table.element);
  }

  /** @param {MetricRow[]} rows */
  update(rows) {
    this.rows = [...rows].sort((a, b) => a.name.localeCompare(b.name));
    setText(this.summary, `All ${rows.length} metrics`);
    this.render();
  }

  render() {
    if (!(/** @type {HTMLDetailsElement} */ (this.element).open)) return;
    const wanted = (/** @type {HTMLInputElement} */ (this.filter)).value.trim().toLowerCase();
    this.table.update(this.rows.filter((row) =>
      `${row.name} ${row.help}`.toLowerCase().includes(wanted)));
  }

  /** @param {MetricInfo} metric */
  plot(metric) {
    const shown = this.plots.add(plotOf(metric, meaningOf(metric.name)), this.place);
    if (shown) this.place.scrollIntoView({ block: 'nearest', behavior: 'smooth' });
  }
}
