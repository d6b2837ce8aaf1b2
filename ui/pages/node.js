/** Page of one node: whether it is alive, its jobs, and its plots. */

import { Refused } from '../server/api.js';
import { Plots } from '../plots/plots.js';
import { fill, h, setText } from '../elements/dom.js';
import { DeviceValues } from '../lists/device_values.js';
import { Filesystems } from '../lists/filesystems.js';
import { gapList } from '../lists/gaps.js';
import { Marks } from '../plots/marks.js';
import { badge, jobTable, nodeState, orderJobs, paceMs, periodOf, seenText } from '../lists/node_and_job_tables.js';
import { Metrics } from '../lists/metrics.js';
import { NODE_PLOTS } from '../plots/plot_definitions.js';
import { RangeControl } from '../values/range.js';
import { UnitTable, unitMetrics } from '../lists/systemd.js';
import { duration } from '../values/time.js';
import { readUsage } from '../values/usage.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {import('../server/api.js').NodeInfo} NodeInfo */
/** @typedef {import('../server/api.js').Job} Job */

const SLOW_MS = 30000;
const JOBS_MAX = 200;
/**
 * While the server's uptime is below this, the page shows a shorter range than an hour, which would be mostly
 * empty.
 */
const NEW_S = 1200;
const GAPS_SINCE_S = 7 * 86400;
/** A smaller clock offset is a slow response, not a wrong clock. */
const CLOCK_OFF_S = 2;

export class NodePage {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.title = page.route.name;
    this.device = page.route.name;
    this.usage = new Map();
    this.known = 0;
    /** Jobs that run or ran here, for their names. @type {Job[]} */
    this.recent = [];
    this.state = h('span');
    this.facts = h('p', { class: 'facts' });
    this.jobs = jobTable(() => page.api.now(), this.usage);
    this.jobsBox = h('section', { class: 'card', hidden: true, 'aria-labelledby': 'jobs-title' },
      h('header', {}, h('h2', { id: 'jobs-title' }, 'Jobs on this node')), this.jobs.element);
    this.problem = h('p', { class: 'card problem', hidden: true, role: 'alert' });
    this.units = new UnitTable(page, this.device);
    this.filesystems = new Filesystems(page, this.device);
    this.gaps = h('div');
    this.range = new RangeControl(page.route.query, page.uptime < NEW_S ? '5m' : '1h', null);
    this.board = {
      api: page.api, live: page.live, catalogue: page.catalogue, range: this.range,
      marks: new Marks(page.api, () => [this.device]),
      selector: { device: this.device }, expected: () => true, period: 0,
      jobName: (/** @type {import('../server/api.js').RangeSeries} */ series) => this.nameOf(series),
    };
    this.plots = new Plots(NODE_PLOTS, this.board, this.device);
    this.values = new DeviceValues(page, this.device, this.board);
    this.metrics = new Metrics(this.plots);
    this.element = h('div', { class: 'stack' },
      h('div', { class: 'title-line' }, h('h1', { tabindex: '-1' }, this.device), this.state),
      this.facts, this.problem, this.jobsBox, this.range.element, this.plots.grid,
      this.values.element, this.filesystems.element, this.units.element, this.gaps,
      this.plots.missing, this.metrics.element);
    const failed = (/** @type {Error} */ error) => this.failed(error);
    this.tasks = [
      page.live.every(() => paceMs(this.known), (signal) => this.refresh(signal), failed),
      page.live.every(SLOW_MS, (signal) => this.refreshSeries(signal), failed),
      page.live.every(SLOW_MS, (signal) => this.refreshParts(signal), failed),
      page.live.every(SLOW_MS, (signal) => this.values.refresh(signal), failed),
    ];
  }

  /** @param {Error} error */
  failed(error) {
    setText(this.problem, error.message);
    this.problem.hidden = false;
  }

  /** @param {import('../server/api.js').RangeSeries} series */
  nameOf({ cluster, job }) {
    const known = this.recent.find((one) => one.id === job && one.cluster === cluster);
    const key = `${cluster}:${known?.display_id ?? job}`;
    return known?.name ? `${known.name} ${key}` : key;
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api } = this.page;
    const [nodes, jobs] = await Promise.all([
      api.nodes(signal), api.jobs({ state: 'running', device: this.device, limit: JOBS_MAX }, signal),
    ]);
    this.known = nodes.length;
    const node = nodes.find(({ device }) => device === this.device);
    this.problem.hidden = node !== undefined;
    if (node === undefined) {
      setText(this.problem, api.seesOwnNodes
        ? `You may not see node ${this.device} now: you see a node only while one of your jobs runs on it. `
          + 'The pages of your jobs keep showing their samples of this node.'
        : `The server knows no node ${this.device}.`);
      return;
    }
    this.board.period = periodOf(node);
    this.showNode(node);
    this.jobs.update(orderJobs(jobs));
    this.jobsBox.hidden = jobs.length === 0;
    if (jobs.length > 0) {
      await readUsage(api, this.page.catalogue, this.usage, this.device, signal);
      this.jobs.update(this.jobs.rows);
    }
  }

  /** @param {NodeInfo} node */
  showNode(node) {
    const now = this.page.api.now();
    fill(this.state, badge(node.alive ? 'alive' : 'silent', nodeState(node, now)));
    const offset = node.clock_offset_seconds;
    const fact = (/** @type {string} */ name, /** @type {string} */ value, mood = '') =>
      h('span', { class: `fact ${mood}` }, h('span', { class: 'muted' }, `${name} `), value);
    fill(this.facts,
      fact('Last batch', seenText(node.last_seen, now)),
      node.period_seconds === null ? null : fact('Period', duration(node.period_seconds)),
      node.cpu_cores === null ? null : fact('Cores', String(node.cpu_cores)),
      fact('Series', String(node.series)),
      node.agent_version === null ? null : fact('Agent', node.agent_version),
      node.config_rejected.length === 0 ? null : fact('Rejected or shortened settings',
        node.config_rejected.map((one) => `${one.setting} ${one.reason}`.trim()).join('; ')),
      offset === null || Math.abs(offset) < CLOCK_OFF_S ? null
        : fact('Clock', `${duration(Math.abs(offset))} ${offset > 0 ? 'ahead' : 'behind'}`, 'warn'));
  }

  /** @param {AbortSignal} signal */
  async refreshSeries(signal) {
    const names = await this.metricNames(signal);
    this.plots.offer(names);
    this.metrics.update([...names].map((name) => ({
      value: '', ...(this.page.catalogue.get(name) ?? { name, unit: '', kind: '', help: '' }),
    })));
  }

  /**
   * Returns the metrics that have series on this node, or all known metrics if the node has too many series
   * to list.
   * @param {AbortSignal} signal
   */
  async metricNames(signal) {
    const { api } = this.page;
    const ofJobs = NODE_PLOTS.filter(({ by }) => by === 'job').flatMap(({ lines }) => lines);
    const metric = ofJobs.map((line) => line.metric).join(',');
    try {
      const series = await Promise.all([
        api.series({ device: this.device, job: 'none' }, signal),
        api.series({ device: this.device, metric }, signal),
      ]);
      return new Set(series.flat().map((one) => one.metric));
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      return new Set(this.page.catalogue.keys());
    }
  }

  /** @param {AbortSignal} signal */
  async refreshParts(signal) {
    const { api, catalogue } = this.page;
    const now = api.now();
    const [gaps, recent] = await Promise.all([
      api.gaps({ device: this.device, start: Math.floor(now - GAPS_SINCE_S), end: Math.ceil(now) }, signal),
      api.jobs({ device: this.device, limit: JOBS_MAX }, signal),
      this.filesystems.refresh(signal),
      unitMetrics(catalogue) ? this.units.refresh(signal) : null,
    ]);
    this.recent = recent;
    fill(this.gaps, gapList(gaps, now));
  }

  focusList() {
    this.jobs.focus();
  }

  data() {
    return [...this.plots.data(), ...this.values.data()];
  }

  close() {
    for (const task of this.tasks) task.cancel();
    this.plots.close();
    this.values.close();
  }
}
