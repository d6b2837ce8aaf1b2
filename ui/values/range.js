/** Time range of a page's plots. The URL contains it, so that a link shows the same range. */

import { fill, h } from '../elements/dom.js';
import { keep } from '../server/route.js';
import { instant } from './time.js';

/**
 * @typedef {object} Span the time a thing existed; a node's has no ends
 * @property {number|null} start
 * @property {number|null} stop
 */

/**
 * @typedef {object} Window
 * @property {number} start
 * @property {number} end
 * @property {boolean} live whether its end moves
 */

/** @type {Array<[string, number, string]>} */
const CHOICES = [
  ['5m', 300, '5 min'],
  ['1h', 3600, '1 h'],
  ['6h', 6 * 3600, '6 h'],
  ['24h', 24 * 3600, '24 h'],
  ['7d', 7 * 86400, '7 d'],
];
const WHOLE = 'whole';

/** Minimum length in seconds of the range of a whole job, so that a job of 1 s still gets a time axis. */
const WHOLE_MIN_S = 20;
const ZOOM_MIN_S = 1;
const STANDARD_S = 3600;

/**
 * Returns the time range of a choice. The range of an ended job ends with the job, not now.
 * @param {string} chosen `5m`, `1h`, …, `whole`
 * @param {[number, number]|null} fixed a zoom, which goes before the choice
 * @param {Span|null} whole
 * @param {number} now
 * @returns {Window}
 */
export function windowOf(chosen, fixed, whole, now) {
  if (fixed !== null) return { start: fixed[0], end: fixed[1], live: fixed[1] >= now };
  const live = whole === null || whole.stop === null;
  const end = Math.min(now, whole?.stop ?? now);
  if (chosen === WHOLE && whole !== null && whole.start !== null) {
    const length = Math.max(end - whole.start, 0);
    const pad = Math.max(length * 0.01, (WHOLE_MIN_S - length) / 2, 1);
    return { start: whole.start - pad, end: live ? end : end + pad, live };
  }
  const seconds = CHOICES.find(([id]) => id === chosen)?.[1] ?? STANDARD_S;
  return { start: end - seconds, end, live };
}

export class RangeControl {
  /**
   * @param {URLSearchParams} query what the address keeps
   * @param {string} standard the choice when it keeps none
   * @param {Span|null} whole for `whole job`; null leaves that choice out
   */
  constructor(query, standard, whole) {
    this.whole = whole;
    this.standard = standard;
    /** @type {Array<() => void>} */
    this.watchers = [];
    const from = Number(query.get('from') ?? NaN);
    const to = Number(query.get('to') ?? NaN);
    /** @type {[number, number]|null} */
    this.fixed = to > from ? [from, to] : null;
    this.chosen = this.known(query.get('range')) ?? standard;
    this.element = h('div', { class: 'range', role: 'group', 'aria-label': 'Time range' });
    this.render();
  }

  /** @param {string|null} name */
  known(name) {
    if (name === WHOLE) return this.whole === null ? null : WHOLE;
    return CHOICES.some(([id]) => id === name) ? name : null;
  }

  /** @param {() => void} watcher */
  watch(watcher) {
    this.watchers.push(watcher);
  }

  /**
   * @param {number} now
   * @returns {Window}
   */
  window(now) {
    return windowOf(this.chosen, this.fixed, this.whole, now);
  }

  /** @param {string} name */
  choose(name) {
    this.fixed = null;
    this.chosen = name;
    keep({ range: name === this.standard ? null : name, from: null, to: null });
    this.changed();
  }

  /** @param {number} index of the choice, as the keys 1, 2, … give it */
  chooseNth(index) {
    const ids = CHOICES.map(([id]) => id).concat(this.whole === null ? [] : [WHOLE]);
    if (index < ids.length) this.choose(ids[index]);
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  zoom(start, end) {
    const middle = (start + end) / 2;
    const half = Math.max(end - start, ZOOM_MIN_S) / 2;
    const grain = half > 30 ? 1 : 0.1;
    const round = (/** @type {number} */ at) => Number((Math.round(at / grain) * grain).toFixed(1));
    this.fixed = [round(middle - half), round(middle + half)];
    keep({ from: String(this.fixed[0]), to: String(this.fixed[1]), range: null });
    this.changed();
  }

  /** Resets the zoom. */
  back() {
    if (this.fixed !== null) this.choose(this.chosen);
  }

  changed() {
    this.render();
    for (const watcher of this.watchers) watcher();
  }

  render() {
    const button = (/** @type {string} */ id, /** @type {string} */ text) => h('button', {
      type: 'button', class: 'choice', 'data-range': id, onclick: () => this.choose(id),
      'aria-pressed': String(this.fixed === null && this.chosen === id),
    }, text);
    const now = Date.now() / 1000;
    fill(this.element,
      CHOICES.map(([id, , text]) => button(id, text)),
      this.whole === null ? null : button(WHOLE, 'whole job'),
      this.fixed === null ? null : h('button', {
        type: 'button', class: 'choice', 'aria-pressed': 'true', onclick: () => this.back(),
        title: 'Back to the range before',
      }, `${instant(this.fixed[0], now)} – ${instant(this.fixed[1], now)} ×`));
  }
}
