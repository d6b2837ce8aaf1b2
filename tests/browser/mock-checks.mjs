/** Checks that need the mock: gaps, an unreachable server, hostile names, and a laptop without jobs. */

import assert from 'node:assert/strict';
import { ask, open } from './checks.mjs';
import { startMock } from './mock.mjs';

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const requests = (page) => page.requested.filter((address) => address.includes('/api/'));

/** Plots outside the window send no requests until the user scrolls to them. */
export async function onlyVisible(page, where) {
  await open(page, where, '#/node/node-3');
  await page.waitFor('the first plot', () => window.jobmeter.plots()[0]?.lines.length > 0);
  const hasRequested = (metric) => page.requested.some((address) => address.includes('/range?') && address.includes(metric));
  assert.ok(hasRequested('cpu_user_seconds_total'));
  assert.ok(!hasRequested('network_received_bytes_total'), 'the network\'s plot is below the window');
  await page.evaluate(() => document.querySelector('[data-plot="network"]').scrollIntoView());
  await page.waitFor('the network', () => window.jobmeter.plots().find(({ id }) => id === 'network').lines.length > 0);
  const missing = await page.evaluate(() => document.querySelector('.missing').innerText);
  assert.match(missing, /Swapping – no samples of node-3 for vmstat_swapped_in_pages_total/);
}

/** A hidden tab sends no requests. When it is visible again, it sends them at once. */
export async function hidden(page, where) {
  const hide = (on) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, on);
  await open(page, where, '');
  await page.waitFor('the nodes', () => document.querySelector('tbody tr'));
  await hide(true);
  await pause(300);
  const before = requests(page).length;
  await pause(6000);
  assert.equal(requests(page).length, before, 'requests while hidden');
  await hide(false);
  await pause(500);
  assert.ok(requests(page).length > before, 'no request when shown again');
}

/**
 * A sum leaves a gap's node out, and the text at the cursor names the gap. Dragging zooms all plots, and
 * Escape resets the zoom.
 */
export async function zoom(page, where) {
  await open(page, where, '#/job/slurm:81234?range=1h');
  const plot = await page.waitFor('the plot', () => {
    const found = window.jobmeter.plots().find(({ id }) => id === 'cpu');
    return found?.lines.length > 0 && found;
  });
  const [gap] = (await ask(where, 'api/v1/gaps?device=node-2'));
  const inside = plot.times.map((time, i) => [time, plot.lines[0].values[i]])
    .filter(([time]) => time > gap.from + plot.step && time < gap.to - plot.step);
  // The sum over nodes leaves the node with the gap out.
  assert.ok(inside.length > 0 && inside.every(([, value]) => value !== null), 'the sum goes on without one node');
  const box = await page.evaluate(() => {
    const { left, top, width, height } = document.querySelector('[data-plot="cpu"] .u-over').getBoundingClientRect();
    return { left, top, width, height };
  });
  const shown = plot.request.match(/start=(\d+)&end=(\d+)/).slice(1).map(Number);
  const at = (time) => ({
    x: Math.round(box.left + (box.width * (time - shown[0])) / (shown[1] - shown[0])), y: Math.round(box.top + box.height / 2),
  });
  await page.mouse(at(gap.from - 300));
  await page.mouse(at((gap.from + gap.to) / 2));
  await page.waitFor('the cause', () =>
    document.querySelector('[data-plot="cpu"] .plot-note').textContent.includes('agent down'));
  await page.waitFor('how many nodes the sum covers', () =>
    /· \d+ of \d+ nodes/.test(document.querySelector('[data-plot="cpu"] .plot-time').textContent));
  await page.waitFor('the other plots\' cursor', () => document.querySelector('[data-plot="memory"] .plot-time').textContent !== '');
  await page.mouse(at(gap.from - 600), at(gap.to + 300));
  const zoomed = await page.waitFor('the zoom', () => location.hash.match(/from=(\d+)&to=(\d+)/)?.slice(1).map(Number));
  assert.ok(Math.abs(zoomed[0] - (gap.from - 600)) < 60 && Math.abs(zoomed[1] - (gap.to + 300)) < 60, String(zoomed));
  await page.waitFor('finer points', () => window.jobmeter.plots().find(({ id }) => id === 'cpu').step < 30);
  await page.key('Escape');
  await page.waitFor('the range before', () => location.hash === '#/job/slurm:81234?range=1h');
}

/** The page of a reused job ID links its other runs, in both directions. */
export async function givenAgain(page, where) {
  const link = () => page.waitFor('the other run', () =>
    [...document.querySelectorAll('.facts a')].find(({ href }) => href.includes('#/job/'))?.hash);
  const ended = () => page.evaluate(() => document.querySelector('.facts').innerText.includes('Ended'));
  await open(page, where, '#/job/slurm:81234');
  const older = await link();
  assert.match(older, /^#\/job\/slurm:81234\?start=\d/);
  assert.equal(await ended(), false, 'the newest runs');
  await page.evaluate((hash) => { location.hash = hash; }, older);
  await page.waitFor('the older run', () => document.querySelector('.facts')?.innerText.includes('Ended'));
  assert.equal(await link(), '#/job/slurm:81234');
}

/** A mark is a line in the node's plots, and the cursor shows its text. */
export async function marked(page, where) {
  await open(page, where, '#/node/node-1?range=1h');
  const plot = await page.waitFor('the plot', () => {
    const found = window.jobmeter.plots().find(({ id }) => id === 'cpu');
    return found?.lines.length > 0 && found;
  });
  assert.equal(plot.marks.length, 1);
  const box = await page.evaluate(() => {
    const { left, top, width, height } = document.querySelector('[data-plot="cpu"] .u-over').getBoundingClientRect();
    return { left, top, width, height };
  });
  const [start, end] = plot.request.match(/start=([\d.]+)&end=([\d.]+)/).slice(1).map(Number);
  const at = (time) => ({ x: Math.round(box.left + (box.width * (time - start)) / (end - start)), y: box.top + 20 });
  await page.mouse(at(plot.marks[0].at - 900));
  await page.mouse(at(plot.marks[0].at));
  await page.waitFor('the mark in words', () =>
    document.querySelector('[data-plot="cpu"] .plot-note').textContent.includes('changed by root: sources.load.period'));
}

/** The list of devices shows their states and finds them; a device's page and a node's page have its values. */
export async function devices(page, where) {
  await open(page, where, '#/devices');
  const rows = () => page.evaluate(() => [...document.querySelectorAll('table[aria-label="Devices"] tbody tr')].map((tr) => tr.innerText));
  await page.waitFor('three devices', () => document.querySelectorAll('table[aria-label="Devices"] tbody tr').length === 3);
  assert.match((await rows())[0], /node-2-bmc[^]*failing[^]*source timed out: no answer/, 'failing ones first');
  await page.evaluate(() => document.querySelector('input[aria-label="Search devices"]').focus());
  await page.type('PDU');
  await page.waitFor('the found device', () => document.querySelectorAll('table[aria-label="Devices"] tbody tr').length === 1);
  assert.match((await rows())[0], /pdu-1[^]*alive/);
  assert.match(await page.evaluate(() => location.hash), /search=PDU/);
  await open(page, where, '#/device/node-2-bmc');
  const facts = await page.waitFor('its facts', () => document.querySelector('.target')?.innerText);
  assert.match(facts, /State failing: source timed out: no answer/);
  assert.match(facts, /Address ipmisensor:\/\/node-2-bmc:623[^]*Poller one/);
  await page.waitFor('the node that it feeds', () => document.querySelector('main a[href="#/node/node-2"]'));
  await page.waitFor('its gap', () => document.querySelector('.gaps')?.innerText.includes('source timed out'));
  await page.waitFor('its metrics', () => document.querySelector('table[aria-label="Metrics"]')?.innerText.includes('ipmi_power_watts'));
  await page.evaluate(() => [...document.querySelectorAll('table[aria-label="Metrics"] button')].find((one) =>
    one.innerText === 'ipmi_power_watts').click());
  await page.waitFor('its plot', () => window.jobmeter.plots().some((plot) => plot.lines.length === 1));
  for (const hash of ['#/node/node-1', '#/job/slurm:81234']) {
    await open(page, where, hash);
    const value = await page.waitFor(`${hash}: the BMC's value`, () =>
      document.querySelector('table[aria-label="Values of devices that feed node-1"] tbody tr')?.innerText);
    assert.match(value, /ipmi_power_watts[^]*node-1-bmc[^]*\d\sW/, hash);
  }
  await page.size(360, 740, true);
  for (const hash of ['#/devices', '#/device/node-2-bmc']) {
    await open(page, where, hash);
    await page.waitFor(`${hash}: its content`, () => document.querySelector('tbody tr'));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${hash} is ${wide} pixels too wide`);
  }
}

/** A waiting job has a page, without plots that start in 1970. */
export async function waiting(page, where) {
  await open(page, where, '#/job/slurm:81250');
  await page.waitFor('its state', () => document.querySelector('main .badge.waiting'));
  assert.equal(await page.evaluate(() => document.querySelectorAll('.plot').length), 0);
  const facts = await page.evaluate(() => document.querySelector('.facts').innerText);
  assert.match(facts, /Queue long/);
  assert.match(facts, /Requested 1 node, 32 cpus, 60(\.0)?\sGiB, 2\sh/);
  assert.doesNotMatch(facts, /Wall time|Started/);
}

/** A machine without jobs shows the command that runs one, and its systemd services. */
export async function laptop(page) {
  const mock = await startMock({ scene: 'laptop' });
  await open(page, mock, '');
  const text = await page.waitFor('the line to copy', () => document.querySelector('.start:not([hidden])')?.innerText);
  assert.ok(text.includes('./jobmeter run -- make -j2'), text);
  const copy = await page.evaluate(async () => {
    document.querySelector('.start button').click();
    await new Promise((resolve) => { setTimeout(resolve, 200); });
    return document.querySelector('.start [role="status"]').textContent;
  });
  assert.match(copy, /Copied|Selected/);
  await page.waitFor('services', () => document.querySelector('table[aria-label="Services"]')?.innerText.includes('docker.service'));
  await page.open('about:blank');
  await mock.close();
}

/** Names appear as text, even if they contain markup. */
export async function markup(page) {
  const mock = await startMock({ scene: 'markup' });
  const name = '<img src=x onerror=alert(1)>';
  for (const hash of ['', '#/jobs', '#/job/local:3', `#/node/${encodeURIComponent('<i>n')}`, '#/devices']) {
    await open(page, mock, hash);
    await page.waitFor(`${hash}: the name as text`, (text) => document.querySelector('main').innerText.includes(text), name);
    assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main i, main b').length), 0, hash);
  }
  await page.open('about:blank');
  await mock.close();
}

/** A server that requires a token makes the page ask for one, and ask again after a wrong one. */
export async function token(page) {
  const mock = await startMock({ token: 'right' });
  await page.open(mock.url);
  for (const text of ['wrong', 'right']) {
    await page.waitFor('the dialog', () => document.querySelector('dialog[open] #token-field'));
    await page.evaluate(() => document.querySelector('#token-field').focus());
    await page.type(text);
    await page.key('Enter');
    await page.waitFor('the answer', () => !document.querySelector('dialog[open]') || document.querySelector('#token-field').value === '');
  }
  await page.waitFor('the nodes', () => document.querySelector('table[aria-label="Nodes"] tbody tr'));
  await page.waitFor('no dialog', () => document.querySelector('dialog[open]') === null);
  await page.send('Page.reload');
  await page.waitFor('the nodes again, unasked', () => document.querySelector('table[aria-label="Nodes"] tbody tr'));
  await page.open('about:blank');
  await mock.close();
}

/** The page shows that the server is unreachable, retries with back-off, and recovers. */
export async function away(page) {
  let mock = await startMock();
  await open(page, mock, '#/job/slurm:81240?range=5m');
  const last = await page.waitFor('plots', () => window.jobmeter.plots()[0]?.times.at(-1));
  await mock.close();
  const banner = await page.waitFor('the banner', () => {
    const found = document.querySelector('#banner');
    return !found.hidden && found.innerText;
  });
  assert.match(banner, /unreachable since \d\d:\d\d:\d\d/);
  await pause(200);
  const before = requests(page).length;
  await pause(7000);
  const tries = requests(page).slice(before);
  assert.ok(tries.length <= 3 && tries.every((address) => address.endsWith('/health')), tries.join(' '));
  assert.ok(await page.evaluate(() => window.jobmeter.plots()[0].lines.length > 0), 'what was known stays');
  mock = await startMock({ port: mock.port });
  await page.waitFor('the page without the banner', () => document.querySelector('#banner').hidden);
  await page.waitFor('newer points', (time) => window.jobmeter.plots()[0].times.at(-1) > time, last);
  await page.open('about:blank');
  await mock.close();
}
