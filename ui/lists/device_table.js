/** Columns and sort order of the list of devices that are no nodes. */

import { h } from '../elements/dom.js';
import { Table } from '../elements/table.js';
import { deviceHash, nodeHash } from '../server/route.js';
import { duration } from '../values/time.js';
import { badge, seenText } from './node_and_job_tables.js';

/** @typedef {import('../server/api.js').DeviceInfo} DeviceInfo */

const NODES_SHOWN = 3;

/** True if the device fails or its state is unknown. @param {DeviceInfo} device */
export const needsAttention = ({ state }) => state === 'failing' || state === 'unknown';

/**
 * Sorts failing devices first, and those of silent pollers, then by name.
 * @param {DeviceInfo[]} devices
 */
export const orderDevices = (devices) => [...devices].sort((a, b) =>
  Number(needsAttention(b)) - Number(needsAttention(a)) || a.device.localeCompare(b.device, undefined, { numeric: true }));

/** Creates links to the nodes that a device feeds. @param {string[]} aliases @param {number} [most] */
export function nodeLinks(aliases, most = aliases.length) {
  const rest = aliases.length - most;
  const links = aliases.slice(0, most).flatMap((name, i) =>
    [i > 0 ? ', ' : '', h('a', { href: nodeHash(name) }, name)]);
  return rest > 0 ? [...links, ` and ${rest} more`] : links;
}

/**
 * @param {import('../server/api.js').Api} api
 * @returns {Table<DeviceInfo>}
 */
export function deviceTable(api) {
  return new Table({
    name: 'Devices',
    key: (one) => `${one.device} ${one.address}`,
    empty: 'No device matches.',
    columns: [
      {
        id: 'device', title: 'Device', class: 'main', text: (one) => one.device,
        cell: (one) => h('a', { href: deviceHash(one.device) }, one.device), order: (one) => one.device,
      },
      {
        id: 'state', title: 'State', class: 'prose', text: (one) => `${one.state} ${one.reason ?? ''}`,
        cell: (one) => [badge(one.state), one.reason === null ? null : h('span', { class: 'muted' }, ` ${one.reason}`)],
        order: (one) => one.state,
      },
      {
        id: 'address', title: 'Address', text: (one) => one.address ?? '–',
        help: 'Where the poller reads it', order: (one) => one.address ?? '',
      },
      { id: 'poller', title: 'Poller', text: (one) => one.poller ?? '–', order: (one) => one.poller ?? '' },
      {
        id: 'period', title: 'Period', class: 'number', text: (one) => duration(one.period_seconds),
        order: (one) => one.period_seconds,
      },
      {
        id: 'good', title: 'Last good value', class: 'number', text: (one) => seenText(one.last_good, api.now()),
        order: (one) => one.last_good,
      },
      {
        id: 'nodes', title: 'Feeds', text: (one) => one.aliases.join(', ') || '–',
        cell: (one) => (one.aliases.length === 0 ? '–' : nodeLinks(one.aliases, NODES_SHOWN)),
        order: (one) => one.aliases[0] ?? '',
      },
    ],
  });
}
