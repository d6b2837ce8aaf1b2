/**
 * Definitions of the plots of a job's page and of a node's page. A line without its metric is left out. The
 * page lists the plots that have none of their metrics below the others.
 */

/** @typedef {import('./picture.js').PlotSpec} PlotSpec */

/** @type {PlotSpec[]} */
export const JOB_PLOTS = [
  {
    id: 'cpu', title: 'Processor', meaning: 'cores', stacked: true,
    lines: [
      { metric: 'cgroup_cpu_user_seconds_total', label: 'user' },
      { metric: 'cgroup_cpu_system_seconds_total', label: 'system' },
      // A command of `jobmeter run` without a cgroup of its own has these metrics instead.
      { metric: 'run_cpu_user_seconds_total', label: 'user' },
      { metric: 'run_cpu_system_seconds_total', label: 'system' },
    ],
  },
  {
    id: 'memory', title: 'Memory',
    lines: [
      { metric: 'cgroup_memory_bytes', label: 'current' },
      { metric: 'cgroup_memory_anon_bytes', label: 'programs' },
      { metric: 'cgroup_memory_file_bytes', label: 'file cache' },
      { metric: 'cgroup_memory_peak_bytes', label: 'peak' },
      { metric: 'cgroup_memory_limit_bytes', label: 'limit', ceiling: true },
      { metric: 'run_memory_resident_bytes', label: 'resident' },
    ],
  },
  {
    id: 'io-bytes', title: 'Disk traffic',
    lines: [
      { metric: 'cgroup_io_read_bytes_total', label: 'read' },
      { metric: 'cgroup_io_write_bytes_total', label: 'written' },
      { metric: 'run_io_read_bytes_total', label: 'read' },
      { metric: 'run_io_write_bytes_total', label: 'written' },
    ],
  },
  {
    id: 'io-operations', title: 'Disk operations', things: 'operations',
    lines: [
      { metric: 'cgroup_io_reads_total', label: 'reads' },
      { metric: 'cgroup_io_writes_total', label: 'writes' },
    ],
  },
  {
    id: 'process-io', title: 'Input and output of its tasks',
    lines: [
      { metric: 'taskstats_read_bytes_total', label: 'from storage' },
      { metric: 'taskstats_write_bytes_total', label: 'to storage' },
      { metric: 'taskstats_read_char_bytes_total', label: 'by read calls' },
      { metric: 'taskstats_write_char_bytes_total', label: 'by write calls' },
    ],
  },
  {
    id: 'pressure', title: 'Pressure: time that some task waited', meaning: 'share',
    lines: [
      { metric: 'cgroup_pressure_cpu_some_seconds_total', label: 'for a processor' },
      { metric: 'cgroup_pressure_memory_some_seconds_total', label: 'for memory' },
      { metric: 'cgroup_pressure_io_some_seconds_total', label: 'for a disk' },
    ],
  },
  {
    id: 'throttling', title: 'Held back by its processor limit', meaning: 'cores',
    lines: [{ metric: 'cgroup_cpu_throttled_seconds_total', label: 'throttled' }],
  },
  {
    id: 'faults', title: 'Page faults', things: 'faults',
    lines: [
      { metric: 'cgroup_page_faults_total', label: 'all' },
      { metric: 'cgroup_page_faults_major_total', label: 'from disk' },
    ],
  },
  {
    id: 'switches', title: 'Context switches', things: 'switches',
    lines: [
      { metric: 'taskstats_voluntary_switches_total', label: 'voluntary' },
      { metric: 'taskstats_involuntary_switches_total', label: 'involuntary' },
    ],
  },
  {
    id: 'delays', title: 'Tasks that wait, on average', meaning: 'tasks',
    lines: [
      { metric: 'taskstats_cpu_delay_seconds_total', label: 'for a processor' },
      { metric: 'taskstats_blkio_delay_seconds_total', label: 'for a disk' },
      { metric: 'taskstats_swapin_delay_seconds_total', label: 'for swap' },
      { metric: 'taskstats_freepages_delay_seconds_total', label: 'for free memory' },
    ],
  },
  {
    id: 'tasks', title: 'Tasks', things: 'tasks',
    lines: [
      { metric: 'cgroup_tasks', label: 'processes and threads' },
      { metric: 'cgroup_tasks_limit', label: 'limit', ceiling: true },
    ],
  },
  {
    id: 'nodes', title: 'Processor by node', meaning: 'cores', stacked: true, by: 'device',
    lines: [{ metric: 'cgroup_cpu_seconds_total' }],
  },
];

/** @type {PlotSpec[]} */
export const NODE_PLOTS = [
  {
    id: 'cpu', title: 'Processor by mode', meaning: 'cores', stacked: true,
    lines: [
      { metric: 'cpu_user_seconds_total', label: 'user' },
      { metric: 'cpu_system_seconds_total', label: 'system' },
      { metric: 'cpu_nice_seconds_total', label: 'nice' },
      { metric: 'cpu_iowait_seconds_total', label: 'waits for disk', color: 7 },
      { metric: 'cpu_irq_seconds_total', label: 'interrupts' },
      { metric: 'cpu_softirq_seconds_total', label: 'soft interrupts' },
      { metric: 'cpu_steal_seconds_total', label: 'stolen by host' },
      { metric: 'cpu_online', label: 'cores', ceiling: true },
    ],
  },
  {
    id: 'jobs', title: 'Processor by job', meaning: 'cores', stacked: true, by: 'job',
    lines: [{ metric: 'cgroup_cpu_seconds_total' }],
  },
  {
    id: 'memory', title: 'Memory', stacked: true,
    lines: [
      { metric: 'memory_anon_bytes', label: 'programs' },
      { metric: 'memory_slab_bytes', label: 'kernel', color: 4 },
      { metric: 'memory_buffers_bytes', label: 'buffers', color: 6 },
      { metric: 'memory_cached_bytes', label: 'file cache', color: 2 },
      { metric: 'memory_total_bytes', label: 'all', ceiling: true },
    ],
  },
  {
    id: 'job-memory', title: 'Memory by job', stacked: true, by: 'job',
    lines: [{ metric: 'cgroup_memory_bytes' }],
  },
  {
    id: 'load', title: 'Load', things: 'tasks',
    lines: [
      { metric: 'load_1m', label: '1 min' },
      { metric: 'load_5m', label: '5 min' },
      { metric: 'load_15m', label: '15 min' },
      { metric: 'cpu_online', label: 'cores', ceiling: true },
    ],
  },
  {
    id: 'pressure', title: 'Pressure: time that some task waited', meaning: 'share',
    lines: [
      { metric: 'pressure_cpu_some_seconds_total', label: 'for a processor' },
      { metric: 'pressure_memory_some_seconds_total', label: 'for memory' },
      { metric: 'pressure_io_some_seconds_total', label: 'for a disk' },
      { metric: 'pressure_irq_full_seconds_total', label: 'for interrupts' },
    ],
  },
  {
    id: 'disk-bytes', title: 'Disk traffic', by: 'disk',
    lines: [
      { metric: 'disk_read_bytes_total', label: 'read' },
      { metric: 'disk_write_bytes_total', label: 'written' },
    ],
  },
  {
    id: 'disk-operations', title: 'Disk operations', by: 'disk', things: 'operations',
    lines: [
      { metric: 'disk_reads_total', label: 'reads' },
      { metric: 'disk_writes_total', label: 'writes' },
    ],
  },
  {
    id: 'disk-busy', title: 'Disks: time busy', by: 'disk', meaning: 'share',
    lines: [{ metric: 'disk_busy_seconds_total' }],
  },
  {
    id: 'network', title: 'Network', by: 'interface',
    lines: [
      { metric: 'network_received_bytes_total', label: 'in' },
      { metric: 'network_transmitted_bytes_total', label: 'out' },
    ],
  },
  {
    id: 'network-packets', title: 'Network packets', by: 'interface', things: 'packets',
    lines: [
      { metric: 'network_received_packets_total', label: 'in' },
      { metric: 'network_transmitted_packets_total', label: 'out' },
    ],
  },
  {
    id: 'faults', title: 'Page faults', things: 'faults',
    lines: [
      { metric: 'vmstat_page_faults_total', label: 'all' },
      { metric: 'vmstat_major_page_faults_total', label: 'from disk' },
    ],
  },
  {
    id: 'switches', title: 'Context switches and interrupts',
    lines: [
      { metric: 'cpu_context_switches_total', label: 'context switches' },
      { metric: 'cpu_interrupts_total', label: 'interrupts' },
    ],
  },
  {
    id: 'agent', title: 'The agent itself: share of one core', meaning: 'share',
    lines: [{ metric: 'agent_cpu_seconds_total', label: 'agent' }],
  },
  {
    id: 'swap', title: 'Swapping', things: 'pages',
    lines: [
      { metric: 'vmstat_swapped_in_pages_total', label: 'in' },
      { metric: 'vmstat_swapped_out_pages_total', label: 'out' },
    ],
  },
];

/**
 * Defines the plot of any metric, with one line for each series.
 * @param {import('../server/api.js').MetricInfo} metric
 * @param {import('../values/units.js').Meaning} meaning
 * @returns {PlotSpec}
 */
export function plotOf(metric, meaning) {
  return {
    id: `metric-${metric.name}`, title: metric.name, by: 'series', meaning,
    lines: [{ metric: metric.name }],
  };
}
