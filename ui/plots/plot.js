/** A plot: uPlot with the page's colours, axes, stacks, gaps and synchronous cursor. */

import uPlot from '../vendor/uPlot.esm.js';
import { h, setText } from '../elements/dom.js';
import { markText, nearMarks } from './marks.js';
import { isValue, largest, stack } from '../values/series.js';
import { onTheme } from '../frame/theme.js';
import { axisSteps, scaleFor } from '../values/units.js';

/** @typedef {import('../values/series.js').Row} Row */
/** @typedef {import('../values/units.js').Quantity} Quantity */
/** @typedef {import('../server/api.js').Gap} Gap */
/** @typedef {import('../server/api.js').Mark} Mark */

/**
 * A line to draw.
 * @typedef {object} Line
 * @property {string} label
 * @property {Row} values
 * @property {number} color index in the palette
 * @property {boolean} [ceiling] drawn dashed, and never the reason of a larger scale
 */

/**
 * Contents of a plot.
 * @typedef {object} Picture
 * @property {number[]} times
 * @property {Line[]} lines
 * @property {Quantity} quantity
 * @property {boolean} stacked
 * @property {Gap[]} gaps
 * @property {Mark[]} marks
 * @property {number} start
 * @property {number} end
 */

const HEIGHT_PX = 172;
const AXIS_PX = 54;
/** Possible distances between two labels of the time axis, in seconds. */
const TIME_STEPS_S = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 14400, 21600,
  43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
];
/** Distance in pixels within which the cursor shows a mark's text. */
const MARK_PX = 5;
const SYNC = uPlot.sync('time');
/** Font of a gap's cause, which is written into the gap if it is wide enough. */
const GAP_FONT = '11px system-ui, sans-serif';

/** @param {string} name of a custom property of the style sheet */
const css = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Number of colours in the palette. */
export const COLORS = 8;

/** @param {number} index */
const color = (index) => css(`--line-${(index % COLORS) + 1}`);

export class Plot {
  /**
   * @param {HTMLElement} host
   * @param {object} does
   * @param {(index: number|null) => void} does.point receives the position of the cursor, null when it leaves
   * @param {(start: number, end: number) => void} does.zoom receives the selected time range
   */
  constructor(host, does) {
    this.host = host;
    this.does = does;
    /** @type {any} */
    this.chart = null;
    /** @type {Picture|null} */
    this.picture = null;
    this.shape = '';
    this.unit = h('div', { class: 'plot-unit', 'aria-hidden': 'true' });
    this.note = h('div', { class: 'plot-note' });
    this.canvas = h('div', {
      class: 'plot-canvas', role: 'img', tabindex: '0',
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.pressed(event),
      onblur: () => this.leave(),
    });
    host.append(this.unit, this.canvas, this.note);
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(host);
    this.forget = onTheme(() => this.redraw());
  }

  /** @param {string} text what the plot shows, for those who do not see it */
  describe(text) {
    this.canvas.setAttribute('aria-label', text);
  }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    this.scale = scaleFor(picture.quantity, top(picture));
    setText(this.unit, this.scale.symbol);
    const shape = JSON.stringify([
      picture.quantity, picture.stacked,
      picture.lines.map((line) => [line.label, line.color, line.ceiling]),
    ]);
    if (this.chart === null || shape !== this.shape) {
      this.shape = shape;
      this.build();
      return;
    }
    this.chart.setData(this.data(), false);
    this.chart.setScale('x', { min: picture.start, max: picture.end });
  }

  redraw() {
    if (this.chart !== null) this.build();
  }

  fit() {
    const width = this.width();
    if (this.chart !== null && this.chart.width !== width && width > 0) {
      this.chart.setSize({ width, height: HEIGHT_PX });
    }
  }

  width() {
    return Math.floor(this.host.clientWidth);
  }

  destroy() {
    this.resize.disconnect();
    this.forget();
    this.chart?.destroy();
    this.chart = null;
  }

  build() {
    this.chart?.destroy();
    this.chart = new uPlot(this.options(), this.data(), this.canvas);
  }

  /** Returns the rows that uPlot draws. Layers of a stack are added up from the bottom. */
  data() {
    const { times, lines, stacked } = /** @type {Picture} */ (this.picture);
    if (!stacked) return [times, ...lines.map((line) => line.values)];
    const layers = stack(lines.filter((line) => !line.ceiling).map((line) => line.values));
    let next = 0;
    return [times, ...lines.map((line) => (line.ceiling ? line.values : layers[next++]))];
  }

  options() {
    const { lines, start, end } = /** @type {Picture} */ (this.picture);
    return {
      width: this.width(),
      height: HEIGHT_PX,
      padding: [10, 24, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: true, min: start, max: end },
        y: { range: () => this.yRange() },
      },
      axes: [this.xAxis(), this.yAxis()],
      series: [{}, ...lines.map((line) => this.line(line, lines.length === 1))],
      cursor: {
        sync: { key: SYNC.key, scales: ['x', null], setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        y: false,
      },
      hooks: {
        drawClear: [(/** @type {any} */ u) => this.drawGaps(u)],
        draw: [(/** @type {any} */ u) => this.drawMarks(u)],
        setCursor: [(/** @type {any} */ u) => this.moved(u)],
        setSelect: [(/** @type {any} */ u) => this.selected(u)],
      },
    };
  }

  /** @returns {[number, number]} */
  yRange() {
    const max = top(/** @type {Picture} */ (this.picture));
    const min = Math.min(0, ...this.lowest());
    return [min, max > 0 ? max * 1.06 : 1];
  }

  lowest() {
    const { lines } = /** @type {Picture} */ (this.picture);
    return lines.map((line) =>
      line.values.reduce((/** @type {number} */ low, v) => (isValue(v) && v < low ? v : low), 0));
  }

  xAxis() {
    return {
      stroke: css('--muted'),
      font: '11px system-ui, sans-serif',
      size: 28,
      gap: 6,
      space: 68,
      incrs: TIME_STEPS_S,
      grid: { show: false },
      ticks: { stroke: css('--grid'), width: 1, size: 4 },
      values: (/** @type {any} */ _, /** @type {number[]} */ splits) => ticks(splits),
    };
  }

  yAxis() {
    const { quantity } = /** @type {Picture} */ (this.picture);
    return {
      stroke: css('--muted'),
      font: '11px system-ui, sans-serif',
      size: AXIS_PX,
      gap: 6,
      space: 26,
      incrs: axisSteps(quantity),
      grid: { stroke: css('--grid'), width: 1 },
      ticks: { show: false },
      values: (/** @type {any} */ _, /** @type {number[]} */ splits) =>
        splits.map((value) => String(Number((value / (this.scale?.divide ?? 1)).toPrecision(5)))),
    };
  }

  /**
   * @param {Line} line
   * @param {boolean} alone
   */
  line(line, alone) {
    const stroke = color(line.color);
    const { stacked } = /** @type {Picture} */ (this.picture);
    const filled = !line.ceiling && (stacked || alone);
    return {
      label: line.label,
      stroke: line.ceiling ? css('--muted') : stroke,
      width: line.ceiling ? 1 : 1.5,
      dash: line.ceiling ? [6, 5] : undefined,
      fill: filled ? `${stroke}${stacked ? '66' : '1f'}` : undefined,
      spanGaps: false,
      paths: stacked && !line.ceiling ? this.layerOf(line.label) : undefined,
      points: { show: true, size: 4, fill: stroke, width: 0, filter: lonely },
    };
  }

  /**
   * Returns a path function that looks up the layer's values at drawing time, because they change with each
   * refresh.
   * @param {string} label
   */
  layerOf(label) {
    return (/** @type {any} */ u, /** @type {number} */ index, /** @type {number} */ from, /** @type {number} */ to) => {
      const line = this.picture?.lines.find((one) => one.label === label);
      return line ? layer(line.values, u, index, from, to) : null;
    };
  }

  /** @param {any} u */
  drawGaps(u) {
    const { gaps } = /** @type {Picture} */ (this.picture);
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const gap of gaps) {
      const left = u.valToPos(gap.from, 'x', true);
      const width = Math.max(u.valToPos(gap.to, 'x', true) - left, devicePixelRatio);
      ctx.fillStyle = css('--gap');
      ctx.fillRect(left, bbox.top, width, bbox.height);
      ctx.font = GAP_FONT.replace('11px', `${11 * devicePixelRatio}px`);
      if (ctx.measureText(gap.cause).width + 12 * devicePixelRatio < width) {
        ctx.fillStyle = css('--muted');
        ctx.textAlign = 'center';
        ctx.textBaseline = 'top';
        ctx.fillText(gap.cause, left + width / 2, bbox.top + 6 * devicePixelRatio);
      }
    }
    ctx.restore();
  }

  /** @param {any} u */
  drawMarks(u) {
    const { marks, start, end } = /** @type {Picture} */ (this.picture);
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = css('--accent');
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { at } of marks) {
      if (at < start || at > end) continue;
      const x = Math.round(u.valToPos(at, 'x', true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /**
   * Moves the cursor from point to point with the arrow keys.
   * @param {KeyboardEvent} event
   */
  pressed(event) {
    const { picture, chart } = this;
    if (picture === null || chart === null || picture.times.length === 0) return;
    const last = picture.times.length - 1;
    const at = chart.cursor.left >= 0 ? chart.cursor.idx : null;
    const to = {
      ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const time = picture.times[Math.min(Math.max(to, 0), last)];
    chart.setCursor({ left: chart.valToPos(time, 'x'), top: 1 });
  }

  leave() {
    this.chart?.setCursor({ left: -10, top: -10 });
  }

  /** @param {any} u */
  moved(u) {
    const { left, idx } = u.cursor;
    const inside = typeof left === 'number' && left >= 0;
    const time = inside ? u.posToVal(left, 'x') : null;
    const gap = time === null ? undefined : this.picture?.gaps.find((g) => g.from < time && time < g.to);
    const missing = gap ? `no samples: ${gap.cause}${gap.detail ? ` (${gap.detail})` : ''}` : '';
    setText(this.note, [...this.marksAt(u, time), missing].filter((text) => text !== '').join(' · '));
    this.does.point(inside && typeof idx === 'number' ? idx : null);
  }

  /**
   * Returns the texts of the marks under the cursor.
   * @param {any} u
   * @param {number|null} time
   */
  marksAt(u, time) {
    if (time === null) return [];
    const reach = u.posToVal(MARK_PX, 'x') - u.posToVal(0, 'x');
    return nearMarks(this.picture?.marks ?? [], time, reach).map(markText);
  }

  /** @param {any} u */
  selected(u) {
    const { left, width } = u.select;
    if (width < 4) return;
    const start = u.posToVal(left, 'x');
    const end = u.posToVal(left + width, 'x');
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.does.zoom(start, end);
  }
}

/**
 * Returns the largest value that the scale has to show. A ceiling counts if it is below twice the lines'
 * maximum.
 * @param {Picture} picture
 */
function top({ lines, stacked }) {
  const drawn = lines.filter((line) => !line.ceiling).map((line) => line.values);
  const max = largest(stacked ? stack(drawn) : drawn);
  const ceiling = largest(lines.filter((line) => line.ceiling).map((line) => line.values));
  return ceiling > max && ceiling < 2 * max ? ceiling : max;
}

/**
 * Draws a layer of a stack. Its area reaches down to the layer below, and it is interrupted where the layer
 * has no values.
 * @param {Row} values the layer's own, not added up
 * @param {any} u
 * @param {number} index of the series
 * @param {number} from first place to draw
 * @param {number} to last place to draw
 */
function layer(values, u, index, from, to) {
  const [times, tops] = [u.data[0], u.data[index]];
  const stroke = new Path2D();
  const fill = new Path2D();
  const x = (/** @type {number} */ i) => u.valToPos(times[i], 'x', true);
  const y = (/** @type {number} */ value) => u.valToPos(value, 'y', true);
  /** @type {number[]} */
  let run = [];
  const close = () => {
    run.forEach((i, n) => {
      stroke[n === 0 ? 'moveTo' : 'lineTo'](x(i), y(tops[i]));
      fill[n === 0 ? 'moveTo' : 'lineTo'](x(i), y(tops[i]));
    });
    for (const i of run.reverse()) fill.lineTo(x(i), y(tops[i] - Number(values[i])));
    if (run.length > 0) fill.closePath();
    run = [];
  };
  for (let i = from; i <= to; i += 1) {
    if (isValue(tops[i])) run.push(i);
    else if (tops[i] === null) close();
  }
  close();
  return { stroke, fill, clip: null, band: null, gaps: null, flags: 0 };
}

/**
 * Returns the indices of isolated values. No line reaches a value with a hole on both sides, so it gets a
 * dot.
 * @param {any} u
 * @param {number} index of the series
 * @returns {number[]}
 */
function lonely(u, index) {
  const row = u.data[index];
  const hole = (/** @type {number} */ i) => i < 0 || i >= row.length || row[i] === null;
  /** @type {number[]} */
  const found = [];
  for (let i = 0; i < row.length; i += 1) {
    if (isValue(row[i]) && hole(i - 1) && hole(i + 1)) found.push(i);
  }
  return found;
}

const HOURS = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const SECONDS = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});
const DAYS = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

/**
 * Formats the labels of the time axis: the date at midnight, else the time with the precision that the steps
 * need.
 * @param {number[]} splits
 */
function ticks(splits) {
  const step = splits.length > 1 ? splits[1] - splits[0] : 60;
  return splits.map((at) => {
    const date = new Date(at * 1000);
    if (step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0 && step >= 60)) {
      return DAYS.format(date);
    }
    return (step < 60 ? SECONDS : HOURS).format(date);
  });
}
