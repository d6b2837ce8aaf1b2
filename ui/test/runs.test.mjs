import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jobHash, otherRuns, parse } from '../server/route.js';

const job = { cluster: 'oar', id: 7, start: 200, submit: 190 };

test('the other runs of a number are linked by their start, the newest without', () => {
  const runs = [
    { start: null, submit: 300, stop: null, state: 'waiting' },
    { start: 200, submit: 190, stop: 210, state: 'ended' },
    { start: 100.5, submit: null, stop: 110, state: 'ended' },
  ];
  assert.deepEqual(otherRuns(job, runs), [
    { at: 300, hash: '#/job/oar:7' }, { at: 100.5, hash: '#/job/oar:7?start=100.5' },
  ]);
  assert.deepEqual(otherRuns(job, [runs[1]]), []);
  const many = Array.from({ length: 50 }, (_, i) => ({ start: 1000 - i, submit: null, stop: null, state: 'ended' }));
  assert.equal(otherRuns(job, many).length, 10);
});

test('the address of a run is read again', () => {
  const { view, name, query } = parse(jobHash('oar:7', 100.5));
  assert.deepEqual([view, name, query.get('start')], ['job', 'oar:7', '100.5']);
});
