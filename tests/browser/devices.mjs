/**
 * Checks the pages of polled devices in headless Chromium against a server: the list, and the pages of one device that is
 * alive and of one that fails.
 *
 *     node devices.mjs URL ALIVE FAILING
 */

import assert from 'node:assert/strict';
import { ask, open } from './checks.mjs';
import { Browser } from './chromium.mjs';

const [, , url, alive, failing] = process.argv;
const where = { url: new URL('/', url).href };
const browser = await Browser.launch();
try {
  const page = await browser.page();
  await open(page, where, '#/devices');
  const rows = await page.waitFor('the devices', () => {
    const found = [...document.querySelectorAll('table[aria-label="Devices"] tbody tr')].map((tr) => tr.innerText);
    return found.length > 0 && found;
  });
  const known = await ask(where, 'api/v1/devices');
  assert.equal(rows.length, known.length);
  for (const { device, state, address } of known) {
    const row = rows.find((text) => text.startsWith(device));
    assert.ok(row?.includes(state) && row.includes(address), `${device}: ${row}`);
  }
  for (const [device, state] of [[alive, 'alive'], [failing, 'failing']]) {
    await open(page, where, `#/device/${encodeURIComponent(device)}`);
    await page.waitFor(`${device}: its state`, (word) => document.querySelector('.title-line .badge')?.innerText.trim() === word, state);
    await page.waitFor(`${device}: its metrics`, () => {
      const table = document.querySelector('table[aria-label="Metrics"]')?.innerText ?? '';
      return table.includes('poll_success') && table.includes('prom_power_watt');
    });
    await page.waitFor(`${device}: its node`, () => document.querySelector('main a[href="#/node/n1"]'));
  }
  await page.waitFor('the gap', () => document.querySelector('.gaps')?.innerText.includes('source broken'));
  assert.deepEqual(page.errors, []);
} finally {
  await browser.close();
}
process.stdout.write('the pages of devices show what the API returns\n');
