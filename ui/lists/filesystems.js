/** Table of a node's file systems with their used and total bytes. */

import { bar, h } from '../elements/dom.js';
import { Table } from '../elements/table.js';
import { bytes, bytesOf } from '../values/units.js';

/** @typedef {import('../frame/app.js').Page} Page */
/** @typedef {{mount: string, type: string, size: number|null, free: number|null, available: number|null}} Mount */

/** @type {Array<['size'|'free'|'available', string]>} */
const METRICS = [
  ['size', 'filesystem_size_bytes'],
  ['free', 'filesystem_free_bytes'],
  ['available', 'filesystem_available_bytes'],
];

/** @param {Mount} mount */
const used = ({ size, free }) => (size === null || free === null ? null : size - free);

export class Filesystems {
  /**
   * @param {Page} page
   * @param {string} device
   */
  constructor(page, device) {
    this.page = page;
    this.device = device;
    const text = (/** @type {Mount} */ mount) => bytesOf(used(mount), mount.size);
    /** @type {Table<Mount>} */
    this.table = new Table({
      name: 'File systems',
      key: (mount) => mount.mount,
      empty: 'None.',
      columns: [
        { id: 'mount', title: 'Mount', class: 'main', text: (mount) => mount.mount, order: (mount) => mount.mount },
        { id: 'type', title: 'Type', text: (mount) => mount.type, order: (mount) => mount.type },
        {
          id: 'used', title: 'Used', class: 'wide', text,
          cell: (mount) => bar(used(mount), mount.size, text(mount)),
          order: (mount) => (mount.size ? (used(mount) ?? 0) / mount.size : null),
        },
        {
          id: 'available', title: 'Available', class: 'number', text: (mount) => bytes(mount.available),
          order: (mount) => mount.available, help: page.catalogue.get('filesystem_available_bytes')?.help,
        },
      ],
    });
    this.element = h('section', { class: 'card', hidden: true, 'aria-labelledby': 'mounts-title' },
      h('header', {}, h('h2', { id: 'mounts-title' }, 'File systems')), this.table.element);
  }

  /** @param {AbortSignal} signal */
  async refresh(signal) {
    const { api, catalogue } = this.page;
    const known = METRICS.filter(([, metric]) => catalogue.has(metric));
    const answers = await Promise.all(known.map(([, metric]) =>
      api.last({ device: this.device, metric }, signal)));
    /** @type {Map<string, Mount>} */
    const mounts = new Map();
    known.forEach(([key], i) => {
      for (const { labels, value } of answers[i]) {
        const mount = labels.mount ?? '';
        const row = mounts.get(mount) ??
          { mount, type: labels.type ?? '', size: null, free: null, available: null };
        row[key] = value;
        mounts.set(mount, row);
      }
    });
    this.table.update([...mounts.values()].sort((a, b) => a.mount.localeCompare(b.mount)));
    this.element.hidden = mounts.size === 0;
  }
}
