import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  gapsOf, grid, isValue, labelText, largest, lastValue, place, stack, stepFor, sum, sumDevices,
} from '../series.js';

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

test('a device that should tell and does not makes the sum unknown', () => {
  const parts = [{ device: 'a', row: [1, 1, 1] }, { device: 'b', row: [2, null, null] }];
  assert.deepEqual(sumDevices(parts, [0, 1, 2], () => true), [3, null, null]);
  assert.deepEqual(sumDevices(parts, [0, 1, 2], (device, time) => device === 'a' || time < 2), [3, null, 1]);
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
