/** Tests of requests while the user enters another token. */

import assert from 'node:assert/strict';
import test from 'node:test';
import { Api } from '../server/api.js';

test('a late rejection of a former token is not one of the present token', async () => {
  const sent = [];
  /** @type {(value: unknown) => void} */
  let reject = () => {};
  globalThis.fetch = async (_, { headers }) => {
    sent.push(headers.authorization);
    const isFormer = headers.authorization === 'Bearer wrong';
    if (isFormer) await new Promise((resolve) => { reject = resolve; });
    return new Response(isFormer ? '{"message":"no such token"}' : '[]', { status: isFormer ? 401 : 200 });
  };
  const api = new Api();
  api.setToken('wrong');
  const nodes = api.nodes();
  api.setToken('right');
  await Promise.resolve();
  reject(null);
  assert.deepEqual(await nodes, []);
  assert.deepEqual(sent, ['Bearer wrong', 'Bearer right']);
});

test('a rejection of the present token is an error', async () => {
  globalThis.fetch = async () => new Response('{"message":"no such token"}', { status: 401 });
  const api = new Api();
  api.setToken('wrong');
  await assert.rejects(api.nodes(), { status: 401 });
});
