/** A plot on the page: its card, its legend, its help texts, and the requests that refresh it. */

import { address } from '../server/api.js';
import { fill, h, setText } from '../elements/dom.js';
import { coverageText } from '../values/coverage.js';
import { compose } from './picture.js';
import { COLORS, Plot } from './plot.js';
import { isValue, stepFor } from '../values/series.js';
import { instant } from '../values/time.js';
import { quantity, scaleFor, show } from '../values/units.js';

/** @typedef {import('./picture.js').PlotSpec} PlotSpec */
/** @typedef {import('./picture.js').Wanted} Wanted */
/** @typedef {import('../server/api.js').MetricInfo} MetricInfo */
/** @typedef {ReturnType<typeof compose>} Composed */

/**
 * State that all panels of a page share.
 * @typedef {object} Board
 * @property {import('../server/api.js').Api} api
 * @property {import('../server/live.js').Live} live
 * @property {Map<string, MetricInfo>} catalogue
 * @property {import('../values/range.js').RangeControl} range
 * @property {import('../server/api.js').Query} selector device, job and cluster of every request
 * @property {import('./marks.js').Marks} marks
 * @property {(device: string, time: number) => boolean} expected
 * @property {() => string[]} [devices] the nodes that sums are of
 * @property {number} period seconds between two samples; 0 where that is a second or less
 * @property {(series: import('../server/api.js').RangeSeries) => string} jobName
 */

/** Width in pixels of each requested point. */
const POINT_PX = 2.5;
const REFRESH_MIN_MS = 2000;
const REFRESH_MAX_MS = 60000;
/** Older values never appear as current, in seconds. */
const FRESH_S = 90;
/** A range that ends in the past changes only when late samples arrive. */
const REFRESH_PAST_MS = 300000;

export class Panel {
  /**
   * @param {PlotSpec} spec
   * @param {Board} board
   * @param {Wanted[]} lines those of the plot's that exist here
   */
  constructor(spec, board, lines) {
    this.spec = spec;
    this.board = board;
    this.lines = lines;
    /** @type {Composed|null} */
    this.picture = null;
    /** @type {import('../server/api.js').Mark[]} */
    this.marks = [];
    /** @type {string[]} */
    this.colors = [];
    /** Time range and step of the drawn data. */
    this.requested = { start: 0, end: 0, step: 1 };
    /** True if the range ends now. */
    this.live = false;
    /** What the legend's entries were made for. @type {string|null} */
    this.labels = null;
    this.host = h('div', { class: 'plot-host' });
    this.readout = h('span', { class: 'plot-time' });
    this.legend = h('ul', { class: 'legend' });
    this.state = h('p', { class: 'plot-state' }, 'Loading…');
    this.about = h('dl', { class: 'plot-about', id: `about-${spec.id}`, hidden: true });
    this.element = this.card();
    this.plot = new Plot(this.host, {
      point: (index) => this.legendAt(index),
      zoom: (start, end) => board.range.zoom(start, end),
    });
    this.plot.describe(`${spec.title}: loading`);
    this.host.addEventListener('dblclick', () => board.range.back());
    this.task = board.live.every(
      () => this.refreshMs(), (signal) => this.refresh(signal), (error) => this.say(error.message));
    this.task.pause(true);
    this.seen = new IntersectionObserver(
      (entries) => this.task.pause(!entries.at(-1)?.isIntersecting), { rootMargin: '160px' });
    this.seen.observe(this.element);
  }

  card() {
    const { id, title } = this.spec;
    const button = h('button', {
      type: 'button', class: 'icon-button', 'aria-expanded': 'false',
      'aria-controls': `about-${id}`, 'aria-label': `What ${title} means`,
      title: this.meaning(), onclick: () => this.explain(button),
    }, 'i');
    const closeAbout = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Escape' || this.about.hidden) return;
      event.stopPropagation();
      this.explain(button);
      button.focus();
    };
    return h('section', {
      class: 'card plot', 'data-plot': id, 'aria-labelledby': `title-${id}`, onkeydown: closeAbout,
    },
      h('header', { class: 'plot-head' },
        h('h3', { id: `title-${id}`, title: this.meaning() }, title), button, this.readout),
      this.about, this.host, this.state, this.legend);
  }

  /** Help texts of the plot's metrics, for the tooltip. */
  meaning() {
    return this.lines.map(({ metric }) => this.help(metric)).join('\n');
  }

  /** @param {string} metric */
  help(metric) {
    return this.board.catalogue.get(metric)?.help ?? metric;
  }

  /** @param {HTMLElement} button */
  explain(button) {
    this.about.hidden = !this.about.hidden;
    button.setAttribute('aria-expanded', String(!this.about.hidden));
    if (this.about.hidden) return;
    fill(this.about, this.lines.flatMap(({ metric }) => [
      h('dt', {}, h('code', {}, metric)),
      h('dd', {}, this.help(metric)),
    ]), h('dd', {}, h('a', { href: this.address(), target: '_blank', rel: 'noopener' }, 'These values as JSON')));
  }

  /**
   * Builds the query for all metrics of the plot at once, with counters as rates.
   * @param {{start: number, end: number, step: number}} when
   */
  query({ start, end, step }) {
    const metric = this.lines.map((wanted) => wanted.metric).join(',');
    return { ...this.board.selector, ...this.narrower(), metric, start, end, step, rate: true };
  }

  /**
   * On a node's page, plots of jobs query the series of jobs; the other plots query series that belong to no
   * job.
   */
  narrower() {
    const ofJobs = this.spec.by === 'job' || this.spec.by === 'series' || 'job' in this.board.selector;
    return ofJobs ? {} : { job: 'none' };
  }

  /** Returns the URL of the drawn data. */
  address() {
    return address('range', this.query(this.requested));
  }

  refreshMs() {
    if (!this.board.range.window(this.board.api.now()).live) return REFRESH_PAST_MS;
    return Math.min(Math.max(this.requested.step * 1000, this.board.period * 1000, REFRESH_MIN_MS), REFRESH_MAX_MS);
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { board } = this;
    const { start, end, live } = board.range.window(board.api.now());
    const width = this.host.clientWidth || 400;
    const step = stepFor(end - start, width / POINT_PX);
    // Request the current step only up to now, because it is incomplete.
    const requested = {
      start: exact(Math.floor(start / step) * step),
      end: live ? Math.ceil(end) : exact(Math.ceil(end / step) * step),
      step,
    };
    const [answer, marks] = await Promise.all([
      board.api.range(this.query(requested), signal), board.marks.within(requested.start, requested.end),
    ]);
    this.requested = requested;
    this.live = live;
    const picture = compose(this.spec, this.lines, answer, {
      expected: board.expected, devices: board.devices?.() ?? [], jobName: board.jobName,
      colorOf: (label, line) => (line.color < 0 && !line.ceiling ? this.colorOf(label) : line.color),
    });
    this.draw(picture, { start, end, marks });
  }

  /** @param {Composed} picture @param {{start: number, end: number, marks: import('../server/api.js').Mark[]}} around */
  draw(picture, around) {
    this.picture = picture;
    if (picture.lines.length === 0) {
      const known = this.board.catalogue.get(this.lines[0].metric);
      const word = known ? `${known.unit}${known.kind === 'counter' ? '/s' : ''}` : '';
      picture.quantity = quantity(word, this.spec.meaning, this.spec.things);
    }
    this.marks = around.marks;
    this.plot.show({ ...picture, ...around });
    this.legendAt(null);
    this.say(this.remark(picture));
    this.plot.describe(this.description());
  }

  /** @param {Composed} picture */
  remark(picture) {
    if (picture.lines.length === 0) return 'No samples in this range.';
    const parts = [];
    const covered = coverageText(picture.coverage, (time) => instant(time, this.board.api.now()));
    if (covered !== '') parts.push(`${covered}.`);
    if (picture.left > 0) parts.push(`${picture.left} more series with lower values are not drawn.`);
    if (picture.truncated) parts.push('The response was truncated at the server\'s limit; choose a shorter time range.');
    return parts.join(' ');
  }

  /** @param {string} text */
  say(text) {
    setText(this.state, text);
    this.state.hidden = text === '';
  }

  description() {
    const lines = this.picture?.lines ?? [];
    return `${this.spec.title}: ${lines.map((line, i) => `${line.label} ${this.valueAt(i, null)}`).join(', ')}`;
  }

  /**
   * Returns the value of a line at the cursor. Without a cursor it returns the last value, or none if that is
   * too old to be current.
   * @param {number} line
   * @param {number|null} index
   */
  valueAt(line, index) {
    const picture = /** @type {Composed} */ (this.picture);
    const { values } = picture.lines[line];
    const value = index === null ? this.latest(values) : held(values, index);
    return show(value, picture.quantity, scaleFor(picture.quantity, value ?? 0));
  }

  /** @param {import('../values/series.js').Row} values */
  latest(values) {
    const { times } = /** @type {Composed} */ (this.picture);
    const index = values.findLastIndex(isValue);
    if (index < 0) return null;
    const fresh = Math.max(FRESH_S, 3 * this.requested.step, 3 * this.board.period);
    const old = this.live && times[index] < this.board.api.now() - fresh;
    return old ? null : values[index] ?? null;
  }

  /** @param {number} index */
  readoutAt(index) {
    const picture = /** @type {Composed} */ (this.picture);
    const [have, of] = picture.covers[index] ?? [0, 0];
    const time = instant(picture.times[index], this.board.api.now());
    return have < of ? `${time} · ${have} of ${of} nodes` : time;
  }

  /** @param {number|null} index of the time under the cursor */
  legendAt(index) {
    const { picture } = this;
    if (picture === null) return;
    setText(this.readout, index === null ? '' : this.readoutAt(index));
    const labels = picture.lines.map((line) => line.label).join('\n');
    if (this.labels !== labels) {
      this.labels = labels;
      fill(this.legend, picture.lines.map((line) => this.entry(line)));
    }
    picture.lines.forEach((_, i) => {
      const value = this.legend.children[i].querySelector('.legend-value');
      if (value) setText(value, this.valueAt(i, index));
    });
  }

  /** @param {import('./picture.js').ToldLine} line */
  entry(line) {
    const mark = h('span', { class: line.ceiling ? 'mark dashed' : 'mark', 'aria-hidden': 'true' });
    if (!line.ceiling) mark.style.background = `var(--line-${line.color + 1})`;
    return h('li', { title: line.help }, mark,
      h('span', { class: 'legend-label' }, line.label), h('span', { class: 'legend-value' }));
  }

  /**
   * Returns the palette index of a label. A line keeps its colour while the page is open, whichever lines
   * appear beside it.
   * @param {string} label
   */
  colorOf(label) {
    let index = this.colors.indexOf(label);
    if (index < 0) index = this.colors.push(label) - 1;
    return index % COLORS;
  }

  /** Returns the drawn data, for browser tests and for the console. */
  data() {
    const lines = this.picture?.lines ?? [];
    return {
      id: this.spec.id,
      step: this.requested.step,
      request: this.address(),
      times: this.picture?.times ?? [],
      marks: this.marks,
      lines: lines.map(({ label, metric, values }, i) =>
        ({ label, metric, values, text: this.valueAt(i, null) })),
    };
  }

  close() {
    this.task.cancel();
    this.seen.disconnect();
    this.plot.destroy();
    this.element.remove();
  }
}

/**
 * Rounds away the error of a floating-point division: the API's times are whole microseconds.
 * @param {number} time
 */
const exact = (time) => Number(time.toFixed(6));

/**
 * Returns the value at an index. If only faster series have a point there, it returns the last value before
 * it.
 * @param {import('../values/series.js').Row} values
 * @param {number} index
 * @returns {number|null}
 */
function held(values, index) {
  for (let i = index; i >= 0; i -= 1) {
    const value = values[i];
    if (value !== undefined) return value;
  }
  return null;
}
