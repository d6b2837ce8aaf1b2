import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { CATALOGUE } from '../../tests/browser/mock-data.mjs';
import { JOB_PLOTS, NODE_PLOTS } from '../plots/plot_definitions.js';

const at = (path) => new URL(`../../${path}`, import.meta.url);

/** Returns the text of every Rust file below a folder. */
function rust(folder) {
  return readdirSync(at(folder), { withFileTypes: true }).map((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return rust(path);
    return entry.name.endsWith('.rs') ? readFileSync(at(path), 'utf8') : '';
  }).join('\n');
}

const defined = rust('crates/sources/src') + rust('crates/jobmeter/src/measure/run')
  + readFileSync(at('crates/agent/src/reading/agent_metrics.rs'), 'utf8')
  + readFileSync(at('crates/pollers/src/running/poll_metrics.rs'), 'utf8');

test('every metric that the page requests is one of a source, of the agent or of `jobmeter run`', () => {
  const requested = [...JOB_PLOTS, ...NODE_PLOTS].flatMap(({ lines }) => lines.map(({ metric }) => metric));
  for (const file of ['values/usage', 'lists/systemd', 'lists/filesystems', 'lists/processes']) {
    const text = readFileSync(at(`ui/${file}.js`), 'utf8');
    requested.push(...[...text.matchAll(/'([a-z0-9]+_[a-z0-9_]*[a-z0-9])'/g)].map(([, name]) => name));
  }
  assert.ok(requested.length > 60);
  const unknown = requested.filter((name) => !defined.includes(`"${name}"`));
  assert.deepEqual(unknown, []);
});

test('the mock invents values and no metrics', () => {
  const unknown = CATALOGUE.filter(({ name }) => !defined.includes(`"${name}"`)).map(({ name }) => name);
  assert.deepEqual(unknown, []);
});

test('plots have an id each', () => {
  for (const plots of [JOB_PLOTS, NODE_PLOTS]) {
    const ids = plots.map(({ id }) => id);
    assert.deepEqual(ids, [...new Set(ids)]);
  }
});
