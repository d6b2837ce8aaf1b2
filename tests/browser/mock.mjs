/**
 * HTTP server with jobmeter's API and invented data, for work on the page without a jobmeter server.
 *
 *     node mock.mjs [PORT] [cluster|laptop]
 */

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CATALOGUE, SLOW, ofDevice, ofNode, ofProcesses, ofUnits, scene, used } from './mock-data.mjs';

const UI = fileURLToPath(new URL('../../ui/', import.meta.url));
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml' };
const HEADERS = { 'content-security-policy': "default-src 'self'", 'x-content-type-options': 'nosniff' };
const KINDS = new Map(CATALOGUE.map((metric) => [metric.name, metric]));

const SELECTION = ['device', 'metric', 'job', 'cluster', 'labels'];
/** Permitted parameters of each route. Like the server, the mock rejects others. */
const PARAMETERS = {
  health: [], nodes: [], devices: ['device', 'node', 'search', 'failing', 'after', 'limit'], catalogue: [], last: SELECTION, gaps: ['device', 'start', 'end'],
  marks: ['device', 'start', 'end'],
  jobs: ['state', 'cluster', 'user', 'device', 'start', 'end', 'limit'], 'jobs/': ['cluster', 'start'],
  series: [...SELECTION, 'start', 'end', 'limit'], range: [...SELECTION, 'start', 'end', 'step', 'rate'],
};

/**
 * @param {{port?: number, scene?: string, token?: string}} [options] with a token, nobody else may ask
 * @returns {Promise<{url: string, close: () => Promise<void>}>}
 */
export async function startMock(options = {}) {
  const started = Date.now() / 1000;
  const world = scene(options.scene ?? 'cluster', started);
  const server = createServer((request, response) => {
    const known = options.token === undefined || request.headers.authorization === `Bearer ${options.token}`;
    answer(world, started, new URL(request.url ?? '/', 'http://mock'), known).then(
      ({ status, type, body }) => {
        response.writeHead(status, { ...HEADERS, 'content-type': type });
        response.end(body);
      },
      (error) => {
        response.writeHead(error.status ?? 500, { ...HEADERS, 'content-type': 'application/json' });
        response.end(JSON.stringify({ code: String(error.status ?? 500), message: error.message, details: null, hint: null }));
      });
  });
  await new Promise((resolve) => server.listen(options.port ?? 0, '127.0.0.1', () => resolve(null)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${port}/`,
    port,
    close: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    }),
  };
}

async function answer(world, started, url, known) {
  if (url.pathname.startsWith('/api/v1/')) {
    if (!known) throw problem(401, 'not authenticated: send a token');
    const value = api(world, started, url.pathname.slice('/api/v1/'.length), url.searchParams);
    return { status: 200, type: 'application/json', body: JSON.stringify(value) };
  }
  const path = url.pathname === '/' ? 'index.html' : url.pathname.replace(/^\/ui\//, '');
  const file = join(UI, normalize(`/${path}`));
  const type = TYPES[extname(file)];
  if (type === undefined) throw problem(404, `no ${url.pathname}`);
  const body = await readFile(file).catch(() => { throw problem(404, `no ${url.pathname}`); });
  return { status: 200, type, body };
}

const problem = (status, message) => Object.assign(new Error(message), { status });

function api(world, started, path, query) {
  const now = Date.now() / 1000;
  const known = PARAMETERS[path.startsWith('jobs/') ? 'jobs/' : path];
  const unknown = [...query.keys()].find((name) => !known?.includes(name));
  if (known && unknown) throw problem(400, `unknown parameter \`${unknown}\`; the parameters are ${known.join(', ')}`);
  if (query.get('cluster') && !query.get('job') && path !== 'jobs') throw problem(400, '`cluster` needs `job`');
  switch (path) {
    case 'health': return health(world, started, now);
    case 'me': return { caller: 'uid 0', role: 'admin', uid: 0, user: 'root', sees_jobs: 'all', sees_nodes: 'always' };
    case 'nodes': return world.nodes.map((node) => nodeInfo(world, node, now));
    case 'devices': return devices(world, query, now);
    case 'jobs': return jobs(world, query);
    case 'catalogue': return CATALOGUE;
    case 'gaps': return world.gaps.filter((gap) => !query.get('device') || gap.device === query.get('device'));
    case 'marks': return marks(world, query, now);
    case 'series': return everySeries(world, now).filter((one) => asked(one, query)).map(info);
    case 'last': return everySeries(world, now).filter((one) => asked(one, query)).map((one) => last(world, one, now));
    case 'range': return range(world, query, now);
    default:
      if (path.startsWith('jobs/')) return report(world, decodeURIComponent(path.slice(5)), query.get('start'), now);
      throw problem(404, `no /api/v1/${path}`);
  }
}

/** Returns one mark: ten minutes ago, root changed the settings of the first node. */
function marks(world, query, now) {
  const node = world.nodes[0].name ?? world.nodes[0].device;
  const one = { at: now - 600, kind: 'set', id: 3, nodes: node, text: 'sources.load.period = "1s"', actor: 'root', job: null };
  return (query.get('device') ?? node).split(',').includes(node) ? [one] : [];
}

function health(world, started, now) {
  return {
    version: '0.1.0', build: 'development', ready: true, uptime_seconds: now - started + 86000, now,
    nodes: world.nodes.length, nodes_alive: world.nodes.filter((node) => !node.silentSince).length,
    jobs_running: world.jobs.filter((job) => job.state === 'running').length,
  };
}

const runsAt = (job, t) => job.start > 0 && job.start <= t && (job.stop === null || t < job.stop);
const jobsOf = (world, device, t) =>
  world.jobs.filter((job) => job.devices.includes(device) && runsAt(job, t));

function nodeInfo(world, node, now) {
  const t = Math.floor(now / node.period) * node.period;
  const here = jobsOf(world, node.device, t);
  const values = ofNode(node, here, t);
  const silent = node.silentSince;
  const known = (value) => (silent ? null : value);
  return {
    device: node.device, alive: !silent, last_seen: silent ?? t + 0.2, period_seconds: node.period,
    clock_offset_seconds: 0.004, agent_version: '0.1.0',
    config_generation: '0', config_rejected: [], series: 412,
    jobs: silent ? [] : here.map((job) => `${job.cluster}:${job.id}`),
    cpu_cores_used: known(values.cpu_user_seconds_total + values.cpu_system_seconds_total),
    cpu_cores: node.cores,
    memory_used_bytes: known(values.memory_anon_bytes + values.memory_slab_bytes), memory_bytes: node.memory,
  };
}

function devices(world, query, now) {
  const text = query.get('search')?.toLowerCase() ?? '';
  return world.devices.filter((one) => (!query.get('device') || query.get('device').split(',').includes(one.device)) &&
    (query.get('failing') !== 'true' || one.state === 'failing') &&
    [one.device, one.address, ...one.aliases].some((name) => name.toLowerCase().includes(text)))
    .map((one) => ({ ...one, last_good: one.state === 'alive' ? Math.floor(now / 5) * 5 : one.last_good }));
}

/** Returns a node, or a device with the period of its polls. */
const nodeOf = (world, device) => world.nodes.find((one) => one.device === device) ?? { device, period: 5 };

function jobs(world, query) {
  const state = query.get('state');
  const device = query.get('device');
  const found = world.jobs.filter((job) => (!state || job.state === state) && (!device || job.devices.includes(device)));
  return found.sort((a, b) => b.start - a.start).slice(0, Number(query.get('limit') ?? 100)).map(jobInfo);
}

/** Adds what a scheduler reports of its jobs. A `local` job has no scheduler. */
function jobInfo({ kind, cores, memory, start, ...job }) {
  const unknown = { nodes: null, cpus: null, gpus: null, memory_bytes: null, wall_seconds: null, cpu_seconds: null };
  const isRecorded = job.cluster !== 'local';
  const began = start > 0;
  return {
    ...job,
    start: began ? start : null,
    project: null, queue: isRecorded ? 'long' : null, state_word: isRecorded ? job.state.toUpperCase() : null,
    submit: isRecorded && began ? start - 40 : null, part_of: null, array_index: null, types: [],
    requested: isRecorded
      ? { ...unknown, nodes: Math.max(1, job.devices.length), cpus: cores, memory_bytes: memory, wall_seconds: 7200 } : unknown,
    used: unknown,
  };
}

function shares({ cluster, devices, cores }) {
  if (cluster === 'local') return [];
  return devices.map((device) => (
    { device, cpus: cores / devices.length, cpu_list: '', gpus: null, gpu_list: '', memory_bytes: null }));
}

/** Returns every series of the scene, each with a function of time. */
function everySeries(world, now) {
  const found = [];
  const add = (device, job, metric, labels, at) => {
    if (KINDS.has(metric)) found.push({ device, job, metric, labels, at });
  };
  for (const node of world.nodes) {
    for (const [metric, value] of Object.entries(ofNode(node, [], now))) {
      const sets = value?.labels ?? [{}];
      sets.forEach((labels, i) => add(node.device, null, metric, labels, (t) => {
        const all = ofNode(node, jobsOf(world, node.device, t), t)[metric];
        return (all?.labels ? all.value : all) * (i === 0 ? 1 : i / (i + 1.7));
      }));
    }
    ofUnits(node.device, now).forEach((unit, i) => {
      for (const metric of Object.keys(unit)) {
        add(node.device, null, metric, unit.labels, (t) => ofUnits(node.device, t)[i][metric]);
      }
    });
  }
  for (const one of world.devices) {
    const [alias] = one.aliases;
    for (const metric of Object.keys(ofDevice(one, now))) {
      const labels = metric === 'poll_success' || alias === undefined ? {} : { _device_alias: alias };
      add(one.device, null, metric, labels, (t) => ofDevice(one, t)[metric]);
    }
  }
  for (const job of world.jobs) {
    if (job.start <= 0) continue;
    for (const device of job.devices) {
      for (const [metric, value] of Object.entries(used(job, device, job.start + 1))) {
        if (value !== null) add(device, job, metric, {}, (t) => used(job, device, t)[metric]);
      }
      ofProcesses(job, device, job.start + 1).forEach((process, i) => {
        for (const metric of Object.keys(process)) {
          add(device, job, metric, process.labels, (t) => ofProcesses(job, device, t)[i][metric]);
        }
      });
    }
  }
  return found;
}

/** Selects series like the server: comma-separated lists, and `job=none` for series that belong to no job. */
function asked({ device, job, metric, labels }, query) {
  const among = (key, value) => !query.get(key) || query.get(key).split(',').includes(value);
  const wanted = query.get('job');
  const rightJob = wanted === null || (wanted === 'none' ? job === null : String(job?.id) === wanted);
  const wantedLabels = Object.entries(JSON.parse(query.get('labels') ?? '{}'));
  if (!wantedLabels.every(([key, value]) => (labels[key] ?? null) === value)) return false;
  return among('device', device) && among('metric', metric) && rightJob &&
    (!query.get('cluster') || job?.cluster === query.get('cluster'));
}

function info({ device, job, metric, labels }) {
  const { unit, kind } = KINDS.get(metric);
  return { device, metric, cluster: job?.cluster ?? null, job: job?.id ?? null, labels, unit, kind };
}

/** Returns the value at a time, or null if the scene has no sample there. */
function valueAt(world, one, t, now) {
  const node = nodeOf(world, one.device);
  const lost = world.gaps.some((gap) => gap.device === one.device && gap.from < t && t < gap.to &&
    (gap.source === '' || one.metric.startsWith(`${gap.source}_`)));
  const before = t < now - 6 * 86400 || (one.job && !runsAt(one.job, t));
  const silent = node.silentSince && t > node.silentSince;
  if (lost || before || silent || t > now) return null;
  return one.at(t);
}

function last(world, one, now) {
  const node = nodeOf(world, one.device);
  const end = Math.min(node.silentSince ?? now, one.job?.stop ?? now);
  const time = Math.floor(end / 30) * 30 - (one.job?.stop ? 30 : 0);
  return { ...info(one), time, value: one.at(time) };
}

function range(world, query, now) {
  const [start, end, step] = ['start', 'end', 'step'].map((key) => Number(query.get(key)));
  if (!(step > 0) || !(end >= start)) throw problem(400, '`start`, `end` and `step` are numbers, start first');
  const series = everySeries(world, now).filter((one) => asked(one, query)).map((one) => {
    const { unit, help, kind } = KINDS.get(one.metric);
    const rate = kind === 'counter' && query.get('rate') === 'true';
    return { ...info(one), value_unit: rate ? `${unit}/s` : unit, help, ...points(world, one, start, end, step, now) };
  });
  return {
    start, end, step_seconds: step, rollup_seconds: 0, truncated: false,
    series: series.filter((one) => one.times.length > 0),
    gaps: world.gaps.filter((gap) => (!query.get('device') || gap.device === query.get('device')) &&
      gap.to > start && gap.from < end && series.some((one) => one.device === gap.device)),
  };
}

/** Returns points like the server: only where samples exist, and one point without a value in each hole. */
function points(world, one, start, end, step, now) {
  const node = nodeOf(world, one.device);
  const period = SLOW.find(([prefix]) => one.metric.startsWith(prefix))?.[1] ?? node.period;
  const apart = Math.max(step, period);
  const times = [];
  const values = [];
  for (let t = Math.ceil(start / apart) * apart; t <= end; t += apart) {
    const value = valueAt(world, one, t, now);
    if (value === null) continue;
    const last = times.at(-1);
    if (last !== undefined && t - last > 2.5 * apart) {
      times.push(last + apart);
      values.push(null);
    }
    times.push(t);
    values.push(value);
  }
  return { times, values };
}

/** Returns the runs of a job ID, latest first. The ID 81234 is reused. */
const runsOf = (job) => (job.id !== 81234 ? [job]
  : [job, { ...job, start: job.start - 86400, stop: job.start - 82800, state: 'ended' }]);

function report(world, key, start, now) {
  const newest = world.jobs.find((one) => `${one.cluster}:${one.id}` === key || String(one.id) === key);
  const runs = newest === undefined ? [] : runsOf(newest);
  const job = runs.find((one) => start === null || one.start < Number(start) + 1);
  if (!job) throw problem(404, `no job ${key}`);
  const mine = everySeries(world, now).filter((one) => one.job === newest);
  const stop = job.stop ?? now;
  const samples = Array.from({ length: 60 }, (_, i) => job.start + ((stop - job.start) * (i + 0.5)) / 60);
  const lines = new Map();
  for (const one of mine) {
    const { unit, kind } = KINDS.get(one.metric);
    const values = samples.map((t) => one.at(t) ?? 0);
    const average = values.reduce((a, b) => a + b, 0) / values.length;
    const line = lines.get(one.metric) ??
      { metric: one.metric, unit, kind, increase: null, average: null, max: null, samples: 0 };
    if (kind === 'counter') line.increase = (line.increase ?? 0) + average * (stop - job.start);
    else line.average = (line.average ?? 0) + average;
    if (kind === 'gauge') line.max = Math.max(line.max ?? 0, ...values);
    line.samples += Math.round((stop - job.start) / 5);
    lines.set(one.metric, line);
  }
  return {
    job: jobInfo(job),
    runs: runs.map(jobInfo).map(({ start: began, submit, stop: ended, state }) => ({ start: began, submit, stop: ended, state })),
    allocations: job.devices.map((device) => ({ device, start: job.start, stop: job.stop })),
    nodes: shares(job), steps: [],
    totals: totals(lines, stop - job.start), metrics: [...lines.values()],
    series: mine.map(({ device, metric, labels }) => ({ device, metric, labels })),
    gaps: world.gaps.filter((gap) => job.devices.includes(gap.device) && gap.to > job.start && gap.from < stop),
  };
}

function totals(lines, wall) {
  const grew = (metric) => lines.get(metric)?.increase ?? null;
  const cpu = grew('cgroup_cpu_seconds_total');
  return {
    wall_seconds: wall, cpu_seconds: cpu,
    cpu_user_seconds: grew('cgroup_cpu_user_seconds_total'),
    cpu_system_seconds: grew('cgroup_cpu_system_seconds_total'),
    cores_used: cpu === null ? null : cpu / wall,
    memory_peak_bytes: lines.get('cgroup_memory_peak_bytes')?.max ?? null,
    io_read_bytes: grew('cgroup_io_read_bytes_total'), io_write_bytes: grew('cgroup_io_write_bytes_total'),
    minor_faults: grew('cgroup_page_faults_total'), major_faults: grew('cgroup_page_faults_major_total'),
    voluntary_switches: grew('taskstats_voluntary_switches_total'),
    involuntary_switches: grew('taskstats_involuntary_switches_total'),
    throttled_seconds: grew('cgroup_cpu_throttled_seconds_total'),
    pressure_cpu_seconds: grew('cgroup_pressure_cpu_some_seconds_total'),
    pressure_memory_seconds: grew('cgroup_pressure_memory_some_seconds_total'),
    pressure_io_seconds: grew('cgroup_pressure_io_some_seconds_total'),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ port: Number(process.argv[2] ?? 8791), scene: process.argv[3] });
  process.stdout.write(`ready: ${mock.url}\n`);
}
