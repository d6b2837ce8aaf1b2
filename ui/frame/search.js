/** Search field that finds nodes, devices and jobs by any part of their name, ID or user. */

import { jobKey } from '../server/api.js';
import { fill, h } from '../elements/dom.js';
import { badge, nameOf, orderJobs, orderNodes } from '../lists/node_and_job_tables.js';
import { deviceHash, jobHash, nodeHash } from '../server/route.js';

/** @typedef {import('../server/api.js').Job} Job */
/** @typedef {import('../server/api.js').NodeInfo} NodeInfo */
/** @typedef {import('../server/api.js').DeviceInfo} DeviceInfo */
/** @typedef {{hash: string, text: string, note: string, state: string}} Found */

const JOBS_MAX = 1000;
/** More devices are on their own page, which searches all of them. */
const DEVICES_MAX = 1000;
const FOUND_MAX = 10;
const KEPT_MS = 15000;

export class Search {
  /**
   * @param {HTMLElement} field
   * @param {import('../server/api.js').Api} api
   * @param {() => boolean} open whether the server answers
   */
  constructor(field, api, open) {
    this.field = /** @type {HTMLInputElement} */ (field);
    this.api = api;
    this.open = open;
    /** @type {NodeInfo[]} */
    this.nodes = [];
    /** @type {DeviceInfo[]} */
    this.devices = [];
    /** @type {Job[]} */
    this.jobs = [];
    /** @type {Found[]} */
    this.found = [];
    this.loaded = 0;
    this.at = 0;
    this.list = h('ul', { id: 'search-list', role: 'listbox', 'aria-label': 'Found', class: 'found', hidden: true });
    this.field.after(this.list);
    this.field.addEventListener('input', () => this.typed());
    this.field.addEventListener('focus', () => this.load());
    this.field.addEventListener('blur', () => setTimeout(() => this.show([]), 150));
    this.field.addEventListener('keydown', (event) => this.pressed(event));
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  async load() {
    if (Date.now() - this.loaded < KEPT_MS || !this.open()) return;
    this.loaded = Date.now();
    try {
      [this.nodes, this.devices, this.jobs] = await Promise.all([
        this.api.nodes(), this.api.devices({ limit: DEVICES_MAX }), this.api.jobs({ limit: JOBS_MAX }),
      ]);
      this.typed();
    } catch {
      // Ignore the error: the view polls the server and shows when it is unreachable. The next focus retries.
      this.loaded = 0;
    }
  }

  typed() {
    const words = this.field.value.trim().toLowerCase().split(/\s+/).filter((word) => word !== '');
    if (words.length === 0) {
      this.show([]);
      return;
    }
    const matches = (/** @type {string} */ text) => words.every((word) => text.toLowerCase().includes(word));
    const nodes = orderNodes(this.nodes).filter(({ device }) => matches(device)).map((node) => ({
      hash: nodeHash(node.device), text: node.device, note: 'node', state: node.alive ? 'alive' : 'silent',
    }));
    const devices = this.devices.filter(({ device }) => matches(device)).map(({ device, state }) => ({
      hash: deviceHash(device), text: device, note: 'device', state,
    }));
    const jobs = orderJobs(this.jobs)
      .filter((job) => matches(`${nameOf(job)} ${jobKey(job)} ${job.cluster}:${job.display_id} ${job.user ?? ''} ${job.account ?? ''}`))
      .map((job) => ({
        hash: jobHash(jobKey(job)), text: nameOf(job), state: job.state,
        note: `${job.cluster}:${job.display_id}${job.user === null ? '' : ` · ${job.user}`}`,
      }));
    this.at = 0;
    this.show([...nodes.slice(0, FOUND_MAX / 2), ...devices.slice(0, FOUND_MAX / 4), ...jobs].slice(0, FOUND_MAX));
  }

  /** @param {Found[]} found */
  show(found) {
    this.found = found;
    const typed = this.field.value.trim() !== '' && document.activeElement === this.field;
    this.list.hidden = !typed;
    this.field.setAttribute('aria-expanded', String(typed));
    if (typed && found.length === 0) fill(this.list, h('li', { class: 'muted' }, 'Nothing of that name.'));
    else fill(this.list, found.map((one, i) => this.option(one, i)));
    if (found.length > 0) this.field.setAttribute('aria-activedescendant', `found-${this.at}`);
    else this.field.removeAttribute('aria-activedescendant');
  }

  /**
   * @param {Found} one
   * @param {number} i
   */
  option(one, i) {
    return h('li', {
      role: 'option', id: `found-${i}`, 'aria-selected': String(i === this.at),
      onmousedown: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.go(one);
      },
    }, badge(one.state, one.text), h('span', { class: 'muted' }, one.note));
  }

  /** @param {Found} one */
  go(one) {
    this.field.value = '';
    this.show([]);
    this.field.blur();
    location.hash = one.hash;
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined && this.found.length > 0) {
      this.at = (this.at + move + this.found.length) % this.found.length;
      this.show(this.found);
      event.preventDefault();
    } else if (event.key === 'Enter' && this.found.length > 0) {
      event.preventDefault();
      this.go(this.found[this.at]);
    } else if (event.key === 'Escape') {
      this.field.value = '';
      this.show([]);
      this.field.blur();
    }
  }
}
