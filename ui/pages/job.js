/** Page of one job: owner, nodes, totals, and current usage while the job runs. */

import { jobKey, Refused } from '../server/api.js';
import { Plots } from '../plots/plots.js';
import { coverageText } from '../values/coverage.js';
import { fill, h, setText } from '../elements/dom.js';
import { DeviceValues } from '../lists/device_values.js';
import { gapList } from '../lists/gaps.js';
import { Marks } from '../plots/marks.js';
import { badge, nameOf, periodOf, stateText, wallOf } from '../lists/node_and_job_tables.js';
import { Metrics } from '../lists/metrics.js';
import { tile } from './overview.js';
import { JOB_PLOTS } from '../plots/plot_definitions.js';
import { Processes } from '../lists/processes.js';
import { RangeControl } from '../values/range.js';
import { nodeHash, otherRuns } from '../server/route.js';
import { duration, fullInstant, instant } from '../values/time.js';
import { bytes, count, digits, meaningOf, quantity, show } from '../values/units.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {import('../server/api.js').JobReport} JobReport */

const RUNNING_MS = 10000;
const VALUES_MS = 30000;
/** Maximum number of nodes whose values from other devices the page shows. */
const FED_NODES_MAX = 8;
const ENDED_MS = 120000;
/** Maximum number of OOM kills that the page names. */
const KILLS_SHOWN = 8;
/** Late samples of an ended job may arrive for this long. */
const SETTLED_S = 60;

/**
 * Describes an OOM kill: task, PID, node, size of the task, and the memory limit that the task exceeded.
 * @param {import('../server/api.js').OomKill} kill
 */
export const killText = (kill) => [
  `${kill.task} (process ${kill.pid}) on ${kill.device}`,
  kill.task_bytes === null ? '' : bytes(kill.task_bytes),
  kill.limit_bytes === null ? 'the node was out of memory' : `limit ${bytes(kill.limit_bytes)}`,
].filter((text) => text !== '').join(', ');

/**
 * Lists requested or used resources, without the unknown ones.
 * @param {import('../server/api.js').Resources} of
 */
export const amounts = (of) => [
  of.nodes === null ? '' : `${of.nodes} ${of.nodes === 1 ? 'node' : 'nodes'}`,
  of.cpus === null ? '' : `${of.cpus} cpus`,
  of.gpus === null ? '' : `${of.gpus} gpus`,
  of.memory_bytes === null ? '' : bytes(of.memory_bytes),
  of.wall_seconds === null ? '' : duration(of.wall_seconds),
  of.cpu_seconds === null ? '' : `${duration(of.cpu_seconds)} of processor`,
].filter((text) => text !== '').join(', ');

/**
 * Describes the job's share of a node, as the scheduler reports it.
 * @param {import('../server/api.js').NodeShare[]} nodes
 * @param {string} device
 */
export function shareText(nodes, device) {
  const share = nodes.find((one) => one.device === device);
  if (share === undefined) return device;
  const parts = [
    share.cpus === null ? '' : `${share.cpus} cpus${share.cpu_list === '' ? '' : ` (${share.cpu_list})`}`,
    share.gpus === null ? '' : `${share.gpus} gpus${share.gpu_list === '' ? '' : ` (${share.gpu_list})`}`,
    share.memory_bytes === null ? '' : bytes(share.memory_bytes),
  ].filter((text) => text !== '');
  return parts.length === 0 ? device : `${device}: ${parts.join(', ')}`;
}

export class JobPage {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.title = page.route.name;
    /** @type {JobReport|null} */
    this.report = null;
    /** @type {RangeControl|undefined} */
    this.range = undefined;
    this.heading = h('h1', { tabindex: '-1' }, page.route.name);
    this.state = h('span');
    this.facts = h('p', { class: 'facts' });
    this.tiles = h('div', { class: 'tiles small' });
    this.body = h('div', { class: 'stack' });
    this.problem = h('p', { class: 'card problem', hidden: true, role: 'alert' });
    this.element = h('div', { class: 'stack' },
      h('div', { class: 'title-line' }, this.heading, this.state), this.facts, this.problem,
      this.tiles, this.body);
    this.task = page.live.every(
      () => this.refreshMs(), (signal) => this.refresh(signal), (error) => this.failed(error));
  }

  refreshMs() {
    const stop = this.report?.job.stop ?? null;
    const settled = stop !== null && this.page.api.now() > stop + SETTLED_S;
    return settled ? ENDED_MS : RUNNING_MS;
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { name, query } = this.page.route;
    const report = await this.page.api.report(name, query.get('start'), signal);
    const had = this.report;
    this.report = report;
    // Rebuild the page when a waiting job starts: before that there is no time range to plot.
    const begins = had !== null && had.job.start === null && report.job.start !== null;
    if (had === null || begins) await this.open(report, signal);
    this.problem.hidden = true;
    this.show(report);
  }

  /** @param {Error} error */
  failed(error) {
    const status = error instanceof Refused ? error.status : 0;
    const { name } = this.page.route;
    const explanation = this.report === null ? ({
      404: `The server knows no job ${name}: ${error.message}.`,
      403: `You may not see job ${name}: only its owner may, and the members and managers `
        + `of its account if permitted (${error.message}).`,
    })[status] : undefined;
    setText(this.problem, explanation ?? error.message);
    this.problem.hidden = false;
  }

  /**
   * Builds the parts that depend on the report.
   * @param {JobReport} report
   * @param {AbortSignal} signal
   */
  async open(report, signal) {
    const { page } = this;
    const { job } = report;
    const nodes = await page.api.nodes(signal);
    this.closeParts();
    const mine = nodes.filter((node) => job.devices.includes(node.device));
    const began = job.start !== null;
    this.range = new RangeControl(page.route.query, began ? 'whole' : '1h', began ? job : null);
    this.board = {
      api: page.api, live: page.live, catalogue: page.catalogue, range: this.range,
      marks: new Marks(page.api, () => (this.report?.job ?? job).devices),
      selector: { job: job.id, cluster: job.cluster },
      expected: (/** @type {string} */ device, /** @type {number} */ time) => this.ranOn(device, time),
      devices: () => (this.report?.job ?? job).devices,
      period: Math.max(0, ...mine.map(periodOf)),
      jobName: () => nameOf(job),
    };
    const specs = job.devices.length > 1 ? JOB_PLOTS : JOB_PLOTS.filter(({ id }) => id !== 'nodes');
    this.plots = new Plots(specs, this.board, 'this job');
    this.metrics = new Metrics(this.plots, 'Total');
    this.processes = new Processes(page, { job: job.id, cluster: job.cluster }, () => this.report?.job.stop ?? null);
    this.gaps = h('div');
    this.values = began ? job.devices.slice(0, FED_NODES_MAX).map((device) =>
      new DeviceValues(page, device, this.board, () => this.spanOn(device))) : [];
    this.valuesTask = page.live.every(VALUES_MS, async (signal) => {
      await Promise.all((this.values ?? []).map((values) => values.refresh(signal)));
    }, (error) => this.failed(error));
    fill(this.body, this.range.element, this.plots.grid, this.processes.element,
      this.values.map(({ element }) => element), this.gaps, this.plots.missing, this.metrics.element);
  }

  /**
   * @param {string} device
   * @param {number} time
   */
  ranOn(device, time) {
    return (this.report?.allocations ?? []).some((one) =>
      one.device === device && one.start <= time && (one.stop === null || time < one.stop));
  }

  /**
   * Returns the time of the job on a node.
   * @param {string} device
   */
  spanOn(device) {
    const here = (this.report?.allocations ?? []).filter((one) => one.device === device);
    const stops = here.map(({ stop }) => stop);
    if (here.length === 0) return null;
    return {
      start: Math.min(...here.map(({ start }) => start)),
      stop: stops.includes(null) ? null : Math.max(...stops.map(Number)),
    };
  }

  /** @param {JobReport} report */
  show(report) {
    const { job } = report;
    const now = this.page.api.now();
    const title = nameOf(job);
    setText(this.heading, title);
    this.title = `${title} · ${jobKey(job)}`;
    this.page.retitle(this.title);
    fill(this.state, badge(job.state, stateText(job)));
    this.showFacts(report, now);
    this.showTotals(report);
    if (this.range && this.range.whole) this.range.whole = job;
    this.plots?.offer(new Set(report.series.map(({ metric }) => metric)));
    if (this.gaps) fill(this.gaps, gapList(report.gaps, now));
    this.metrics?.update(this.rows(report));
  }

  /** @param {JobReport} report */
  rows(report) {
    return report.metrics.map((line) => {
      const value = line.kind === 'counter' ? line.increase : line.max;
      const shown = show(value, quantity(line.unit));
      return {
        name: line.metric, unit: line.unit, kind: line.kind,
        help: this.page.catalogue.get(line.metric)?.help ?? '',
        value: line.kind === 'counter' || value === null ? shown : `max ${shown}`,
      };
    });
  }

  /**
   * @param {JobReport} report
   * @param {number} now
   */
  showFacts({ job, runs, nodes, coverage, end = null, oom_kills: kills = [] }, now) {
    const covered = coverage === undefined || job.start === null ? ''
      : coverageText(coverage, (time) => instant(time, now));
    const fact = (/** @type {string} */ name, /** @type {import('../elements/dom.js').Child[]} */ ...value) =>
      h('span', { class: 'fact' }, h('span', { class: 'muted' }, `${name} `), value);
    const when = (/** @type {number} */ at) => h('time', { title: fullInstant(at) }, instant(at, now));
    fill(this.facts,
      fact('Job', `${job.cluster}:${job.display_id}`),
      fact('User', job.user ?? (job.uid === null ? '–' : `uid ${job.uid}`)),
      job.account === null ? null : fact('Account', job.account),
      job.project === null ? null : fact('Project', job.project),
      job.queue === null ? null : fact('Queue', job.queue),
      job.part_of === null ? null : fact('Part of', `${job.part_of}`,
        job.array_index === null ? '' : `, element ${job.array_index}`),
      job.types.length === 0 ? null : fact('Types', job.types.join(', ')),
      job.devices.length === 0 ? null
        : fact(job.devices.length === 1 ? 'Node' : 'Nodes', ...job.devices.flatMap((device, i) =>
          [i > 0 ? ', ' : '', h('a', { href: nodeHash(device), title: shareText(nodes, device) }, device)])),
      runs.length < 2 ? null : fact('Reused job ID; other runs', ...otherRuns(job, runs).flatMap(({ at, hash }, i) =>
        [i > 0 ? ', ' : '', h('a', { href: hash }, when(at))])),
      job.submit === null ? null : fact('Submitted', when(job.submit)),
      job.start === null ? null : fact('Started', when(job.start)),
      job.stop === null ? null : fact('Ended', when(job.stop)),
      end === null ? null : fact('Ended by', [end.cause, end.detail].filter((text) => text !== '').join(' ')),
      ...kills.slice(0, KILLS_SHOWN).map((kill) => fact('OOM kill', killText(kill), ', ', when(kill.time))),
      kills.length <= KILLS_SHOWN ? null : fact('More OOM kills', `${kills.length - KILLS_SHOWN}`),
      job.start === null ? null : fact('Wall time', duration(wallOf(job, now))),
      amounts(job.requested) === '' ? null : fact('Requested', amounts(job.requested)),
      amounts(job.used) === '' ? null : fact('Used, as reported by the scheduler', amounts(job.used)),
      covered === '' ? null : fact('Totals cover', covered));
  }

  /** @param {JobReport} report */
  showTotals({ totals, origins = [] }) {
    const t = (/** @type {string} */ key) => totals[key] ?? null;
    // Append the note that qualifies a total, for example `largest task` or `at least: last reading missed`.
    const noted = (/** @type {string} */ key, /** @type {string} */ text) => {
      const note = origins.find(({ total }) => total === key)?.note ?? null;
      return [text, note ?? ''].filter((part) => part !== '').join('; ');
    };
    // Leave unknown parts out of the note.
    const parts = (/** @type {Array<[string, number|null, (value: number|null) => string]>} */ ...all) =>
      all.filter(([, value]) => value !== null).map(([text, value, format]) => text.replace('%', format(value))).join(', ');
    const cores = t('cores_used');
    const throttled = t('throttled_seconds');
    const pressure = ['cpu', 'memory', 'io'].map((what) => t(`pressure_${what}_seconds`));
    fill(this.tiles,
      tile('Cores used', cores === null ? '–' : digits(cores), noted('cores_used', 'on average')),
      tile('Processor time', duration(t('cpu_seconds')), noted('cpu_seconds', parts(
        ['user %', t('cpu_user_seconds'), duration], ['system %', t('cpu_system_seconds'), duration]))),
      tile('Memory peak', bytes(t('memory_peak_bytes')), noted('memory_peak_bytes', 'highest on one node')),
      tile('Read', bytes(t('io_read_bytes')), noted('io_read_bytes', 'from disks')),
      tile('Written', bytes(t('io_write_bytes')), noted('io_write_bytes', 'to disks')),
      tile('Page faults', count(t('minor_faults')), noted('minor_faults',
        parts(['and % from disk', t('major_faults'), count]))),
      tile('Context switches', count(t('voluntary_switches')), noted('voluntary_switches',
        parts(['and % forced', t('involuntary_switches'), count]))),
      throttled === null ? null
        : tile('Throttled', duration(throttled), 'by a processor limit', throttled > 0 ? 'warn' : ''),
      pressure.every((value) => value === null) ? null : tile('Waited', duration(pressure[0]), parts(
        ['for processors', pressure[0], duration], ['memory %', pressure[1], duration], ['disks %', pressure[2], duration])));
  }

  data() {
    return [...this.plots?.data() ?? [], ...(this.values ?? []).flatMap((values) => values.data())];
  }

  closeParts() {
    this.processes?.close();
    this.plots?.close();
    this.valuesTask?.cancel();
    for (const values of this.values ?? []) values.close();
  }

  close() {
    this.task.cancel();
    this.closeParts();
  }
}
