import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compose } from '../plots/picture.js';
import { windowOf } from '../values/range.js';
import { jobHash, nodeHash, parse } from '../server/route.js';

const TIMES = [0, 10, 20, 30];
const series = (metric, values, more = {}) => ({
  device: 'n1', metric, cluster: null, job: null, labels: {}, unit: 'bytes', kind: 'gauge',
  value_unit: 'bytes', help: `help of ${metric}`, times: TIMES, values, ...more,
});
const answer = (...all) => ({ start: 0, end: 30, step_seconds: 10, rollup_seconds: 0, series: all, gaps: [], truncated: false });
const about = () => {
  const colors = [];
  return {
    expected: () => true, jobName: ({ cluster, job }) => `${cluster}:${job}`,
    colorOf: (label) => (colors.includes(label) ? colors.indexOf(label) : colors.push(label) - 1),
  };
};
const draw = (spec, one) => compose(spec, spec.lines, one, about());

test('series of a metric are added up, over labels and devices', () => {
  const spec = { id: 'x', title: 'X', lines: [{ metric: 'm', label: 'all' }] };
  const { lines, times } = draw(spec, answer(
    series('m', [1, 2, 3, 4], { labels: { disk: 'a' } }), series('m', [10, 20, 30, 40], { labels: { disk: 'b' } }),
    series('m', [100, 200, 300, null], { device: 'n2' })));
  assert.deepEqual(times, TIMES);
  assert.equal(lines.length, 1);
  assert.equal(lines[0].label, 'all');
  assert.equal(lines[0].help, 'help of m');
  assert.deepEqual(lines[0].values, [111, 222, 333, null], 'n2 is missing at the end: no smaller sum');
});

test('shares of 34 nodes are no more than the largest of them', () => {
  const spec = { id: 'x', title: 'X', meaning: 'share', lines: [{ metric: 'm', label: 'waits' }] };
  const nodes = Array.from({ length: 34 }, (_, n) => series('m', [0.019, 0.01, 0, 0.019], { device: `n${n}` }));
  const { lines } = draw(spec, answer(...nodes));
  assert.deepEqual(lines[0].values.map((value) => value.toFixed(3)), ['0.019', '0.010', '0.000', '0.019']);
});

test('one silent node leaves the total of the others, with what it covers', () => {
  const spec = { id: 'x', title: 'X', lines: [{ metric: 'm' }] };
  const late = { times: [0, 100, 200, 300] };
  const one = { ...about(), devices: ['n1', 'n2', 'n3'] };
  const composed = compose(spec, spec.lines, answer(
    series('m', [1, 1, 1, 1], late), series('m', [2, 2, null, null], { device: 'n2', ...late })), one);
  assert.deepEqual(composed.lines[0].values, [3, 3, 1, 1]);
  assert.deepEqual(composed.coverage, { nodes: 1, of: 3, silent: [{ device: 'n2', since: 100 }, { device: 'n3', since: null }] });
  assert.deepEqual(composed.covers[3], [1, 2]);
});

test('by a label: one line each, those of zeros left out and counted', () => {
  const spec = { id: 'x', title: 'X', by: 'disk', lines: [{ metric: 'r', label: 'read' }, { metric: 'w', label: 'written' }] };
  const { lines, left } = draw(spec,
    answer(series('r', [1, 1, 1, 1], { labels: { disk: 'sda' } }), series('r', [0, 0, 0, 0], { labels: { disk: 'sdb' } }),
      series('w', [2, 2, 2, 2], { labels: { disk: 'sda' } })));
  assert.deepEqual(lines.map(({ label }) => label), ['sda read', 'sda written']);
  assert.equal(left, 1);
});

test('of too many, the strongest are drawn; the others of a stack are added up', () => {
  const many = Array.from({ length: 12 }, (_, i) =>
    series('m', [i + 1, i + 1, i + 1, i + 1], { cluster: 'c', job: i + 1 }));
  const spec = { id: 'x', title: 'X', by: 'job', lines: [{ metric: 'm' }] };
  const plain = draw(spec, answer(...many));
  assert.equal(plain.lines.length, 8);
  assert.equal(plain.left, 4);
  assert.ok(plain.lines.some(({ label }) => label === 'c:12'));
  const stacked = draw({ ...spec, stacked: true }, answer(...many));
  assert.equal(stacked.lines.length, 8);
  const total = stacked.lines.reduce((sum, { values }) => sum + values[0], 0);
  assert.equal(total, 78, 'nothing is lost');
  assert.equal(stacked.lines.at(-1).label, 'others (5)');
});

test('each series of its own: named by what differs', () => {
  const spec = { id: 'x', title: 'X', by: 'series', lines: [{ metric: 'm' }] };
  const labels = (...all) => draw(spec, answer(...all)).lines.map(({ label }) => label);
  assert.deepEqual(labels(series('m', [1, 1, 1, 1])), ['m']);
  assert.deepEqual(labels(series('m', [1, 1, 1, 1]), series('m', [2, 2, 2, 2], { device: 'n2' })), ['n1', 'n2']);
  assert.deepEqual(labels(
    series('m', [1, 1, 1, 1], { labels: { disk: 'sda' } }), series('m', [2, 2, 2, 2], { labels: { disk: 'sdb' } })), ['sda', 'sdb']);
  assert.deepEqual(labels(
    series('m', [1, 1, 1, 1], { cluster: 'c', job: 1 }), series('m', [2, 2, 2, 2], { cluster: 'c', job: 2 })), ['c:1', 'c:2']);
});

test('a range without samples has no line and still a unit', () => {
  const spec = { id: 'x', title: 'X', lines: [{ metric: 'm' }] };
  const { lines, times } = draw(spec, answer());
  assert.deepEqual([lines, times], [[], []]);
});

test('a limit is a line of its own that no label splits', () => {
  const spec = { id: 'x', title: 'X', by: 'device', lines: [{ metric: 'm' }, { metric: 'l', label: 'limit', ceiling: true }] };
  const { lines } = draw(spec, answer(series('m', [1, 1, 1, 1]), series('l', [5, 5, 5, 5])));
  assert.deepEqual(lines.map(({ label, ceiling }) => [label, ceiling ?? false]), [['n1', false], ['limit', true]]);
});

test('the window of a job that ended lies at its end', () => {
  const job = { start: 1000, stop: 2000 };
  assert.deepEqual(windowOf('5m', null, job, 9000), { start: 1700, end: 2000, live: false });
  assert.deepEqual(windowOf('whole', null, job, 9000), { start: 990, end: 2010, live: false });
  assert.deepEqual(windowOf('whole', null, { start: 1000, stop: null }, 3000), { start: 980, end: 3000, live: true });
  assert.deepEqual(windowOf('1h', null, null, 9000), { start: 5400, end: 9000, live: true });
  assert.deepEqual(windowOf('1h', [10, 20], null, 9000), { start: 10, end: 20, live: false });
  const short = windowOf('whole', null, { start: 1000, stop: 1001 }, 9000);
  assert.ok(short.end - short.start >= 20, 'a job of a second has an axis');
});

test('addresses', () => {
  assert.equal(parse('').view, 'overview');
  assert.equal(parse('#/').view, 'overview');
  assert.equal(parse('#/nodes').view, 'nodes');
  const job = parse('#/job/slurm:12?range=1h');
  assert.deepEqual([job.view, job.name, job.query.get('range')], ['job', 'slurm:12', '1h']);
  for (const name of ['node-1', 'a/b', 'ü & ?#', '100%']) {
    assert.deepEqual([parse(nodeHash(name)).view, parse(nodeHash(name)).name], ['node', name]);
  }
  assert.equal(jobHash('slurm:12'), '#/job/slurm:12');
  assert.equal(parse('#/node/%zz').name, '%zz', 'a broken escape is taken as it is');
  for (const hash of ['#/node/', '#/nodes/x', '#/what', '#main']) assert.equal(parse(hash).view, 'unknown', hash);
});
