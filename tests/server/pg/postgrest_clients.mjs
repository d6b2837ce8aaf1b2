// The client `@supabase/postgrest-js` of PostgREST against a running server: tables under /rest, functions under /rpc.
//
// Arguments: the folder of the packages, the server's URL, the token of a reader, and that of a program that inserts rows.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [packages, url, reader, pusher] = process.argv.slice(2);
const { PostgrestClient } = createRequire(`${packages}/`)('@supabase/postgrest-js');
const client = (path, token) => new PostgrestClient(url + path, { headers: { Authorization: `Bearer ${token}` } });
const at = Math.floor(Date.now() / 1000) * 1000;
const time = (number) => new Date(at - number * 1000).toISOString();

// The data of a result without an error.
const data = async (query) => {
  const { data, error } = await query;
  assert.equal(error, null);
  return data;
};
const code = async (query) => (await query).error?.code;

const functions = client('', pusher);
for (let number = 0; number < 20; number++) {
  const row = { timestamp: time(number), device_id: 'js', metric_id: 'watts', value: number, labels: { port: `${number % 2}` } };
  await data(functions.rpc('insert_metrics', row));
}
assert.notEqual((await client('/rest', pusher).from('metrics').select()).error, null, 'a push token reads');

const tables = client('/rest', reader);
const rows = (columns, options) => tables.from('metrics').select(columns, options).eq('device_id', 'js');
const newest = await data(rows('timestamp,value,labels,job_id').gte('value', 18).order('value', { ascending: false }));
assert.deepEqual(newest.map((row) => row.value), [19, 18]);
assert.deepEqual([newest[0].labels, newest[0].job_id], [{ port: '1' }, null]);
assert.equal(new Date(newest[1].timestamp).getTime(), at - 18000);
const counted = await rows('value', { count: 'exact' }).order('value').range(5, 9);
assert.deepEqual([counted.error, counted.count, counted.data.map((row) => row.value)], [null, 20, [5, 6, 7, 8, 9]]);
const head = await rows('value', { count: 'exact', head: true });
assert.deepEqual([head.error, head.count, head.data], [null, 20, null]);
assert.equal((await data(rows('value').eq('labels->>port', '0'))).length, 10);
assert.equal((await data(rows('value').or('value.eq.1,value.gt.17'))).length, 3);
assert.equal((await data(rows('value').in('value', [1, 2, 300]).neq('value', 2))).length, 1);
assert.equal((await data(rows('value').is('job_id', null).limit(7))).length, 7);
assert.equal((await data(rows('value').like('metric_id', 'wat*').not('value', 'gt', 3))).length, 4);
assert.deepEqual(await data(rows('watts:value,metric_id').eq('value', 5).single()), { watts: 5, metric_id: 'watts' });
assert.equal(await data(rows('value').eq('value', 500).maybeSingle()), null);
assert.deepEqual((await data(rows('value').lt('value', 2).order('value').csv())).split(/\s+/).filter(Boolean), ['value', '0', '1']);
assert.equal(await code(rows('nix')), '42703');
assert.equal(await code(tables.from('nix').select()), 'PGRST205');
assert.equal(await code(rows('value').eq('value', 'much')), '22P02');
assert.equal(await code(rows('value').single()), 'PGRST116');
assert.notEqual((await tables.from('metrics').insert({ device_id: 'd' })).error, null);

const calls = client('', reader);
const range = { devices: 'js', metrics: 'watts', start_time: time(19), end_time: time(0) };
assert.deepEqual((await data(calls.rpc('get_metrics', range))).map((row) => row.value), [...Array(20).keys()].reverse());
assert.equal((await data(calls.rpc('get_metrics', range, { get: true }).gt('value', 17))).length, 2);
const available = await data(calls.rpc('available_metrics', { params: { devices: ['js'] } }));
assert.deepEqual(available, [{ device_id: 'js', metric_id: 'watts' }]);
assert.equal(await code(calls.rpc('nix', {})), 'PGRST202');
console.log('the client of JavaScript read what it wrote');
