/** Current usage of every running job, from two requests for all jobs. */

import { isValue, place, sum } from './series.js';

/** @typedef {import('../server/api.js').Api} Api */
/** @typedef {import('../server/api.js').RangeSeries} RangeSeries */
/** @typedef {import('../lists/node_and_job_tables.js').Usage} Usage */

const CPU = 'cgroup_cpu_seconds_total';
const MEMORY = 'cgroup_memory_bytes';
const STEP_S = 20;
const RECENT_S = 600;
/** Older values do not count as current, in seconds. */
const FRESH_S = 90;

/**
 * @param {Api} api
 * @param {Map<string, unknown>} catalogue
 * @param {Map<string, Usage>} usage what is found is put here, by the job's key
 * @param {string|null} device only what they use there; null for all nodes
 * @param {AbortSignal} signal
 */
export async function readUsage(api, catalogue, usage, device, signal) {
  const now = Math.ceil(api.now());
  const end = Math.floor(now / STEP_S) * STEP_S;
  const [cpu, memory] = await Promise.all([
    catalogue.has(CPU)
      ? api.range({ device, metric: CPU, start: end - RECENT_S, end: now, step: STEP_S, rate: true }, signal)
      : { series: [] },
    catalogue.has(MEMORY) ? api.last({ device, metric: MEMORY }, signal) : [],
  ]);
  usage.clear();
  /** @param {{cluster: string|null, job: number|null}} of @returns {Usage|null} */
  const entry = (of) => {
    if (of.job === null) return null;
    const key = `${of.cluster}:${of.job}`;
    const known = usage.get(key) ?? { cores: null, memory: null, recent: [], nodes: 0, memoryNodes: 0 };
    usage.set(key, known);
    return known;
  };
  /** @type {Map<Usage, RangeSeries[]>} */
  const parts = new Map();
  for (const series of cpu.series) {
    const found = entry(series);
    if (found) parts.set(found, [...(parts.get(found) ?? []), series]);
  }
  const times = Array.from({ length: RECENT_S / STEP_S + 1 }, (_, i) => end - RECENT_S + i * STEP_S);
  for (const [found, series] of parts) {
    const rows = series.map((one) => place(one, times));
    const fresh = rows.map((row) => row.findLast((value, i) => isValue(value) && times[i] >= end - FRESH_S));
    found.recent = sum(rows);
    // Leave silent nodes out; the cell shows the number of nodes that the sum covers.
    const current = series.flatMap((one, i) => (isValue(fresh[i]) ? [one.device] : []));
    found.nodes = new Set(current).size;
    found.cores = current.length === 0 ? null : fresh.filter(isValue).reduce((a, b) => a + b, 0);
  }
  for (const last of memory) {
    const found = last.value === null || last.time < end - FRESH_S ? null : entry(last);
    if (found) {
      found.memory = (found.memory ?? 0) + Number(last.value);
      found.memoryNodes += 1;
    }
  }
}
