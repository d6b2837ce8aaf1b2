/** Helpers that create elements. They insert text as text nodes only and never parse markup. */

/** @typedef {Node|string|number|null|undefined|false} Child */

/**
 * Creates an element with attributes, listeners (`onclick: f`) and children.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] false, null and undefined leave one out; true sets it empty
 * @param {...(Child|Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat().filter(present).map(asNode));
  return element;
}

/** @param {Child} child */
const present = (child) => child !== null && child !== undefined && child !== false;

/** @param {Child} child */
const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...(Child|Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter(present).map(asNode));
}

/**
 * Sets text only if it differs, so that a selection survives a refresh.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Record<string, string|number>} attributes
 * @param {...Element} children
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * Creates a bar with a text that shows the used part of a whole.
 * @param {number|null} part
 * @param {number|null} whole
 * @param {string} text
 */
export function bar(part, whole, text) {
  const share = part !== null && whole !== null && whole > 0 ? Math.min(part / whole, 1) : null;
  const fillBar = h('span', { class: share !== null && share > 0.9 ? 'bar-fill high' : 'bar-fill' });
  fillBar.style.width = share === null ? '0' : `${(share * 100).toFixed(1)}%`;
  return h('span', { class: 'bar-cell' },
    h('span', { class: 'bar-text' }, text),
    h('span', { class: 'bar', 'aria-hidden': 'true' }, fillBar));
}

/**
 * Creates a sparkline: a line without axes, as wide as its cell.
 * @param {Array<number|null|undefined>} values
 * @param {number} max
 */
export function spark(values, max) {
  const width = 100;
  const height = 22;
  const step = width / Math.max(values.length - 1, 1);
  let path = '';
  let pen = false;
  values.forEach((value, i) => {
    if (value === undefined) return;
    if (value === null) {
      pen = false;
      return;
    }
    const y = height - 1 - (Math.min(value, max) / (max || 1)) * (height - 2);
    path += `${pen ? 'L' : 'M'}${(i * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  });
  const frame = { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'spark' };
  return svg('svg', { ...frame, 'aria-hidden': 'true' }, svg('path', { d: path, fill: 'none' }));
}
