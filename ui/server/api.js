/**
 * HTTP client of the server's API. The types mirror `crates/api`: times are seconds since 1970, and `null`
 * means unknown.
 */

import { keepValue, kept } from '../frame/storage.js';

/**
 * @typedef {{version: string, build: string, ready: boolean, writing_fails: boolean, uptime_seconds: number, now: number,
 *   nodes_alive: number, nodes: number, jobs_running: number}} Health
 * @typedef {{device: string, alive: boolean, conflict: boolean, last_seen: number|null, period_seconds: number|null,
 *   clock_offset_seconds: number|null, agent_version: string|null,
 *   config_generation: string|null, config_rejected: Rejection[], series: number, jobs: string[],
 *   cpu_cores_used: number|null, cpu_cores: number|null, memory_used_bytes: number|null,
 *   memory_bytes: number|null}} NodeInfo
 * @typedef {{setting: string, code: string, reason: string}} Rejection
 * @typedef {{device: string, poller: string|null, protocol: string|null, address: string|null,
 *   period_seconds: number|null, state: string, reason: string|null, last_good: number|null,
 *   aliases: string[]}} DeviceInfo
 * @typedef {{cluster: string, id: number, display_id: string, user: string|null, uid: number|null,
 *   account: string|null, project: string|null, name: string|null, queue: string|null, state: string,
 *   state_word: string|null, submit: number|null, start: number|null, stop: number|null,
 *   exit_code: number|null, part_of: number|null, array_index: number|null, types: string[],
 *   requested: Resources, used: Resources, devices: string[]}} Job
 * @typedef {{nodes: number|null, cpus: number|null, gpus: number|null, memory_bytes: number|null,
 *   wall_seconds: number|null, cpu_seconds: number|null}} Resources
 * @typedef {{device: string, cpus: number|null, cpu_list: string, gpus: number|null, gpu_list: string,
 *   memory_bytes: number|null}} NodeShare
 * @typedef {{id: string, name: string, state_word: string, start: number|null, stop: number|null,
 *   exit_code: number|null}} Step
 * @typedef {{device: string, start: number, stop: number|null}} Allocation
 * @typedef {{device: string, metric: string, labels: Record<string, string>}} SeriesRef
 * @typedef {{metric: string, unit: string, kind: string, increase: number|null,
 *   average: number|null, max: number|null, samples: number}} MetricTotal
 * @typedef {{origin: string, device: string, source: string, from: number, to: number,
 *   cause: string, detail: string}} Gap
 * @typedef {{start: number|null, submit: number|null, stop: number|null, state: string}} Run
 * @typedef {{job: Job, runs: Run[], allocations: Allocation[], nodes: NodeShare[], steps: Step[],
 *   totals: Record<string, number|null>, origins?: TotalOrigin[], coverage?: import('../values/coverage.js').Coverage,
 *   metrics: MetricTotal[], series: SeriesRef[], gaps: Gap[],
 *   end?: {cause: string, detail: string}|null, oom_kills?: OomKill[]}} JobReport
 * @typedef {{total: string, origins: string[], note: string|null, nodes: number}} TotalOrigin
 * @typedef {{device: string, time: number, task: string, pid: number, uid: number|null,
 *   task_bytes: number|null, limit_bytes: number|null}} OomKill
 * @typedef {{name: string, unit: string, kind: string, help: string}} MetricInfo
 * @typedef {SeriesRef & {cluster: string|null, job: number|null, unit: string, kind: string}} SeriesInfo
 * @typedef {SeriesInfo & {time: number, value: number|null}} Last
 * @typedef {SeriesInfo & {value_unit: string, help: string, times: number[],
 *   values: Array<number|null>, seconds?: number[]}} RangeSeries
 * @typedef {{start: number, end: number, step_seconds: number, rollup_seconds: number, series: RangeSeries[],
 *   gaps: Gap[], truncated: boolean}} Range
 * @typedef {{at: number, kind: string, id: number, nodes: string, text: string, actor: string|null,
 *   job: string|null}} Mark
 * @typedef {{caller: string, role: string, uid: number|null, user: string|null, sees_jobs: string,
 *   sees_nodes: string}} Me
 * @typedef {Record<string, string|number|boolean|null|undefined>} Query
 */

const TIMEOUT_MS = 15000;
const TOKEN_KEY = 'jobmeter-token';

/** The server cannot be reached. */
export class Unreachable extends Error {}

/** The server answers with an error status; `message` comes from the server. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Returns the URL of a request.
 * @param {string} path below `api/v1/`
 * @param {Query} [query] what is null, undefined or false is left out
 */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== null && v !== undefined && v !== false);
  const text = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return `api/v1/${path}${text === '' ? '' : `?${text}`}`;
}

/**
 * Returns the API's key of a job, `CLUSTER:ID`.
 * @param {{cluster: string, id: number}} job
 */
export const jobKey = (job) => `${job.cluster}:${job.id}`;

export class Api {
  constructor() {
    /** Server clock minus browser clock, in seconds. */
    this.clockAhead = 0;
    this.token = kept('sessionStorage', TOKEN_KEY);
    /** @type {Me|null} the caller, once the server has reported it */
    this.me = null;
  }

  /** True if access control limits the user to the nodes of their own jobs, while these jobs run. */
  get seesOwnNodes() {
    return this.me?.sees_nodes === 'own';
  }

  /**
   * Requests the identity and permissions of the user.
   * @param {AbortSignal} [signal]
   */
  async whoAmI(signal) {
    try {
      this.me = await this.get('me', {}, signal);
    } catch (error) {
      // A server of an earlier version has no route `me` and answers 404.
      if (!(error instanceof Refused) || error.status !== 404) throw error;
    }
  }

  /** Returns the server's current time, in seconds since 1970. */
  now() {
    return Date.now() / 1000 + this.clockAhead;
  }

  /** @param {string|null} token kept until the tab closes */
  setToken(token) {
    this.token = token;
    keepValue('sessionStorage', TOKEN_KEY, token);
  }

  /**
   * @param {string} path
   * @param {Query} query
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async get(path, query = {}, signal) {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const { token } = this;
    /** @type {Record<string, string>} */
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    let response;
    let body;
    try {
      response = await fetch(address(path, query), { headers, signal: either, cache: 'no-store' });
      body = await response.text();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Unreachable(timeout.aborted ? 'no response in time' : 'no response');
    }
    // The server rejected the former token; the user has entered another one meanwhile.
    if (response.status === 401 && this.token !== token) return this.get(path, query, signal);
    return answer(response, body);
  }

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<Health>}
   */
  async health(signal) {
    const health = await this.get('health', {}, signal);
    this.clockAhead = health.now - Date.now() / 1000;
    return health;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<NodeInfo[]>} */
  nodes(signal) {
    return this.get('nodes', {}, signal);
  }

  /**
   * Devices that are no nodes.
   * @param {Query} query
   * @param {AbortSignal} [signal]
   * @returns {Promise<DeviceInfo[]>}
   */
  devices(query, signal) {
    return this.get('devices', query, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Job[]>} */
  jobs(query, signal) {
    return this.get('jobs', query, signal);
  }

  /**
   * @param {string} key
   * @param {string|null} start of the newest run that had begun by then; null: of the newest
   * @param {AbortSignal} [signal]
   * @returns {Promise<JobReport>}
   */
  report(key, start, signal) {
    const query = start === null ? {} : { start };
    return this.get(`jobs/${key.split(':').map(encodeURIComponent).join(':')}`, query, signal);
  }

  /** @param {AbortSignal} [signal] @returns {Promise<MetricInfo[]>} */
  catalogue(signal) {
    return this.get('catalogue', {}, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<SeriesInfo[]>} */
  series(query, signal) {
    return this.get('series', query, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Last[]>} */
  last(query, signal) {
    return this.get('last', query, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Range>} */
  range(query, signal) {
    return this.get('range', query, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Gap[]>} */
  gaps(query, signal) {
    return this.get('gaps', query, signal);
  }

  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Mark[]>} */
  marks(query, signal) {
    return this.get('marks', query, signal);
  }
}

/**
 * @param {Response} response
 * @param {string} body
 */
function answer(response, body) {
  let value = null;
  try {
    value = JSON.parse(body);
  } catch {
    if (response.ok) throw new Refused(response.status, 'the server\'s response is not JSON');
  }
  if (response.ok) return value;
  // A proxy answers with 502 to 504 while the server behind it is unreachable.
  if (value === null && response.status >= 502 && response.status <= 504) {
    throw new Unreachable(`the proxy responds ${response.status}`);
  }
  const message = typeof value?.message === 'string' ? value.message : response.statusText;
  throw new Refused(response.status, message || `error ${response.status}`);
}
