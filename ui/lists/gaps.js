/** List of gaps with their causes. */

import { h } from '../elements/dom.js';
import { duration, fullInstant, instant } from '../values/time.js';

/** @typedef {import('../server/api.js').Gap} Gap */

const GAPS_SHOWN = 20;

/**
 * @param {Gap[]} gaps
 * @param {number} now
 * @returns {HTMLElement|null} null where nothing is missing
 */
export function gapList(gaps, now) {
  if (gaps.length === 0) return null;
  const latest = [...gaps].sort((a, b) => b.from - a.from);
  const rest = latest.length - GAPS_SHOWN;
  return h('section', { class: 'card', 'aria-labelledby': 'gaps-title' },
    h('header', {}, h('h2', { id: 'gaps-title' }, 'Missing samples'),
      h('span', { class: 'muted' }, 'shaded in the plots')),
    h('ul', { class: 'gaps' }, latest.slice(0, GAPS_SHOWN).map((gap) => h('li', {},
      h('time', { title: `${fullInstant(gap.from)} – ${fullInstant(gap.to)}` },
        `${instant(gap.from, now)}, ${duration(gap.to - gap.from)}`),
      h('span', {}, gap.device, gap.source === '' ? '' : ` · ${gap.source}`),
      h('span', {}, gap.cause, gap.detail === '' ? '' : h('span', { class: 'muted' }, ` – ${gap.detail}`))))),
    rest > 0 ? h('p', { class: 'muted' }, `and ${rest} older ones`) : null);
}
