/** Pages with the list of all nodes, of all other devices, and of all jobs. */

import { fill, h, setText } from '../elements/dom.js';
import { jobTable, nodeTable, orderJobs, orderNodes, paceMs } from '../lists/node_and_job_tables.js';
import { deviceTable, needsAttention, orderDevices } from '../lists/device_table.js';
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

const DEVICES_MAX = 500;
/** Time without a key press after which a search begins. */
const TYPED_MS = 300;

export class DevicesPage {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.title = 'Devices';
    this.search = page.route.query.get('search') ?? '';
    this.failing = page.route.query.get('failing') === 'true';
    this.typing = 0;
    this.table = deviceTable(page.api);
    this.count = h('p', { class: 'muted' });
    this.field = /** @type {HTMLInputElement} */ (h('input', {
      type: 'search', class: 'filter', value: this.search, placeholder: 'Name, address or node',
      'aria-label': 'Search devices', oninput: () => this.typed(),
    }));
    this.only = h('button', {
      type: 'button', class: 'choice', 'aria-pressed': String(this.failing), onclick: () => this.toggle(),
    }, 'only failing');
    this.element = h('div', { class: 'stack' }, h('h1', { tabindex: '-1' }, 'Devices'),
      h('div', { class: 'range' }, this.field, this.only), this.count,
      h('section', { class: 'card' }, this.table.element));
    this.list = page.live.every(() => paceMs(this.table.rows.length), (signal) => this.refresh(signal), page.say);
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const search = this.search === '' ? null : this.search;
    const query = (/** @type {boolean} */ failing) => this.page.api.devices({ search, failing, limit: DEVICES_MAX }, signal);
    // Failing ones are shown, however many others there are.
    const [failing, all] = await Promise.all([query(true), this.failing ? [] : query(false)]);
    const rows = [...failing, ...all.filter((one) => !needsAttention(one))];
    const number = (/** @type {import('../server/api.js').DeviceInfo[]} */ of) => new Set(of.map(({ device }) => device)).size;
    const isFull = Math.max(number(failing), number(all)) >= DEVICES_MAX;
    const what = number(rows) === 1 ? 'device that is no node' : 'devices that are no nodes';
    setText(this.count, `${isFull ? 'The first ' : ''}${number(rows)} ${what}, `
      + `${number(failing)} of them failing or of a silent poller.`);
    this.table.update(orderDevices(rows));
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = window.setTimeout(() => {
      this.search = this.field.value.trim();
      keep({ search: this.search === '' ? null : this.search });
      this.list.now();
    }, TYPED_MS);
  }

  toggle() {
    this.failing = !this.failing;
    this.only.setAttribute('aria-pressed', String(this.failing));
    keep({ failing: this.failing ? 'true' : null });
    this.list.now();
  }

  focusList() {
    this.table.focus();
  }

  close() {
    clearTimeout(this.typing);
    this.list.cancel();
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
