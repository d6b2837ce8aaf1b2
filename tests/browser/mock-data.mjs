/**
 * Data of an invented cluster for the page's tests and screenshots: nodes, jobs, services and their usage as
 * functions of time. The types mirror `crates/api`.
 */

/** Returns a pseudo-random number in 0..1 that depends only on a text and an integer. */
function chance(seed, n) {
  let hash = 2166136261 ^ n;
  for (const char of seed) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
  hash = Math.imul(hash ^ (hash >>> 15), 2246822507);
  hash = Math.imul(hash ^ (hash >>> 13), 3266489909);
  return ((hash ^ (hash >>> 16)) >>> 0) / 4294967296;
}

/** Returns a smooth pseudo-random value in 0..1 that changes with a period of `period` seconds. */
function wander(seed, t, period) {
  const at = t / period;
  const n = Math.floor(at);
  const part = at - n;
  const smooth = part * part * (3 - 2 * part);
  return chance(seed, n) * (1 - smooth) + chance(seed, n + 1) * smooth;
}

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;

/**
 * Behaviour of a program at each second of its run: cores and memory as shares of the job's, and I/O in bytes
 * per second.
 */
const KINDS = {
  solver: (t, s) => ({
    cpu: 0.9 + 0.1 * wander(s, t, 11), system: 0.03, memory: 0.35 + 0.3 * (1 - Math.exp(-t / 900)),
    file: 0.05, read: 0.4 * MIB, write: (t % 600) < 40 ? 160 * MIB : 0.2 * MIB, fault: 300,
  }),
  build: (t, s) => ({
    cpu: (t % 97) < 70 ? 0.85 + 0.15 * wander(s, t, 4) : 0.12 + 0.1 * wander(s, t, 7), system: 0.18,
    memory: 0.12 + 0.1 * wander(s, t, 25), file: 0.2 + 0.15 * Math.min(t / 1200, 1),
    read: 4 * MIB * wander(`${s}r`, t, 9), write: 14 * MIB * wander(`${s}w`, t, 8), fault: 42000,
  }),
  training: (t, s) => ({
    cpu: (t % 240) < 200 ? 0.4 + 0.12 * wander(s, t, 9) : 0.08, system: 0.1,
    memory: 0.62 + 0.04 * wander(s, t, 60), file: 0.22, read: (t % 240) < 200 ? 220 * MIB * (0.7 + 0.3 * wander(`${s}r`, t, 13)) : MIB,
    write: (t % 240) > 200 ? 310 * MIB : 0.1 * MIB, fault: 1200,
  }),
  script: (t, s) => ({
    cpu: 0.25 * wander(s, t, 14), system: 0.3, memory: 0.05 + 0.02 * wander(s, t, 40), file: 0.03,
    read: 2 * MIB * wander(`${s}r`, t, 6), write: 1.2 * MIB * wander(`${s}w`, t, 5), fault: 900,
  }),
};

export const CATALOGUE = [
  ['cgroup_cpu_seconds_total', 'seconds', 'counter', 'Processor time of all tasks of the cgroup.'],
  ['cgroup_cpu_user_seconds_total', 'seconds', 'counter', 'The part of cgroup_cpu_seconds_total in user mode.'],
  ['cgroup_cpu_system_seconds_total', 'seconds', 'counter', 'The part of cgroup_cpu_seconds_total in the kernel.'],
  ['cgroup_cpu_throttled_seconds_total', 'seconds', 'counter', 'Time in which the processor limit throttled tasks.'],
  ['cgroup_memory_bytes', 'bytes', 'gauge', 'Memory charged to the cgroup, page cache included.'],
  ['cgroup_memory_peak_bytes', 'bytes', 'gauge', 'Largest memory since the cgroup was made.'],
  ['cgroup_memory_limit_bytes', 'bytes', 'gauge', 'Memory that the cgroup may have.'],
  ['cgroup_memory_anon_bytes', 'bytes', 'gauge', 'Memory of the programs that belongs to no file.'],
  ['cgroup_memory_file_bytes', 'bytes', 'gauge', 'Cached files.'],
  ['cgroup_io_read_bytes_total', 'bytes', 'counter', 'Bytes read from the disk.'],
  ['cgroup_io_write_bytes_total', 'bytes', 'counter', 'Bytes written to the disk.'],
  ['cgroup_io_reads_total', '', 'counter', 'Read requests to the disk.'],
  ['cgroup_io_writes_total', '', 'counter', 'Write requests to the disk.'],
  ['cgroup_page_faults_total', '', 'counter', 'Page faults, major ones included.'],
  ['cgroup_page_faults_major_total', '', 'counter', 'Page faults that waited for a disk.'],
  ['cgroup_tasks', '', 'gauge', 'Processes and threads.'],
  ['cgroup_pressure_cpu_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for a processor.'],
  ['cgroup_pressure_memory_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for memory.'],
  ['cgroup_pressure_io_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for a disk.'],
  ['cgroup_unit_cpu_seconds_total', 'seconds', 'counter', 'Processor time of a systemd unit.'],
  ['cgroup_unit_memory_bytes', 'bytes', 'gauge', 'Memory of a systemd unit.'],
  ['taskstats_voluntary_switches_total', '', 'counter', 'Voluntary context switches of tasks.'],
  ['taskstats_involuntary_switches_total', '', 'counter', 'Context switches that were forced.'],
  ['process_top_cpu_seconds_total', 'seconds', 'counter', 'Processor time of one of the busiest processes.'],
  ['process_top_rss_bytes', 'bytes', 'gauge', 'Memory of one of the busiest processes that is in RAM.'],
  ['cpu_user_seconds_total', 'seconds', 'counter', 'Time of all processors in user mode, guests included, lowered priorities not.'],
  ['cpu_system_seconds_total', 'seconds', 'counter', 'Time of all processors in the kernel, interrupts not included.'],
  ['cpu_iowait_seconds_total', 'seconds', 'counter', 'Time of all processors with nothing to do while a task of theirs waited for a disk.'],
  ['cpu_softirq_seconds_total', 'seconds', 'counter', 'Time of all processors in soft interrupts.'],
  ['cpu_online', '', 'gauge', 'Processors that are on line.'],
  ['agent_cpu_seconds_total', 'seconds', 'counter', 'Processor time of the agent itself.'],
  ['cpu_context_switches_total', '', 'counter', 'Times that a processor went from one task to another.'],
  ['cpu_interrupts_total', '', 'counter', 'Interrupts served.'],
  ['memory_total_bytes', 'bytes', 'gauge', 'Memory that the kernel manages.'],
  ['memory_anon_bytes', 'bytes', 'gauge', 'Pages of processes that belong to no file and are mapped, huge ones included.'],
  ['memory_cached_bytes', 'bytes', 'gauge', 'Cache of files, shared memory and tmpfs included.'],
  ['memory_buffers_bytes', 'bytes', 'gauge', 'Cache of raw block devices, file system metadata above all.'],
  ['memory_slab_bytes', 'bytes', 'gauge', 'Data structures of the kernel.'],
  ['load_1m', '', 'gauge', 'Tasks running, waiting for a processor or in uninterruptible sleep, averaged over 1 minute.'],
  ['load_5m', '', 'gauge', 'The load averaged over 5 minutes.'],
  ['load_15m', '', 'gauge', 'The load averaged over 15 minutes.'],
  ['pressure_cpu_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for a processor.'],
  ['pressure_memory_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for memory.'],
  ['pressure_io_some_seconds_total', 'seconds', 'counter', 'Time that at least one task waited for a disk.'],
  ['disk_read_bytes_total', 'bytes', 'counter', 'Bytes read.'],
  ['disk_write_bytes_total', 'bytes', 'counter', 'Bytes written.'],
  ['disk_reads_total', '', 'counter', 'Read requests done.'],
  ['disk_writes_total', '', 'counter', 'Write requests done.'],
  ['disk_busy_seconds_total', 'seconds', 'counter', 'Time with at least one request in flight.'],
  ['network_received_bytes_total', 'bytes', 'counter', 'Bytes received.'],
  ['network_transmitted_bytes_total', 'bytes', 'counter', 'Bytes sent.'],
  ['ipmi_power_watts', 'watts', 'gauge', 'Power of the node as its BMC measures it.'],
  ['poll_success', '', 'gauge', '1 if the latest poll returned a value of the device, else 0.'],
  ['filesystem_size_bytes', 'bytes', 'gauge', 'Size of the file system.'],
  ['filesystem_free_bytes', 'bytes', 'gauge', 'What is free, the administrator\'s reserve included.'],
  ['filesystem_available_bytes', 'bytes', 'gauge', 'What is free for users.'],
].map(([name, unit, kind, help]) => ({ name, unit, kind, help }));

/** Returns the nodes and jobs of a scene at the time when the mock starts. */
export function scene(name, now) {
  if (name === 'laptop') {
    return { nodes: [node('laptop', 8, 16, 1)], jobs: [], devices: [], gaps: [], units: true };
  }
  if (name === 'markup') {
    const hostile = job('local', 3, '<img src=x onerror=alert(1)>', '"><b>u', 'script', ['<i>n'], 2, 4, now - 60, null);
    return { nodes: [node('<i>n', 4, 8, 1)], jobs: [hostile], devices: [polled('<b>bmc', '<i>n', '<img src=x onerror=alert(1)>', now)], gaps: [], units: true };
  }
  const nodes = [1, 2, 3, 4, 5, 6].map((n) => node(`node-${n}`, 32, 128, 5));
  nodes.push(node('login', 16, 64, 5));
  nodes[4].silentSince = now - 830;
  const jobs = [
    job('slurm', 81234, 'wrf-europe', 'mira', 'solver', ['node-1', 'node-2'], 32, 60, now - 5400, null),
    job('slurm', 81240, 'resnet-sweep_3', 'tom', 'training', ['node-3'], 16, 96, now - 2750, null, '81239_3'),
    job('slurm', 81244, 'openfoam-duct', 'ines', 'solver', ['node-4'], 24, 48, now - 1260, null),
    job('slurm', 81245, 'compile-llvm', 'jonas', 'build', ['node-3'], 12, 24, now - 640, null),
    job('local', 17, 'make', 'mira', 'build', ['login'], 8, 16, now - 95, null),
    job('slurm', 81246, 'assembly', 'ayo', 'script', ['node-4'], 8, 64, now - 9000, now - 1500),
    job('slurm', 81229, 'blast-db', 'ayo', 'training', ['node-6'], 32, 100, now - 26000, now - 4100),
    job('slurm', 81221, 'notebook', 'tom', 'script', ['node-6'], 2, 8, now - 22000, now - 12000, undefined, 137),
    job('local', 16, 'pytest -x', 'ines', 'script', ['login'], 4, 8, now - 9950, now - 9912, undefined, 1),
  ];
  jobs.push({ ...job('slurm', 81250, 'wrf-africa', 'mira', 'solver', [], 32, 60, 0, null), state: 'waiting' });
  const gaps = [
    { origin: 'node-2', device: 'node-2', source: '', from: now - 1515, to: now - 1270, cause: 'agent down', detail: '' },
    { origin: 'node-3', device: 'node-3', source: 'taskstats', from: now - 410, to: now - 365, cause: 'events lost', detail: 'receive buffer full 2 times' },
    { origin: 'node-5', device: 'node-5', source: '', from: now - 5230, to: now - 5125, cause: 'batches lost', detail: 'seq 812 to 832' },
  ];
  const devices = [polled('node-1-bmc', 'node-1', null, now), polled('node-2-bmc', 'node-2', 'source timed out: no answer', now - 400),
    polled('pdu-1', null, null, now)];
  gaps.push({ origin: 'poller-one/group-0', device: 'node-2-bmc', source: 'ipmi', from: now - 400, to: now, cause: 'source timed out', detail: 'no answer' });
  return { nodes, jobs, devices, gaps, units: true };
}

/** A polled device that is alive, or fails for a reason since a time. */
const polled = (device, alias, reason, good) => ({
  device, poller: 'one', protocol: 'ipmi', address: `ipmisensor://${device}:623`, period_seconds: 5,
  state: reason === null ? 'alive' : 'failing', reason, last_good: good, aliases: alias === null ? [] : [alias],
});

/** Returns the metrics of a device at a time. */
export const ofDevice = ({ device, state }, t) => ({
  ipmi_power_watts: 120 + Math.round(90 * wander(device, t, 40)), poll_success: state === 'alive' ? 1 : 0,
});

const node = (device, cores, gib, period) => ({ device, cores, memory: gib * GIB, period });

function job(cluster, id, name, user, kind, devices, cores, gib, start, stop, display_id, exit) {
  const state = stop === null ? 'running' : exit ? 'failed' : 'ended';
  return {
    cluster, id, display_id: display_id ?? String(id), user, uid: 20000 + (user.charCodeAt(0) % 50), name, kind, devices, cores,
    account: cluster === 'local' ? null : 'climate', memory: gib * GIB, start, stop, state,
    exit_code: stop === null ? null : exit ?? 0,
  };
}

/** Returns the usage of a job on one of its nodes. */
export function used(of, device, t) {
  const seed = `${of.id}${device}`;
  const life = KINDS[of.kind](t - of.start, seed);
  const cpu = life.cpu * of.cores;
  const anon = life.memory * of.memory;
  const file = life.file * of.memory;
  const wait = Math.max(0, life.cpu - 0.8) * wander(`${seed}p`, t, 30);
  return {
    cgroup_cpu_seconds_total: cpu,
    cgroup_cpu_user_seconds_total: cpu * (1 - life.system),
    cgroup_cpu_system_seconds_total: cpu * life.system,
    cgroup_cpu_throttled_seconds_total: of.kind === 'training' ? 0.06 * wander(`${seed}t`, t, 20) : null,
    cgroup_memory_bytes: Math.round(anon + file),
    cgroup_memory_anon_bytes: Math.round(anon),
    cgroup_memory_file_bytes: Math.round(file),
    cgroup_memory_peak_bytes: Math.round((life.memory + life.file + 0.04) * of.memory),
    cgroup_memory_limit_bytes: of.memory,
    cgroup_io_read_bytes_total: life.read,
    cgroup_io_write_bytes_total: life.write,
    cgroup_io_reads_total: life.read / 131072,
    cgroup_io_writes_total: life.write / 524288,
    cgroup_page_faults_total: life.fault * (0.6 + 0.8 * wander(`${seed}f`, t, 10)),
    cgroup_page_faults_major_total: life.fault * 0.002 * wander(`${seed}m`, t, 16),
    cgroup_tasks: Math.round(of.cores * 1.5 + 6 * wander(`${seed}n`, t, 30)),
    cgroup_pressure_cpu_some_seconds_total: Math.min(1, wait * 2),
    cgroup_pressure_memory_some_seconds_total: 0.01 * wander(`${seed}y`, t, 25),
    cgroup_pressure_io_some_seconds_total: Math.min(1, (life.read + life.write) / (900 * MIB)),
    taskstats_voluntary_switches_total: 300 + 2200 * wander(`${seed}v`, t, 12),
    taskstats_involuntary_switches_total: 40 + 900 * life.cpu * wander(`${seed}i`, t, 15),
  };
}

/** Returns the node's own counters, which include the usage of its jobs. */
export function ofNode(of, jobs, t) {
  const own = 0.3 + 0.6 * wander(of.device, t, 20);
  const sum = (metric) => jobs.reduce((total, one) => total + (used(one, of.device, t)[metric] ?? 0), 0);
  const cpu = Math.min(sum('cgroup_cpu_seconds_total') + own, of.cores);
  const read = sum('cgroup_io_read_bytes_total') + 0.2 * MIB * wander(`${of.device}r`, t, 9);
  const write = sum('cgroup_io_write_bytes_total') + 0.9 * MIB * wander(`${of.device}w`, t, 7);
  const anon = sum('cgroup_memory_anon_bytes') + 1.4 * GIB;
  const file = sum('cgroup_memory_file_bytes') + 0.13 * of.memory;
  return {
    cpu_user_seconds_total: cpu * 0.9, cpu_system_seconds_total: cpu * 0.1,
    cpu_iowait_seconds_total: Math.min(2, (read + write) / (220 * MIB)), cpu_softirq_seconds_total: 0.02 * cpu,
    agent_cpu_seconds_total: 0.0011 + 0.0006 * wander(`${of.device}a`, t, 25),
    cpu_online: of.cores,
    cpu_context_switches_total: 9000 + 26000 * wander(`${of.device}c`, t, 10), cpu_interrupts_total: 7000 + 12000 * wander(`${of.device}q`, t, 11),
    memory_total_bytes: of.memory, memory_anon_bytes: Math.round(anon), memory_cached_bytes: Math.round(file),
    memory_buffers_bytes: Math.round(0.01 * of.memory), memory_slab_bytes: Math.round(0.02 * of.memory),
    load_1m: Number((cpu * (0.95 + 0.1 * wander(`${of.device}1`, t, 25))).toFixed(2)),
    load_5m: Number((cpu * 0.97).toFixed(2)), load_15m: Number((cpu * 0.92).toFixed(2)),
    pressure_cpu_some_seconds_total: Math.min(1, sum('cgroup_pressure_cpu_some_seconds_total') + 0.01 * own),
    pressure_memory_some_seconds_total: 0.004 * wander(`${of.device}m`, t, 30),
    pressure_io_some_seconds_total: Math.min(1, (read + write) / (800 * MIB)),
    disk_read_bytes_total: { labels: [{ disk: 'nvme0n1' }], value: read },
    disk_write_bytes_total: { labels: [{ disk: 'nvme0n1' }], value: write },
    disk_reads_total: { labels: [{ disk: 'nvme0n1' }], value: read / 131072 },
    disk_writes_total: { labels: [{ disk: 'nvme0n1' }], value: write / 393216 },
    disk_busy_seconds_total: { labels: [{ disk: 'nvme0n1' }], value: Math.min(1, (read + write) / (700 * MIB)) },
    network_received_bytes_total: { labels: [{ interface: 'eno1' }, { interface: 'ib0' }], value: 3 * MIB * wander(`${of.device}n`, t, 9) },
    network_transmitted_bytes_total: { labels: [{ interface: 'eno1' }, { interface: 'ib0' }], value: 2 * MIB * wander(`${of.device}x`, t, 8) },
    filesystem_size_bytes: { labels: [{ mount: '/', type: 'ext4' }, { mount: '/scratch', type: 'xfs' }], value: 892 * GIB },
    filesystem_free_bytes: { labels: [{ mount: '/', type: 'ext4' }, { mount: '/scratch', type: 'xfs' }], value: 311 * GIB },
    filesystem_available_bytes: { labels: [{ mount: '/', type: 'ext4' }, { mount: '/scratch', type: 'xfs' }], value: 266 * GIB },
  };
}

/** Periods in seconds of sources that are read less often than once a tick, by prefix of the metric. */
export const SLOW = [['process_', 30], ['filesystem_', 30], ['taskstats_', 30]];

const UNITS = [['user@1000.service', 1.4, 2.1], ['session-2.scope', 0.6, 3.4], ['docker.service', 0.12, 0.4],
  ['systemd-journald.service', 0.02, 0.05], ['NetworkManager.service', 0.004, 0.02], ['jobmeter-agent.service', 0.003, 0.006],
  ['cron.service', 0.0003, 0.003], ['sshd.service', 0.0002, 0.008]];

export function ofUnits(device, t) {
  return UNITS.map(([unit, cpu, gib]) => ({
    labels: { unit },
    cgroup_unit_cpu_seconds_total: cpu * (0.4 + 1.2 * wander(unit + device, t, 13)),
    cgroup_unit_memory_bytes: Math.round(gib * GIB * (0.9 + 0.2 * wander(`${unit}m`, t, 60))),
  }));
}

export function ofProcesses(of, device, t) {
  const { cgroup_cpu_seconds_total: cpu, cgroup_memory_anon_bytes: anon } = used(of, device, t);
  const commands = { solver: ['wrf.exe', 'wrf.exe', 'mpirun'], build: ['cc1plus', 'cc1plus', 'ld.lld', 'ninja'],
    training: ['python3', 'python3', 'python3'], script: ['bash', 'awk'] }[of.kind];
  return commands.map((command, i) => ({
    labels: { comm: command, pid: String(21000 + i * 17 + (of.id % 100)) },
    process_top_cpu_seconds_total: (cpu / 2) * 0.6 ** i,
    process_top_rss_bytes: Math.round((anon / 2) * 0.6 ** i),
  }));
}
