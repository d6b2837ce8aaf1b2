/** Values that other devices, such as a BMC or a meter, report for a node: the label `_device_alias`. */

import { h, setText } from '../elements/dom.js';
import { Table } from '../elements/table.js';
import { Plots } from '../plots/plots.js';
import { plotOf } from '../plots/plot_definitions.js';
import { Refused } from '../server/api.js';
import { deviceHash } from '../server/route.js';
import { isValue, labelText, mean } from '../values/series.js';
import { ago } from '../values/time.js';
import { meaningOf, quantity, show } from '../values/units.js';

/** @typedef {{device: string, metric: string, labels: Record<string, string>, text: string, note: string}} ValueRow */

/** Points of a time range whose mean is shown. */
const POINTS = 60;
const ROWS_MAX = 200;

export class DeviceValues {
  /**
   * @param {import('../frame/app.js').Page} page
   * @param {string} node
   * @param {import('../plots/panel.js').Board} board of the page; the plots here have the same time range
   * @param {() => {start: number, stop: number|null}|null} span the time of a job, whose means are shown; null: the
   *   latest values
   */
  constructor(page, node, board, span = () => null) {
    this.page = page;
    this.span = span;
    this.node = node;
    this.labels = JSON.stringify({ _device_alias: node });
    // The job's allocations are of the node, not of these devices.
    const own = { selector: { labels: this.labels }, expected: () => true, devices: () => [] };
    this.plots = new Plots([], { ...board, ...own }, node);
    this.place = h('div', { class: 'plots' });
    this.note = h('span', { class: 'muted' });
    /** @type {Table<ValueRow>} */
    this.table = new Table({
      name: `Values of devices that feed ${node}`,
      key: (row) => `${row.device} ${row.metric} ${JSON.stringify(row.labels)}`,
      empty: 'No value.',
      columns: [
        {
          id: 'metric', title: 'Metric', class: 'main', text: (row) => row.metric, order: (row) => row.metric,
          cell: (row) => h('button', {
            type: 'button', class: 'link', title: 'Show or hide the plot', onclick: () => this.plot(row.metric),
          }, row.metric),
        },
        {
          id: 'device', title: 'Device', text: (row) => row.device, order: (row) => row.device,
          cell: (row) => h('a', { href: deviceHash(row.device) }, row.device),
        },
        { id: 'labels', title: 'Part', text: (row) => labelText(row.labels) || '–' },
        { id: 'value', title: 'Value', class: 'number', text: (row) => row.text },
        { id: 'age', title: 'Age', class: 'number', text: (row) => row.note },
      ],
    });
    this.element = h('section', { class: 'card', hidden: true },
      h('header', {}, h('h2', {}, `Measured for ${node} by other devices`), this.note), this.place, this.table.element);
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const span = this.span();
    let rows;
    try {
      rows = span === null ? await this.latest(signal) : await this.means(span, signal);
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      // There are more series than the server lists at once.
      setText(this.note, error.message);
      this.element.hidden = false;
      return;
    }
    const rest = rows.length - ROWS_MAX;
    setText(this.note, rest > 0 ? `and ${rest} more` : span === null ? 'latest values' : 'means during the job');
    this.table.update(rows.slice(0, ROWS_MAX));
    this.element.hidden = rows.length === 0;
  }

  /** @param {AbortSignal} signal @returns {Promise<ValueRow[]>} */
  async latest(signal) {
    const { api } = this.page;
    const values = await api.last({ labels: this.labels, job: 'none' }, signal);
    return values.map(({ device, metric, labels, unit, value, time }) => ({
      device, metric, labels, note: ago(time, api.now()),
      text: labels.value_str ?? show(value, quantity(unit)),
    }));
  }

  /**
   * @param {{start: number, stop: number|null}} span
   * @param {AbortSignal} signal
   * @returns {Promise<ValueRow[]>}
   */
  async means({ start, stop }, signal) {
    const { api } = this.page;
    const end = stop ?? api.now();
    const step = Math.max(1, Math.ceil((end - start) / POINTS));
    const answer = await api.range({ labels: this.labels, job: 'none', start, end, step, rate: true }, signal);
    return answer.series.filter(({ values }) => values.some(isValue)).map((one) => ({
      device: one.device, metric: one.metric, labels: one.labels, note: '–',
      text: show(mean(one.values), quantity(one.value_unit, meaningOf(one.metric))),
    }));
  }

  /** @param {string} metric */
  plot(metric) {
    const known = this.page.catalogue.get(metric) ?? { name: metric, unit: '', kind: '', help: '' };
    const spec = { ...plotOf(known, meaningOf(metric)), id: `fed-${this.node}-${metric}` };
    this.plots.add(spec, this.place);
  }

  data() {
    return this.plots.data();
  }

  close() {
    this.plots.close();
  }
}
