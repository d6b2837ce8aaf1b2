import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Refused } from '../server/api.js';
import { Marks, markText, nearMarks } from '../plots/marks.js';

const mark = (at, more = {}) =>
  ({ at, kind: 'set', id: 3, nodes: 'n1', text: 'sources.load.period = "1s"', actor: 'root', job: null, ...more });

function api(answer) {
  const requested = [];
  return { requested, time: 1000, now() { return this.time; }, marks(query) { requested.push(query); return answer(query); } };
}

test('all plots of a page share one question', async () => {
  const server = api(() => Promise.resolve([mark(10), mark(500), mark(999)]));
  const marks = new Marks(server, () => ['n1', 'n2']);
  assert.equal((await marks.within(0, 1000)).length, 3);
  assert.deepEqual((await marks.within(400, 1000)).map(({ at }) => at), [500, 999]);
  assert.deepEqual(server.requested, [{ device: 'n1,n2', start: -50, end: 1000 }]);
  server.time += 6;
  await marks.within(0, 1006);
  assert.equal(server.requested.length, 2);
  await marks.within(-60, 1006);
  assert.equal(server.requested.length, 3, 'an earlier time was not requested');
});

test('plots go on where there are no marks to be had', async () => {
  const old = new Marks(api(() => Promise.reject(new Refused(404, 'nothing at'))), () => ['n1']);
  assert.deepEqual(await old.within(0, 1), []);
  const unknown = new Marks(api(() => Promise.reject(new Refused(401, 'who'))), () => ['n1']);
  await assert.rejects(unknown.within(0, 1), /who/);
  const nobody = api(() => assert.fail('nothing to ask'));
  assert.deepEqual(await new Marks(nobody, () => []).within(0, 1), []);
});

test('marks in words, and those that are near', () => {
  assert.equal(markText(mark(1)), 'changed by root: sources.load.period = "1s" (3)');
  const ended = mark(1, { kind: 'demoted', actor: null, job: 'oar:7', text: 'perf_.*' });
  assert.equal(markText(ended), 'no longer promoted for oar:7: perf_.* (3)');
  assert.deepEqual(nearMarks([mark(1), mark(5)], 4, 2).map(({ at }) => at), [5]);
});
