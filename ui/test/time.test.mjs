import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, duration, instant } from '../values/time.js';

const plain = (text) => text.replaceAll('\u00a0', ' ');

test('durations have at most two parts and never 60 of the smaller', () => {
  for (const [seconds, text] of [
    [0, '0 s'], [0.0000421, '42 µs'], [0.0421, '42.1 ms'], [0.9996, '1.00 s'], [4.2, '4.20 s'], [9.996, '10.0 s'],
    [42.01, '42.0 s'], [59.96, '1 min'], [61, '1 min 1 s'], [3599.7, '1 h'], [3660, '1 h 1 min'],
    [86400, '1 d'], [90000, '1 d 1 h'], [-3, '0 s'], [null, '–'], [undefined, '–'], [NaN, '–'],
  ]) assert.equal(plain(duration(seconds)), text, String(seconds));
});

test('how long ago', () => {
  for (const [seconds, text] of [
    [1, 'now'], [40, '40 s ago'], [600, '10 min ago'], [7300, '2 h ago'], [3 * 86400, '3 d ago'], [-5, 'now'],
  ]) assert.equal(plain(ago(1e9 - seconds, 1e9)), text);
});

test('the day is shown when it is another one', () => {
  const now = Date.UTC(2026, 5, 15, 12) / 1000;
  assert.doesNotMatch(instant(now - 3600, now), /Jun|15/);
  assert.match(instant(now - 3 * 86400, now), /12|11|13/);
  assert.notEqual(instant(now - 3 * 86400, now), instant(now, now));
});
