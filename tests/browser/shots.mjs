/**
 * Takes the screenshots of the documentation.
 *
 *     node shots.mjs FOLDER [URL CLUSTER:ID NODE]
 *
 * Without a URL they show the mock's invented cluster.
 */

import { join } from 'node:path';
import { Browser } from './chromium.mjs';
import { open } from './checks.mjs';
import { startMock } from './mock.mjs';

const [, , folder, url, key, node] = process.argv;
if (folder === undefined) {
  process.stderr.write('give the folder to write to: node shots.mjs ../../docs/img\n');
  process.exit(2);
}
const mock = url === undefined ? await startMock() : null;
const where = { url: mock?.url ?? new URL('/', url).href };
const job = `#/job/${key ?? 'slurm:81240'}`;

/** Name, URL fragment, theme, width, height, and whether the device is a phone. */
const SHOTS = [
  ['overview', '', 'light', 1440, 1180],
  ['job', job, 'light', 1440, 1240],
  ['job-dark', job, 'dark', 1440, 1240],
  ['node', `#/node/${encodeURIComponent(node ?? 'node-3')}`, 'light', 1440, 1320],
  ['phone', job, 'dark', 390, 844, true],
];

const browser = await Browser.launch();
try {
  for (const [name, hash, scheme, width, height, phone] of SHOTS) {
    const page = await browser.page(width, height);
    if (phone) await page.size(width, height, true);
    await page.prefers(scheme);
    await open(page, where, hash);
    await page.waitFor('its content', () => document.querySelector('tbody tr, .plot canvas'));
    await new Promise((resolve) => { setTimeout(resolve, 2500); });
    await page.screenshot(join(folder, `${name}.png`));
    await page.close();
  }
} finally {
  await browser.close();
  await mock?.close();
}
