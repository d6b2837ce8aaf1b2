/** Dialog that lists the keyboard shortcuts. */

import { h } from '../elements/dom.js';

/** @type {Array<[string, string]>} */
const KEYS = [
  ['/', 'search jobs, nodes and devices'],
  ['o', 'overview'],
  ['j', 'jobs: the first of the list'],
  ['n', 'nodes: the first of the list'],
  ['d', 'devices: the first of the list'],
  ['↑ ↓', 'through a list; Enter opens'],
  ['← →', 'in a plot: its values, point by point'],
  ['1 … 6', 'time range: 5 min, 1 h, 6 h, 24 h, 7 d, whole job'],
  ['Esc', 'leave a zoom, or a search'],
  ['t', 'theme: auto, light, dark'],
  ['?', 'this list'],
];

export class Help {
  constructor() {
    const close = h('button', { type: 'button', class: 'button', onclick: () => this.dialog.close() }, 'Close');
    this.dialog = /** @type {HTMLDialogElement} */ (h('dialog', { 'aria-labelledby': 'help-title' },
      h('h2', { id: 'help-title' }, 'Keys'),
      h('dl', { class: 'keys' }, KEYS.flatMap(([key, does]) =>
        [h('dt', {}, h('kbd', {}, key)), h('dd', {}, does)])),
      h('p', { class: 'muted' },
        'Drag over a plot to zoom all plots to that time range; double-click to zoom out. ' +
        'Shaded times have no samples: move the cursor over them for the cause.'),
      close));
    document.body.append(this.dialog);
  }

  open() {
    if (!this.dialog.open) this.dialog.showModal();
  }
}
