/** Page of a device that is no node: its state by each target, its metrics, its gaps, and the nodes that it feeds. */

import { fill, h, setText } from '../elements/dom.js';
import { nodeLinks } from '../lists/device_table.js';
import { gapList } from '../lists/gaps.js';
import { Metrics } from '../lists/metrics.js';
import { badge, seenText } from '../lists/node_and_job_tables.js';
import { Marks } from '../plots/marks.js';
import { Plots } from '../plots/plots.js';
import { Refused } from '../server/api.js';
import { RangeControl } from '../values/range.js';
import { duration } from '../values/time.js';
import { quantity, show } from '../values/units.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {import('../server/api.js').DeviceInfo} DeviceInfo */

const REFRESH_MS = 5000;
const SLOW_MS = 30000;
const GAPS_SINCE_S = 7 * 86400;
const SERIES_MAX = 2000;

export class DevicePage {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.device = page.route.name;
    this.title = this.device;
    this.state = h('span');
    this.targets = h('div');
    this.feeds = h('p', { class: 'facts' });
    this.problem = h('p', { class: 'card problem', hidden: true, role: 'alert' });
    this.gaps = h('div');
    this.range = new RangeControl(page.route.query, '1h', null);
    this.board = {
      api: page.api, live: page.live, catalogue: page.catalogue, range: this.range,
      marks: new Marks(page.api, () => [this.device]),
      selector: { device: this.device }, expected: () => true, period: 0, jobName: () => '',
    };
    this.plots = new Plots([], this.board, this.device);
    this.metrics = new Metrics(this.plots, 'Now');
    this.metrics.element.setAttribute('open', '');
    this.element = h('div', { class: 'stack' },
      h('div', { class: 'title-line' }, h('h1', { tabindex: '-1' }, this.device), this.state),
      this.targets, this.feeds, this.problem, this.range.element, this.metrics.element, this.gaps);
    const failed = (/** @type {Error} */ error) => this.failed(error);
    this.tasks = [
      page.live.every(REFRESH_MS, (signal) => this.refresh(signal), failed),
      page.live.every(REFRESH_MS, (signal) => this.refreshMetrics(signal), failed),
      page.live.every(SLOW_MS, (signal) => this.refreshGaps(signal), failed),
    ];
  }

  /** @param {Error} error */
  failed(error) {
    setText(this.problem, error.message);
    this.problem.hidden = false;
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api } = this.page;
    const found = await api.devices({ device: this.device }, signal);
    if (found.length === 0) {
      this.failed(new Error(api.seesOwnNodes
        ? `You may not see device ${this.device} now: you see a device only while it feeds a node of one of your jobs.`
        : `The server knows no device ${this.device} besides the nodes.`));
      return;
    }
    this.problem.hidden = true;
    this.board.period = Math.max(0, ...found.map((one) => one.period_seconds ?? 0));
    const states = [...new Set(found.map((one) => one.state))];
    fill(this.state, states.flatMap((state) => [badge(state), ' ']));
    fill(this.targets, found.map((one) => this.target(one)));
    const aliases = [...new Set(found.flatMap((one) => one.aliases))];
    fill(this.feeds, aliases.length === 0 ? null : h('span', { class: 'fact' },
      h('span', { class: 'muted' }, aliases.length === 1 ? 'Feeds the node ' : 'Feeds the nodes '), nodeLinks(aliases)));
  }

  /** @param {DeviceInfo} one */
  target(one) {
    const fact = (/** @type {string} */ name, /** @type {string|null} */ value, mood = '') => (value === null ? null
      : h('span', { class: `fact ${mood}` }, h('span', { class: 'muted' }, `${name} `), value));
    return h('p', { class: 'facts target' },
      fact('State', one.reason === null ? one.state : `${one.state}: ${one.reason}`, ['alive', 'ended'].includes(one.state) ? '' : 'warn'),
      fact('Address', one.address),
      fact('Poller', one.poller),
      fact('Period', one.period_seconds === null ? null : duration(one.period_seconds)),
      fact('Last good value', seenText(one.last_good, this.page.api.now())));
  }

  /** @param {AbortSignal} signal */
  async refreshMetrics(signal) {
    const { api, catalogue } = this.page;
    const series = await api.series({ device: this.device, job: 'none', limit: SERIES_MAX }, signal);
    /** @type {Map<string, string[]>} */
    const values = new Map();
    for (const { metric } of series) values.set(metric, []);
    for (const { metric, unit, value, labels } of await this.latest(signal)) {
      const texts = values.get(metric) ?? [];
      texts.push(labels.value_str ?? show(value, quantity(unit)));
      values.set(metric, texts);
    }
    const text = (/** @type {string[]} */ texts) => (texts.length > 1 ? `${texts.length} series` : texts[0] ?? '–');
    this.metrics.update([...values].map(([name, texts]) => ({
      ...(catalogue.get(name) ?? { name, unit: '', kind: '', help: '' }), value: text(texts),
    })));
  }

  /**
   * Returns the latest values, or none if the device has more series than the server lists at once.
   * @param {AbortSignal} signal
   */
  async latest(signal) {
    try {
      return await this.page.api.last({ device: this.device, job: 'none' }, signal);
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      return [];
    }
  }

  /** @param {AbortSignal} signal */
  async refreshGaps(signal) {
    const now = this.page.api.now();
    const span = { start: Math.floor(now - GAPS_SINCE_S), end: Math.ceil(now) };
    fill(this.gaps, gapList(await this.page.api.gaps({ device: this.device, ...span }, signal), now));
  }

  data() {
    return this.plots.data();
  }

  close() {
    for (const task of this.tasks) task.cancel();
    this.plots.close();
  }
}
