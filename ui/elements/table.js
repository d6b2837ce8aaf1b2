/**
 * Tables that keep their rows in place while values change. Rows are kept by key, and a cell is replaced only
 * when its text changes. The arrow keys move from row to row, and Enter follows the row's link.
 */

import { fill, h, setText } from './dom.js';

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {string} [help] tooltip of the title
 * @property {string} [class] of its cells, such as `number`
 * @property {(row: Row) => string} text what the cell says; it is rebuilt when this changes
 * @property {(row: Row) => import('./dom.js').Child|import('./dom.js').Child[]} [cell] what it shows,
 *   if more than the text
 * @property {(row: Row) => string|number|null} [order] to sort by; no sorting without
 */

/** @template Row */
export class Table {
  /**
   * @param {object} about
   * @param {string} about.name accessible name
   * @param {Column<Row>[]} about.columns
   * @param {(row: Row) => string} about.key
   * @param {string|(() => string)} about.empty what is said when there is no row
   */
  constructor({ name, columns, key, empty }) {
    this.columns = columns;
    this.key = key;
    /** @type {Row[]} */
    this.rows = [];
    /** @type {{column: string, down: boolean}|null} */
    this.sorted = null;
    this.body = h('tbody');
    this.head = h('tr', {}, columns.map((column) => this.title(column)));
    this.empty = empty;
    this.none = h('p', { class: 'empty', hidden: true });
    this.element = h('div', { class: 'table-box' },
      h('table', { 'aria-label': name, onkeydown: (/** @type {KeyboardEvent} */ e) => this.pressed(e) },
        h('thead', {}, this.head), this.body),
      this.none);
  }

  /** @param {Column<Row>} column */
  title(column) {
    const attributes = { scope: 'col', class: column.class, title: column.help };
    if (!column.order) return h('th', attributes, column.title);
    return h('th', { ...attributes, 'data-column': column.id },
      h('button', { type: 'button', class: 'sort', onclick: () => this.sort(column.id) }, column.title));
  }

  /** @param {string} id */
  sort(id) {
    const down = this.sorted?.column === id ? !this.sorted.down : true;
    this.sorted = { column: id, down };
    for (const th of this.head.children) {
      const mine = th.getAttribute('data-column') === id;
      if (mine) th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else th.removeAttribute('aria-sort');
    }
    this.update(this.rows);
  }

  /** @param {Row[]} rows */
  update(rows) {
    this.rows = rows;
    const known = new Map([...this.body.children].map((tr) => [tr.getAttribute('data-key'), tr]));
    const wanted = this.ordered(rows).map((row) => {
      const key = this.key(row);
      const tr = known.get(key) ?? this.newRow(key);
      known.delete(key);
      this.columns.forEach((column, i) => refresh(tr.children[i], column, row));
      return tr;
    });
    for (const gone of known.values()) gone.remove();
    wanted.forEach((tr, i) => {
      const there = this.body.children[i];
      if (there !== tr) this.body.insertBefore(tr, there ?? null);
    });
    if (rows.length === 0) setText(this.none, typeof this.empty === 'function' ? this.empty() : this.empty);
    this.none.hidden = rows.length > 0;
    this.element.classList.toggle('no-rows', rows.length === 0);
  }

  /** @param {Row[]} rows */
  ordered(rows) {
    const column = this.columns.find(({ id }) => id === this.sorted?.column);
    const order = column?.order;
    if (!order) return rows;
    const turn = this.sorted?.down ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [x, y] = [order(a), order(b)];
      if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
      if (typeof x === 'string') return turn * x.localeCompare(String(y), undefined, { numeric: true });
      return turn * (x - Number(y));
    });
  }

  /** @param {string} key */
  newRow(key) {
    const cells = this.columns.map((column) =>
      h('td', { class: column.class, 'data-title': column.title }));
    const tr = h('tr', { 'data-key': key }, cells);
    tr.addEventListener('click', (event) => {
      const target = /** @type {Element} */ (event.target);
      if (!target.closest('a, button') && !getSelection()?.toString()) tr.querySelector('a')?.click();
    });
    return tr;
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const row = /** @type {Element} */ (event.target).closest('tbody tr');
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...this.body.children];
    const at = rows.indexOf(row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || !focusable(rows[to])) return;
    focusable(rows[to])?.focus();
    event.preventDefault();
  }

  /** Focuses the first row. */
  focus() {
    focusable(this.body.firstElementChild)?.focus();
  }
}

/**
 * @param {Element|null|undefined} row
 * @returns {HTMLElement|null}
 */
const focusable = (row) => row?.querySelector('a, button') ?? null;

/**
 * @template Row
 * @param {Element} td
 * @param {Column<Row>} column
 * @param {Row} row
 */
function refresh(td, column, row) {
  const text = column.text(row);
  if (td.getAttribute('data-text') === text) return;
  td.setAttribute('data-text', text);
  fill(td, column.cell ? column.cell(row) : text);
}
