import assert from 'node:assert/strict';
import { test } from 'node:test';
import { coverageOf, coverageText, joinNodes } from '../values/coverage.js';
import {
  average, gapsOf, grid, isValue, labelText, largest, lastValue, place, stack, stepFor, sum,
} from '../values/series.js';

const piece = (times, values) => ({ times, values });

test('one grid for all', () => {
  assert.deepEqual(grid([piece([0, 5], [1, 1]), piece([0, 2, 10], [1, 1, 1])]), [0, 2, 5, 10]);
  assert.deepEqual(grid([]), []);
});

test('on a grid: places between slow values are undefined, ends are null', () => {
  const slow = piece([0, 30, 60], [1, 2, 3]);
  assert.deepEqual(place(slow, [0, 15, 30, 45, 60, 75]), [1, undefined, 2, undefined, 3, null]);
  assert.deepEqual(place(slow, [-5, 0, 30, 60]), [null, 1, 2, 3]);
  assert.deepEqual(place(piece([5], [NaN]), [5]), [null]);
});

test('a hole of the server is a hole from value to value, however short it is', () => {
  assert.deepEqual(place(piece([0, 5, 10], [1, null, 1]), [0, 5, 10]), [1, null, 1]);
  const torn = piece([0, 5, 10, 20, 30, 35], [1, 1, 1, null, 1, 1]);
  assert.deepEqual(place(torn, [0, 5, 10, 15, 20, 25, 30, 33, 35]), [1, 1, 1, null, null, null, 1, undefined, 1]);
});

test('a sum holds slow values, and a hole makes it unknown', () => {
  assert.deepEqual(sum([[1, 2, 3], [10, 20, 30]]), [11, 22, 33]);
  assert.deepEqual(sum([[1, 2, 3], [10, undefined, 30]]), [11, 12, 33]);
  assert.deepEqual(sum([[1, null, 3], [10, 20, 30]]), [11, null, 33]);
  assert.deepEqual(sum([[null, 2, 3], [10, 20, null]]), [10, 22, 3], 'before its first and after its last it adds nothing');
  assert.deepEqual(sum([]), []);
});

test('a node whose value may still arrive makes the sum unknown', () => {
  const parts = [{ device: 'a', row: [1, 1, 1] }, { device: 'b', row: [2, null, null] }];
  const rows = (expected) => joinNodes(parts, [0, 1, 2], { expected }).row;
  assert.deepEqual(rows(() => true), [3, null, null]);
  assert.deepEqual(rows((device, time) => device === 'a' || time < 2), [3, null, 1]);
});

test('a silent node of 64 is left out of the sum, which states what it covers', () => {
  const times = [0, 100, 200, 300];
  const parts = Array.from({ length: 64 }, (_, n) => ({ device: `n${n}`, row: [1, 1, n === 17 ? null : 1, n === 17 ? null : 1] }));
  const joined = joinNodes(parts, times, { expected: () => true });
  assert.deepEqual(joined.row, [64, 64, 63, 63]);
  assert.deepEqual(joined.covers[3], [63, 64]);
  const coverage = coverageOf(parts, [], times, () => true);
  assert.equal(coverageText(coverage, (time) => `14:${time}`), '63 of 64 nodes; n17 silent since 14:100');
  const never = coverageOf(parts.slice(0, 2), ['n0', 'n1', 'x'], times, () => true);
  assert.equal(coverageText(never, String), '2 of 3 nodes; x without samples');
  assert.equal(coverageText(coverageOf(parts.slice(0, 2), [], times, () => true), String), '', 'all are there');
  const ended = coverageOf(parts, [], times, (_, time) => time < 150);
  assert.equal(ended.nodes, 64, 'the job was over before');
});

test('shares of nodes are averaged, weighted by the time that they are shares of', () => {
  const parts = [{ device: 'a', row: [0.01, 0.02], weights: [1, 1] }, { device: 'b', row: [0.03, 0.08], weights: [1, 0.5] }];
  const { row } = joinNodes(parts, [0, 10], { expected: () => true, share: true });
  assert.deepEqual(row.map((value) => value.toFixed(3)), ['0.020', '0.040']);
  assert.deepEqual(average([[1, 2, null], [3, 4, 8]]), [2, 3, 8]);
});

test('layers of a stack add up to the sum of what is there', () => {
  let seed = 42;
  const random = (below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  for (let round = 0; round < 200; round += 1) {
    const rows = Array.from({ length: 4 }, () => Array.from({ length: 9 }, () => (random(5) === 0 ? null : random(100))));
    const layers = stack(rows);
    for (let i = 0; i < 9; i += 1) {
      const there = rows.map((row) => row[i]).filter(isValue);
      const tops = layers.map((layer) => layer[i]).filter(isValue);
      assert.equal(tops.length, there.length);
      if (there.length > 0) assert.equal(Math.max(...tops), there.reduce((a, b) => a + b, 0));
    }
  }
  assert.deepEqual(stack([[1, undefined, 3], [1, 1, 1]]), [[1, undefined, 3], [2, 2, 4]]);
});

test('gaps: those of the source or of all, once, within the range', () => {
  const gap = (source, from, to) => ({ origin: 'n', device: 'n', source, from, to, cause: 'c', detail: '' });
  const gaps = [gap('', 10, 20), gap('', 10, 20), gap('task', 12, 14), gap('taskstats', 12, 14), gap('disk', 12, 14), gap('', 90, 95)];
  assert.deepEqual(gapsOf(gaps, ['taskstats_tasks'], 0, 50), [gaps[0], gaps[3]]);
});

test('the step is round', () => {
  assert.equal(stepFor(300, 150), 2);
  assert.equal(stepFor(3600, 150), 30);
  assert.equal(stepFor(10, 500), 0.02);
  assert.equal(stepFor(7 * 86400, 150), 7200);
  assert.equal(stepFor(400 * 86400, 150), 3 * 86400);
});

test('labels and last values', () => {
  assert.equal(labelText({ disk: 'sda' }), 'sda');
  assert.equal(labelText({ b: '2', a: '1', _job_id: '7' }), 'a=1 b=2');
  assert.equal(lastValue([1, 2, null, undefined]), 2);
  assert.equal(lastValue([null]), null);
  assert.equal(largest([[1, null], [7, undefined]]), 7);
});
