/** Checks that hold against every server. */

import assert from 'node:assert/strict';
import { digits, quantity, show } from '../../ui/values/units.js';

/** Requests a resource of the API directly, not through the page. */
export async function ask(where, path) {
  const response = await fetch(new URL(path, where.url));
  assert.equal(response.status, 200, path);
  return response.json();
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Opens a URL of the page and waits for its heading. */
export async function open(page, where, hash) {
  await page.open(`${where.url}${hash}`);
  await page.waitFor(`the page ${hash}`, () => document.querySelector('main h1')?.textContent);
}

const hashOf = (key) => `#/job/${key}`;

/** The first page shows the nodes, the job and the version that the API returns. */
export async function lists(page, where) {
  const [health, nodes, report] = await Promise.all([
    ask(where, 'api/v1/health'), ask(where, 'api/v1/nodes'), ask(where, `api/v1/jobs/${where.key}`)]);
  await open(page, where, '');
  const rows = (name) => page.waitFor(`rows of ${name}`, (label) => {
    const found = [...document.querySelectorAll(`table[aria-label="${label}"] tbody tr`)].map((tr) => tr.innerText);
    return found.length > 0 && found;
  }, name);
  const nodeRows = await rows('Nodes');
  assert.equal(nodeRows.length, Math.min(nodes.length, 12));
  for (const node of nodes.slice(0, 12)) {
    const row = nodeRows.find((text) => text.startsWith(node.device));
    assert.ok(row, `${node.device} is listed`);
    assert.match(row, node.alive ? /alive/ : /silent since|never reported/, node.device);
  }
  const { job } = report;
  const row = (await rows('Jobs')).find((text) => text.includes(`${job.cluster}:${job.display_id}`));
  assert.ok(row, `${where.key} is listed`);
  assert.ok(row.includes(job.name ?? job.display_id), 'with its name');
  assert.ok(row.includes(job.state), 'with its state');
  const tile = await page.evaluate(() =>
    [...document.querySelectorAll('.tile')].find((one) => one.innerText.startsWith('Jobs'))?.innerText);
  assert.ok(tile.includes(String(health.jobs_running)), `number of active jobs: ${tile}`);
  const footer = await page.evaluate(() => document.querySelector('footer').innerText);
  assert.ok(footer.includes(health.version), footer);
  assert.equal(footer.includes('development build'), health.build === 'development', footer);
}

/** A job's page shows the job's name, its totals, and plots with the values of the API. */
export async function jobPage(page, where) {
  await open(page, where, hashOf(where.key));
  const { job } = await ask(where, `api/v1/jobs/${where.key}`);
  const heading = job.name ?? `job ${job.display_id}`;
  await page.waitFor('the job\'s name', (name) => document.querySelector('h1').textContent === name, heading);
  assert.ok((await page.evaluate(() => document.title)).includes(heading));
  await page.waitFor('plots with values', () => window.jobmeter.plots().some((plot) =>
    plot.lines.some((line) => line.values.some((value) => value !== null))));
  await totals(page, where);
  const compared = await samePlots(page, where);
  assert.ok(compared.has('cpu') || compared.has('memory'), `compared: ${[...compared].join(', ')}`);
  assert.ok(await page.waitFor('something drawn', () => {
    const canvas = document.querySelector('.plot canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((byte) => byte !== 0);
  }));
}

/** The tiles show the totals of the report, which may grow between the two requests. */
async function totals(page, where) {
  const before = await ask(where, `api/v1/jobs/${where.key}`);
  const shown = await page.evaluate(() => Object.fromEntries([...document.querySelectorAll('.tile')].map((tile) =>
    [tile.querySelector('.tile-name').textContent, tile.querySelector('.tile-value').textContent])));
  const { cores_used: cores, memory_peak_bytes: peak } = before.totals;
  if (before.job.stop !== null) assert.equal(shown['Cores used'], cores === null ? '–' : digits(cores));
  if (before.job.stop !== null) assert.equal(shown['Memory peak'], show(peak, quantity('bytes')));
  assert.ok(Object.keys(shown).length >= 7, 'tiles');
}

/** Repeats the page's requests and compares point by point. The latest points may still change. */
async function samePlots(page, where) {
  const plots = await page.evaluate(() => window.jobmeter.plots());
  const compared = new Set();
  for (const plot of plots) {
    if (plot.times.length < 4) continue;
    const until = plot.times.at(-1) - 2 * plot.step;
    const { series } = await ask(where, plot.request);
    for (const line of plot.lines) {
      // Skip metrics with one line for each label: a line is compared only if its metric has a single line.
      if (/^others/.test(line.label) || plot.lines.filter(({ metric }) => metric === line.metric).length > 1) continue;
      const parts = series.filter(({ metric }) => metric === line.metric);
      let points = 0;
      plot.times.forEach((time, i) => {
        const value = line.values[i];
        if (value === null || value === undefined || time > until) return;
        const there = parts.map((one) => one.values[one.times.indexOf(time)]);
        if (there.some((part) => part === undefined || part === null)) return;
        const total = there.reduce((a, b) => a + b, 0);
        assert.ok(Math.abs(total - value) <= 1e-9 * Math.max(1, Math.abs(total)),
          `${plot.id} ${line.label} at ${time}: drawn ${value}, the API says ${total}`);
        points += 1;
      });
      if (points > 0) compared.add(plot.id);
    }
    await legend(page, plot);
  }
  return compared;
}

/** The legend shows the last value with its unit, and the axis shows that unit. */
async function legend(page, plot) {
  const shown = await page.evaluate((id) => {
    const card = document.querySelector(`[data-plot="${id}"]`);
    const now = window.jobmeter.plots().find((one) => one.id === id);
    return {
      now,
      unit: card.querySelector('.plot-unit').textContent,
      entries: [...card.querySelectorAll('.legend li')].map((li) => ({
        label: li.querySelector('.legend-label').textContent,
        value: li.querySelector('.legend-value').textContent, help: li.title,
      })),
    };
  }, plot.id);
  assert.deepEqual(shown.entries.map(({ label }) => label), shown.now.lines.map(({ label }) => label), plot.id);
  shown.entries.forEach(({ value, help }, i) => {
    assert.equal(value, shown.now.lines[i].text, `${plot.id} ${shown.entries[i].label}`);
    assert.ok(help.length > 0, `${plot.id}: a meaning`);
  });
}

/** Every view opens and has its plots, and every control has an accessible name. */
export async function everyPage(page, where) {
  const nodes = await ask(where, 'api/v1/nodes');
  const node = nodes.find(({ alive }) => alive) ?? nodes[0];
  for (const hash of ['', '#/nodes', '#/devices', '#/jobs', `#/node/${encodeURIComponent(node.device)}`, hashOf(where.key), '#/nowhere']) {
    await open(page, where, hash);
    await page.waitFor(`${hash}: the footer`, () => document.querySelector('footer').innerText);
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('button, a[href], input, [role="img"], table')].filter((element) =>
        !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length))
        .map((element) => element.outerHTML));
    assert.deepEqual(nameless, [], hash);
    const twice = await page.evaluate(() => {
      const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
      return ids.filter((id, i) => ids.indexOf(id) !== i);
    });
    assert.deepEqual(twice, [], `${hash}: ids`);
  }
  await open(page, where, `#/node/${encodeURIComponent(node.device)}?range=5m`);
  await page.waitFor('plots of a node', () => window.jobmeter.plots().some((plot) =>
    plot.times.length > 6 && plot.lines.some((line) => line.values.some((value) => value !== null))));
  const compared = await samePlots(page, where);
  assert.ok(compared.size > 0, 'a node\'s plots have the values of the API');
}

const theme = (page) => page.evaluate(() => ({
  theme: document.documentElement.dataset.theme,
  background: getComputedStyle(document.body).backgroundColor,
}));

/** The page follows the system's theme until the user chooses one. The choice survives a reload. */
export async function themes(page, where) {
  await page.prefers('dark');
  await open(page, where, '');
  const dark = await theme(page);
  assert.equal(dark.theme, 'dark');
  await page.prefers('light');
  await page.waitFor('the light theme', () => document.documentElement.dataset.theme === 'light');
  const light = await theme(page);
  assert.notEqual(light.background, dark.background);
  await page.key('t');
  assert.equal((await theme(page)).theme, 'dark');
  await open(page, where, '#/nodes');
  await page.send('Page.reload');
  await page.waitFor('the page again', () => document.querySelector('#theme')?.textContent === 'Dark');
  assert.equal((await theme(page)).theme, 'dark');
  await page.key('t');
  await page.key('t');
  assert.equal((await theme(page)).theme, 'light', 'back to the system');
}

/** Waits until a view is on the screen; the URL changes before that. */
const shown = (page, hash) => page.waitFor(`the view ${hash}`, (wanted) =>
  document.querySelector('main').dataset.hash === wanted && document.activeElement?.tagName === 'H1', hash);

/** The keyboard alone reaches everything. */
export async function keyboard(page, where) {
  const { job } = await ask(where, `api/v1/jobs/${where.key}`);
  await open(page, where, '#/jobs');
  await page.waitFor('the list', () => document.querySelector('tbody tr a'));
  await page.key('j');
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('href'));
  const rows = await page.evaluate(() => [...document.querySelectorAll('tbody tr a')].map((a) => a.getAttribute('href')));
  assert.equal(await focused(), rows[0]);
  if (rows.length > 1) {
    await page.key('ArrowDown');
    assert.equal(await focused(), rows[1]);
    await page.key('ArrowUp');
    assert.equal(await focused(), rows[0]);
  }
  await page.key('Enter');
  await shown(page, rows[0]);
  await page.key('n');
  await shown(page, '#/nodes');
  await page.key('?');
  assert.ok(await page.evaluate(() => document.querySelector('dialog[open]')?.innerText.includes('Keys')));
  await page.key('Escape');
  assert.ok(await page.evaluate(() => document.querySelector('dialog[open]') === null));
  await page.key('/');
  await page.type(`${job.cluster}:${job.display_id}`);
  await page.waitFor('the job among the found', (text) =>
    document.querySelector('[role="option"][aria-selected="true"]')?.innerText.includes(text), `${job.cluster}:${job.display_id}`);
  await page.key('Enter');
  await shown(page, hashOf(where.key));
  await page.waitFor('the ranges', () => document.querySelector('[data-range="5m"]'));
  await page.key('1');
  assert.equal(await page.evaluate(() => document.querySelector('[data-range="5m"]').getAttribute('aria-pressed')), 'true');
  assert.ok((await page.evaluate(() => location.hash)).includes('range=5m'));
  await page.waitFor('a plot', () => window.jobmeter.plots()[0]?.times.length > 0);
  await page.evaluate(() => document.querySelector('.plot-canvas').focus());
  await page.key('ArrowLeft');
  assert.ok(await page.waitFor('the time under the cursor', () => document.querySelector('.plot-time').textContent));
  await page.key('o');
  await shown(page, '#/');
}

/** No page needs horizontal scrolling on a phone. */
export async function narrow(page, where) {
  await page.size(360, 740, true);
  const [node] = await ask(where, 'api/v1/nodes');
  for (const hash of ['', '#/nodes', '#/jobs', `#/node/${encodeURIComponent(node.device)}`, hashOf(where.key)]) {
    await open(page, where, hash);
    await page.waitFor(`${hash}: its content`, () => document.querySelector('tbody tr, .plot canvas'));
    await pause(300);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${hash || '#/'} is ${wide} pixels too wide`);
  }
}
