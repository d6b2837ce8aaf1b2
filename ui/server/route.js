/**
 * URL fragments of the page: `#/`, `#/nodes`, `#/devices`, `#/jobs`, `#/node/NAME`, `#/device/NAME` and
 * `#/job/CLUSTER:ID`.
 *
 * A `?` separates the parameters of the view, for example `#/job/local:7?range=1h`.
 * `#/job/oar:7?start=1767706500` selects an earlier run of a reused job ID.
 */

import { jobKey } from './api.js';

/** Maximum number of other runs of a job ID that the page links. */
const RUNS_MAX = 10;

/**
 * @typedef {object} Route
 * @property {'overview'|'nodes'|'devices'|'jobs'|'node'|'device'|'job'|'unknown'} view
 * @property {string} name the node's or device's name, or the job's key
 * @property {URLSearchParams} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const text = hash.replace(/^#?\/?/, '');
  const cut = text.indexOf('?');
  const path = cut < 0 ? text : text.slice(0, cut);
  const query = new URLSearchParams(cut < 0 ? '' : text.slice(cut + 1));
  const slash = path.indexOf('/');
  const head = slash < 0 ? path : path.slice(0, slash);
  const rest = slash < 0 ? '' : decode(path.slice(slash + 1));
  if (head === '') return { view: 'overview', name: '', query };
  if ((head === 'nodes' || head === 'devices' || head === 'jobs') && rest === '') return { view: head, name: '', query };
  if ((head === 'node' || head === 'device' || head === 'job') && rest !== '') return { view: head, name: rest, query };
  return { view: 'unknown', name: path, query };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} device */
export const nodeHash = (device) => `#/node/${encodeURIComponent(device)}`;

/** @param {string} device that is no node */
export const deviceHash = (device) => `#/device/${encodeURIComponent(device)}`;

/**
 * @param {string} key
 * @param {number|null} [start] of a run that is not the newest of its number
 */
export function jobHash(key, start = null) {
  const hash = `#/job/${key.split(':').map(encodeURIComponent).join(':')}`;
  return start === null ? hash : `${hash}?start=${start}`;
}

/**
 * Returns the runs of the job ID other than the shown one, latest first. Each has its start time, or else its
 * submission time, and its URL fragment.
 * @param {import('./api.js').Job} job
 * @param {import('./api.js').Run[]} runs the newest first
 */
export const otherRuns = (job, runs) => runs
  .map(({ start, submit }, place) => ({ start, submit, at: start ?? submit ?? 0, place }))
  .filter(({ start, submit }) => start !== job.start || submit !== job.submit)
  .slice(0, RUNS_MAX)
  .map(({ at, place }) => ({ at, hash: jobHash(jobKey(job), place === 0 ? null : at) }));

/**
 * Changes parameters of the current URL without a new entry in the history.
 * @param {Record<string, string|null>} changes null takes one out
 */
export function keep(changes) {
  const [path, text = ''] = location.hash.split('?');
  const query = new URLSearchParams(text);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) query.delete(key);
    else query.set(key, value);
  }
  const kept = query.toString();
  history.replaceState(null, '', `${path || '#/'}${kept === '' ? '' : `?${kept}`}`);
}
