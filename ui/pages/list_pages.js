/** Pages with the list of all nodes and the list of all jobs. */

import { fill, h, setText } from '../elements/dom.js';
import { jobTable, nodeTable, orderJobs, orderNodes, paceMs } from '../lists/node_and_job_tables.js';
import { keep } from '../server/route.js';
import { readUsage } from '../values/usage.js';

/** @typedef {import('../frame/app.js').Page} Page */

const REFRESH_MS = 5000;
const JOBS_MAX = 500;

export class NodesPage {
  /** @param {Page} page */
  constructor(page) {
    this.title = 'Nodes';
    this.table = nodeTable(page.api);
    this.count = h('p', { class: 'muted' });
    this.element = h('div', { class: 'stack' }, h('h1', { tabindex: '-1' }, 'Nodes'), this.count,
      h('section', { class: 'card' }, this.table.element));
    this.tasks = [page.live.every(() => paceMs(this.table.rows.length), async (signal) => {
      const nodes = await page.api.nodes(signal);
      const alive = nodes.filter((node) => node.alive).length;
      setText(this.count, `${alive} of ${nodes.length} report.`);
      this.table.update(orderNodes(nodes));
    }, page.say)];
  }

  focusList() {
    this.table.focus();
  }

  close() {
    for (const task of this.tasks) task.cancel();
  }
}

const STATES = ['all', 'running', 'waiting', 'ended', 'failed'];

export class JobsPage {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.title = 'Jobs';
    this.usage = new Map();
    const requested = page.route.query.get('state');
    this.state = requested !== null && STATES.includes(requested) ? requested : 'all';
    this.table = jobTable(() => page.api.now(), this.usage);
    this.count = h('p', { class: 'muted' });
    this.choices = h('div', { class: 'range', role: 'group', 'aria-label': 'State' });
    this.renderChoices();
    this.element = h('div', { class: 'stack' }, h('h1', { tabindex: '-1' }, 'Jobs'),
      this.choices, this.count, h('section', { class: 'card' }, this.table.element));
    this.list = page.live.every(REFRESH_MS, (signal) => this.refresh(signal), page.say);
    this.tasks = [this.list, page.live.every(2 * REFRESH_MS, async (signal) => {
      await readUsage(page.api, page.catalogue, this.usage, null, signal);
      this.table.update(this.table.rows);
    }, page.say)];
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const state = this.state === 'all' ? null : this.state;
    const jobs = await this.page.api.jobs({ state, limit: JOBS_MAX }, signal);
    const most = jobs.length >= JOBS_MAX ? `The latest ${jobs.length}.` : `${jobs.length} known.`;
    setText(this.count, most);
    this.table.update(orderJobs(jobs));
  }

  renderChoices() {
    fill(this.choices, STATES.map((state) => h('button', {
      type: 'button', class: 'choice', 'aria-pressed': String(state === this.state),
      onclick: () => {
        this.state = state;
        keep({ state: state === 'all' ? null : state });
        this.renderChoices();
        this.list.now();
      },
    }, state)));
  }

  focusList() {
    this.table.focus();
  }

  close() {
    for (const task of this.tasks) task.cancel();
  }
}
