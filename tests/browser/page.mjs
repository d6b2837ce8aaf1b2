/**
 * Tests of the page in headless Chromium.
 *
 *     node page.mjs URL CLUSTER:ID    against a server with a job that has run for some seconds
 *     node page.mjs                   against the mock, with the checks that need the mock
 */

import assert from 'node:assert/strict';
import { Browser } from './chromium.mjs';
import { startMock } from './mock.mjs';
import { everyPage, jobPage, keyboard, lists, narrow, themes } from './checks.mjs';
import { away, devices, givenAgain, hidden, laptop, marked, markup, onlyVisible, token, waiting, zoom } from './mock-checks.mjs';

const [, , url, key] = process.argv;
if (url !== undefined && key === undefined) {
  process.stderr.write('give the page\'s address and a job: node page.mjs http://127.0.0.1:8790/ local:1\n');
  process.exit(2);
}

/**
 * Runs a check in a new tab. The check fails if the console has errors that do not match `expected`.
 * @param {Browser} browser
 * @param {(page: import('./chromium.mjs').Page, where: {url: string, key: string}) => Promise<void>} check
 * @param {{url: string, key: string}} where
 * @param {RegExp} [expected] errors that belong to the check
 */
async function run(browser, check, where, expected) {
  const started = Date.now();
  const page = await browser.page();
  await check(page, where);
  const errors = page.errors.filter((error) => !expected?.test(error));
  assert.deepEqual(errors, [], `${check.name}: errors in the console`);
  await page.close();
  process.stdout.write(`ok ${check.name} (${Date.now() - started} ms)\n`);
}

const real = url !== undefined;
const mock = real ? null : await startMock();
const where = real ? { url: new URL('/', url).href, key } : { url: mock.url, key: 'slurm:81240' };
const browser = await Browser.launch();
try {
  for (const check of [lists, jobPage, everyPage, themes, keyboard, narrow]) await run(browser, check, where);
  if (!real) {
    for (const check of [onlyVisible, hidden, zoom, givenAgain, marked, devices, waiting, laptop, markup]) await run(browser, check, where);
    await run(browser, token, where, /status of 401/);
    await run(browser, away, where, /ERR_CONNECTION_REFUSED/);
  }
} finally {
  await browser.close();
  await mock?.close();
}
process.stdout.write('the page does what it should\n');
