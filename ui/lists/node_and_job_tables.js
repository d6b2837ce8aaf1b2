/** Columns and sort order of the lists of nodes and jobs. */

import { jobKey } from '../server/api.js';
import { bar, h, spark } from '../elements/dom.js';
import { jobHash, nodeHash } from '../server/route.js';
import { largest } from '../values/series.js';
import { Table } from '../elements/table.js';
import { ago, duration, fullInstant, instant } from '../values/time.js';
import { bytes, bytesOf, cores } from '../values/units.js';

/** @typedef {import('../server/api.js').NodeInfo} NodeInfo */
/** @typedef {import('../server/api.js').Job} Job */
/** @typedef {import('../values/series.js').Row} Row */
/**
 * @typedef {{cores: number|null, memory: number|null, recent: Row, nodes: number, memoryNodes: number}} Usage what a
 *   job uses now, its cores lately, and the nodes that both sums cover
 */

/**
 * Creates a badge for a state. Its dot differs in shape as well as in colour, for users who cannot see the
 * colour.
 * @param {string} state
 * @param {string} [text]
 */
export function badge(state, text = state) {
  return h('span', { class: `badge ${state}` }, h('span', { class: 'dot', 'aria-hidden': 'true' }), text);
}

/** @param {NodeInfo} node @param {number} now */
export function nodeState(node, now) {
  if (node.conflict) return 'conflict: several agents';
  if (node.alive) return 'alive';
  if (node.last_seen === null) return 'never reported';
  return `${node.stopped ? 'stopped' : 'silent'} since ${instant(node.last_seen, now)}`;
}

/**
 * Returns the seconds between two samples of a node, or 0 if the period is 1.5 s or shorter. Batches arrive
 * once a second at most, so a shorter period cannot be observed.
 * @param {NodeInfo} node
 */
export const periodOf = ({ period_seconds: period }) => (period !== null && period > 1.5 ? Math.round(period) : 0);

const PACE_MS = 5000;
/** Above this number of nodes, a list of nodes is several hundred kilobytes. */
const NODES_MANY = 300;

/**
 * Returns the milliseconds between two requests for a list of nodes.
 * @param {number} nodes how many there are
 */
export const paceMs = (nodes) => (nodes > NODES_MANY ? 3 * PACE_MS : PACE_MS);

/**
 * Sorts nodes that are not alive first, then by name.
 * @param {NodeInfo[]} nodes
 */
export const orderNodes = (nodes) => [...nodes].sort((a, b) =>
  Number(a.alive) - Number(b.alive) || a.device.localeCompare(b.device, undefined, { numeric: true }));

/** @param {number|null} part @param {number|null} whole */
const share = (part, whole) => (part === null || !whole ? null : part / whole);

/**
 * @param {import('../server/api.js').Api} api
 * @returns {Table<NodeInfo>}
 */
export function nodeTable(api) {
  const now = () => api.now();
  const cpu = (/** @type {NodeInfo} */ node) =>
    (node.cpu_cores_used === null ? '–' : `${cores(node.cpu_cores_used)} / ${node.cpu_cores ?? '?'}`);
  const memory = (/** @type {NodeInfo} */ node) => (node.memory_used_bytes === null
    ? '–' : bytesOf(node.memory_used_bytes, node.memory_bytes));
  return new Table({
    name: 'Nodes',
    key: (node) => node.device,
    empty: () => (api.seesOwnNodes
      ? 'You see a node only while one of your jobs runs on it, and none is running now.' : 'No node has reported yet.'),
    columns: [
      {
        id: 'node', title: 'Node', class: 'main', text: (node) => node.device,
        cell: (node) => h('a', { href: nodeHash(node.device) }, node.device),
        order: (node) => node.device,
      },
      {
        id: 'state', title: 'State', text: (node) => nodeState(node, now()),
        cell: (node) => badge(node.alive ? 'alive' : 'silent', nodeState(node, now())),
        order: (node) => (node.alive ? 1 : 0),
      },
      {
        id: 'cpu', title: 'Cores used', class: 'wide', help: 'Processor time used per second, and the number of cores',
        text: cpu, cell: (node) => bar(node.cpu_cores_used, node.cpu_cores, cpu(node)),
        order: (node) => share(node.cpu_cores_used, node.cpu_cores),
      },
      {
        id: 'memory', title: 'Memory used', class: 'wide', text: memory,
        cell: (node) => bar(node.memory_used_bytes, node.memory_bytes, memory(node)),
        order: (node) => share(node.memory_used_bytes, node.memory_bytes),
      },
      {
        id: 'jobs', title: 'Jobs', class: 'number', help: 'Jobs that run on it',
        text: (node) => String(node.jobs.length), order: (node) => node.jobs.length,
      },
    ],
  });
}

/** @param {Job} job @param {number} now */
export function wallOf(job, now) {
  if (job.start === null) return null;
  return (job.stop ?? now) - job.start;
}

/** Returns the job's name, or `job ID` if it has none. @param {Job} job */
export const nameOf = (job) => job.name ?? `job ${job.display_id}`;

/** @param {string[]} devices */
export function devicesText(devices) {
  if (devices.length <= 2) return devices.join(', ');
  return `${devices[0]} and ${devices.length - 1} more`;
}

const RANK = new Map([['running', 0], ['waiting', 1]]);

/**
 * Sorts running jobs first, then waiting jobs, then the others; within each group the latest event comes
 * first.
 * @param {Job[]} jobs
 */
export const orderJobs = (jobs) => [...jobs].sort((a, b) =>
  (RANK.get(a.state) ?? 2) - (RANK.get(b.state) ?? 2) || latest(b) - latest(a) || b.id - a.id);

/** @param {Job} job */
const latest = (job) => job.stop ?? job.start ?? job.submit ?? 0;

/** @param {Job} job */
export function stateText(job) {
  if (job.state === 'failed' && job.exit_code !== null) return `failed (${job.exit_code})`;
  return job.state;
}

/**
 * @param {() => number} now
 * @param {Map<string, Usage>} usage of running jobs, by key; it may change
 * @param {string[]} [without] columns to leave out where there is little room
 * @returns {Table<Job>}
 */
export function jobTable(now, usage, without = []) {
  const used = (/** @type {Job} */ job) => (job.state === 'running' ? usage.get(jobKey(job)) : undefined);
  /** @type {import('../elements/table.js').Column<Job>[]} */
  const columns = [
    {
      id: 'job', title: 'Job', class: 'main', text: (job) => `${nameOf(job)} ${jobKey(job)}`,
      cell: (job) => [
        h('a', { href: jobHash(jobKey(job)) }, nameOf(job)), ' ',
        h('span', { class: 'muted key' }, `${job.cluster}:${job.display_id}`),
      ],
      order: (job) => nameOf(job),
    },
    {
      id: 'state', title: 'State', text: stateText,
      cell: (job) => badge(job.state, stateText(job)), order: (job) => job.state,
    },
    { id: 'user', title: 'User', text: (job) => job.user ?? '–', order: (job) => job.user ?? '' },
    {
      id: 'nodes', title: 'Nodes', text: (job) => devicesText(job.devices),
      cell: (job) => h('span', { title: job.devices.join(', ') }, devicesText(job.devices)),
      order: (job) => job.devices.length,
    },
    {
      id: 'cores', title: 'Cores', class: 'number', help: 'Processor time it uses per second: the last ten minutes, and now',
      text: (job) => `${cores(used(job)?.cores)} ${used(job)?.recent.join(' ') ?? ''}`,
      cell: (job) => coresCell(used(job), job), order: (job) => used(job)?.cores ?? null,
    },
    {
      id: 'memory', title: 'Memory', class: 'number', help: 'Memory of its cgroups now',
      text: (job) => bytes(used(job)?.memory), order: (job) => used(job)?.memory ?? null,
      cell: (job) => h('span', {}, bytes(used(job)?.memory), partOf(used(job)?.memoryNodes, job)),
    },
    {
      id: 'start', title: 'Started', class: 'number', text: (job) => (job.start === null ? '–' : instant(job.start, now())),
      cell: (job) => (job.start === null
        ? '–' : h('time', { title: fullInstant(job.start) }, instant(job.start, now()))),
      order: (job) => job.start,
    },
    {
      id: 'wall', title: 'Wall time', class: 'number', text: (job) => duration(wallOf(job, now())),
      order: (job) => wallOf(job, now()),
    },
  ];
  return new Table({
    name: 'Jobs', key: jobKey, empty: 'No job.',
    columns: columns.filter(({ id }) => !without.includes(id)),
  });
}

/**
 * Returns the number of nodes that a job's sum covers, or null if it covers all of them.
 * @param {number|undefined} nodes
 * @param {Job} job
 */
export function partOf(nodes, { devices }) {
  if (nodes === undefined || nodes === 0 || nodes >= devices.length) return null;
  return h('span', { class: 'muted' }, ` ${nodes} of ${devices.length} nodes`);
}

/** @param {Usage|undefined} usage @param {Job} job */
function coresCell(usage, job) {
  if (usage === undefined) return '–';
  const line = spark(usage.recent, Math.max(1, largest([usage.recent])));
  return h('span', { class: 'with-spark' }, line, h('span', {}, cores(usage.cores)), partOf(usage.nodes, job));
}

/** Formats a time and its age. @param {number|null} at @param {number} now */
export const seenText = (at, now) => (at === null ? 'never' : `${instant(at, now)} (${ago(at, now)})`);
