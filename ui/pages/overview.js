/** First page: nodes, running jobs, and how to start a first job. */

import { bar, fill, h, setText } from '../elements/dom.js';
import { jobTable, nodeTable, orderJobs, orderNodes, paceMs } from '../lists/node_and_job_tables.js';
import { bytes, count, digits } from '../values/units.js';
import { UnitTable, unitMetrics } from '../lists/systemd.js';
import { readUsage } from '../values/usage.js';

/** @typedef {import('../frame/app.js').Page} Page */

const USAGE_MS = 10000;
/** Longer lists are on their own pages. */
const NODES_SHOWN = 12;
const JOBS_SHOWN = 15;
/** With more nodes than this, the overview hides systemd units, because they would bury the jobs. */
const NODES_WITH_UNITS = 3;

const RUN_LINE = './jobmeter run -- make -j2';

export class Overview {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.title = 'Overview';
    this.usage = new Map();
    this.known = 0;
    this.nodes = nodeTable(page.api);
    this.jobs = jobTable(() => page.api.now(), this.usage, ['start']);
    this.tiles = h('div', { class: 'tiles' });
    this.allNodes = h('a', { href: '#/nodes', class: 'more' }, 'all nodes');
    this.allJobs = h('a', { href: '#/jobs', class: 'more' }, 'all jobs');
    this.start = startHere();
    this.units = new UnitTable(page, null);
    this.jobsBox = h('section', { class: 'card', 'aria-labelledby': 'jobs-title' },
      h('header', {}, h('h2', { id: 'jobs-title' }, 'Jobs'), this.allJobs), this.jobs.element);
    this.element = h('div', { class: 'stack' },
      h('h1', { tabindex: '-1' }, 'Overview'), this.tiles, this.start,
      h('div', { class: 'columns' },
        this.jobsBox,
        h('section', { class: 'card', 'aria-labelledby': 'nodes-title' },
          h('header', {}, h('h2', { id: 'nodes-title' }, 'Nodes'), this.allNodes), this.nodes.element)),
      this.units.element);
    this.tasks = [
      page.live.every(() => paceMs(this.known), (signal) => this.refresh(signal), page.say),
      page.live.every(USAGE_MS, (signal) => this.refreshUsage(signal), page.say),
    ];
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api } = this.page;
    const [health, nodes, running, recent] = await Promise.all([
      api.health(signal), api.nodes(signal),
      api.jobs({ state: 'running', limit: JOBS_SHOWN }, signal),
      api.jobs({ limit: JOBS_SHOWN }, signal),
    ]);
    this.page.healthSeen(health);
    this.known = nodes.length;
    const jobs = new Map([...running, ...recent].map((job) => [`${job.cluster}:${job.id}`, job]));
    this.showTiles(health, nodes);
    this.nodes.update(orderNodes(nodes).slice(0, NODES_SHOWN));
    this.jobs.update(orderJobs([...jobs.values()]).slice(0, JOBS_SHOWN));
    setText(this.allNodes, nodes.length > NODES_SHOWN ? `all ${nodes.length} nodes` : 'all nodes');
    this.start.hidden = jobs.size > 0;
    this.jobsBox.hidden = jobs.size === 0;
    const few = nodes.length <= NODES_WITH_UNITS || jobs.size === 0;
    if (few && unitMetrics(this.page.catalogue)) await this.units.refresh(signal);
  }

  /** @param {AbortSignal} signal */
  async refreshUsage(signal) {
    await readUsage(this.page.api, this.page.catalogue, this.usage, null, signal);
    this.jobs.update(this.jobs.rows);
  }

  /**
   * @param {import('../server/api.js').Health} health
   * @param {import('../server/api.js').NodeInfo[]} nodes
   */
  showTiles(health, nodes) {
    const alive = nodes.filter((node) => node.alive);
    const cpu = total(alive, 'cpu_cores_used');
    const cpuAll = total(alive, 'cpu_cores');
    const memory = total(alive, 'memory_used_bytes');
    const memoryAll = total(alive, 'memory_bytes');
    const silent = health.nodes - health.nodes_alive;
    fill(this.tiles,
      tile('Nodes', `${health.nodes_alive} of ${health.nodes}`,
        silent > 0 ? `${silent} silent` : 'all report', silent > 0 ? 'warn' : ''),
      tile('Jobs', String(health.jobs_running), health.jobs_running === 1 ? 'runs now' : 'run now'),
      tile('Cores used', cpu === null ? '–' : digits(cpu),
        cpuAll === null ? '' : bar(cpu, cpuAll, `of ${count(cpuAll)}${telling(alive, 'cpu_cores_used', nodes)}`)),
      tile('Memory used', bytes(memory),
        memoryAll === null ? '' : bar(memory, memoryAll, `of ${bytes(memoryAll)}${telling(alive, 'memory_used_bytes', nodes)}`)));
  }

  /** @param {'nodes'|'devices'|'jobs'} list */
  focusList(list) {
    (list === 'nodes' ? this.nodes : this.jobs).focus();
  }

  close() {
    for (const task of this.tasks) task.cancel();
  }
}

/**
 * Sums a figure over nodes; null if no node reports it.
 * @param {import('../server/api.js').NodeInfo[]} nodes
 * @param {'cpu_cores_used'|'cpu_cores'|'memory_used_bytes'|'memory_bytes'} key
 */
function total(nodes, key) {
  const known = nodes.map((node) => node[key]).filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((a, b) => Number(a) + Number(b), 0);
}

/**
 * Returns the number of nodes that a sum covers, or an empty text if it covers all.
 * @param {import('../server/api.js').NodeInfo[]} alive
 * @param {'cpu_cores_used'|'memory_used_bytes'} key
 * @param {import('../server/api.js').NodeInfo[]} nodes
 */
function telling(alive, key, nodes) {
  const covered = alive.filter((node) => node[key] !== null).length;
  return covered === nodes.length ? '' : `, ${covered} of ${nodes.length} nodes`;
}

/**
 * @param {string} name
 * @param {string} value
 * @param {import('../elements/dom.js').Child} note
 * @param {string} [mood]
 */
export function tile(name, value, note, mood = '') {
  return h('div', { class: `tile ${mood}` }, h('div', { class: 'tile-name' }, name),
    h('div', { class: 'tile-value' }, value), h('div', { class: 'tile-note' }, note));
}

/** Shows the command to run a job while the server has no job yet. */
function startHere() {
  const said = h('span', { role: 'status', class: 'muted' });
  const copy = h('button', {
    type: 'button', class: 'button', onclick: async () => {
      try {
        await navigator.clipboard.writeText(RUN_LINE);
        setText(said, 'Copied.');
      } catch {
        getSelection()?.selectAllChildren(line);
        setText(said, 'Selected: press Ctrl+C.');
      }
    },
  }, 'Copy');
  const line = h('code', {}, RUN_LINE);
  return h('section', { class: 'card start', hidden: true },
    h('h2', {}, 'No job yet'),
    h('p', {}, 'Run any command as a job and watch here what it uses while it runs:'),
    h('p', { class: 'command' }, line, copy, said),
    h('p', { class: 'muted' },
      'Jobs of OAR and Slurm appear automatically on nodes that run their cgroups.'));
}
