/** The plots of a page, and a list of the plots that have no samples. */

import { fill, h } from '../elements/dom.js';
import { Panel } from './panel.js';

/** @typedef {import('./picture.js').PlotSpec} PlotSpec */

export class Plots {
  /**
   * @param {PlotSpec[]} specs
   * @param {import('./panel.js').Board} board
   * @param {string} subject what lacks metrics, in words: `this job`, `node-1`
   */
  constructor(specs, board, subject) {
    this.specs = specs;
    this.board = board;
    this.subject = subject;
    /** @type {Map<string, Panel>} */
    this.panels = new Map();
    this.grid = h('div', { class: 'plots' });
    this.missing = h('div', { class: 'card missing', hidden: true });
    board.range.watch(() => this.refresh());
  }

  /**
   * Shows the plots that these metrics allow. A plot stays on the page once it is shown.
   * @param {Set<string>} metrics those that have series here
   */
  offer(metrics) {
    /** @type {PlotSpec[]} */
    const absent = [];
    for (const spec of this.specs) {
      const lines = spec.lines.filter(({ metric }) => metrics.has(metric));
      const panel = this.panels.get(spec.id);
      if (lines.every((line) => line.ceiling)) {
        if (!panel) absent.push(spec);
      } else if (panel === undefined) {
        this.open(spec, lines);
      } else if (panel.lines.length < lines.length) {
        panel.lines = lines;
        panel.task.now();
      }
    }
    this.say(absent);
  }

  /**
   * @param {PlotSpec} spec
   * @param {import('./picture.js').Wanted[]} lines
   */
  open(spec, lines) {
    const panel = new Panel(spec, this.board, lines);
    this.panels.set(spec.id, panel);
    const order = this.specs.map(({ id }) => id);
    const rank = (/** @type {Element} */ element) =>
      order.indexOf(element.getAttribute('data-plot') ?? '');
    const next = [...this.grid.children].find((other) => rank(other) > rank(panel.element));
    this.grid.insertBefore(panel.element, next ?? null);
  }

  /** @param {PlotSpec[]} absent */
  say(absent) {
    this.missing.hidden = absent.length === 0;
    fill(this.missing, h('h2', {}, 'Not shown'), h('ul', {}, absent.map((spec) => h('li', {},
      spec.title, h('span', { class: 'muted' }, ` – no samples of ${this.subject} for `),
      spec.lines.filter((line) => !line.ceiling).flatMap(({ metric }, i) =>
        [i > 0 ? ', ' : '', h('code', {}, metric)])))));
  }

  /** Toggles an extra plot outside the list of `specs`. @param {PlotSpec} spec @param {HTMLElement} place */
  add(spec, place) {
    const known = this.panels.get(spec.id);
    if (known) {
      known.close();
      this.panels.delete(spec.id);
      return false;
    }
    const panel = new Panel(spec, this.board, spec.lines);
    this.panels.set(spec.id, panel);
    place.append(panel.element);
    return true;
  }

  refresh() {
    for (const panel of this.panels.values()) panel.task.now();
  }

  data() {
    return [...this.panels.values()].map((panel) => panel.data());
  }

  close() {
    for (const panel of this.panels.values()) panel.close();
    this.panels.clear();
  }
}
