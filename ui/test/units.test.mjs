import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axisSteps, bytes, bytesOf, count, digits, meaningOf, quantity, scaleFor, show } from '../values/units.js';

/** Replaces no-break spaces with plain spaces. */
const plain = (text) => text.replaceAll('\u00a0', ' ');
const shown = (value, ...of) => plain(show(value, quantity(...of)));

test('every unit word of the catalogue has its symbol', () => {
  for (const [word, value, text] of [
    ['', 7, '7'], ['', 12345, '12.3 k'], ['ratio', 0.256, '25.6 %'], ['seconds', 0.0421, '42.1 ms'],
    ['bytes', 3.5 * 1024 ** 3, '3.50 GiB'], ['byte_seconds', 2 ** 20, '1.00 MiB·s'], ['joules', 4200, '4.20 kJ'],
    ['watts', 0.35, '350 mW'], ['celsius', 61, '61.0 °C'], ['hertz', 2.4e9, '2.40 GHz'], ['volts', 12.1, '12.1 V'],
    ['amperes', 1.5, '1.50 A'],
  ]) assert.equal(shown(value, word), text, word);
});

test('rates', () => {
  assert.equal(shown(3.25, 'seconds/s', 'cores'), '3.25 cores');
  assert.equal(shown(0.5, 'seconds/s', 'share'), '50.0 %');
  assert.equal(shown(2.5, 'seconds/s', 'tasks'), '2.50 tasks');
  assert.equal(shown(2.5, 'seconds/s'), '2.50 s/s');
  assert.equal(shown(1536, 'bytes/s'), '1.50 KiB/s');
  assert.equal(shown(2048, 'byte_seconds/s'), '2.00 KiB');
  assert.equal(shown(300, 'joules/s'), '300 W');
  assert.equal(shown(0.25, '/s'), '0.25/s');
  assert.equal(shown(42000, '/s', undefined, 'faults'), '42.0 k faults/s');
  assert.equal(shown(12, '/s', undefined, 'faults'), '12 faults/s');
});

test('what is unknown is no zero', () => {
  for (const value of [null, undefined, NaN, Infinity]) assert.equal(show(value, quantity('bytes')), '–');
  assert.equal(shown(0, 'bytes'), '0 B');
  assert.equal(shown(0, ''), '0');
  assert.equal(shown(0, 'seconds'), '0 s');
});

test('a unit that this page does not know is shown as it is', () => {
  assert.equal(shown(1.5, 'furlongs'), '1.50 furlongs');
});

test('three digits, and never an exponent', () => {
  for (const [value, text] of [
    [0, '0'], [1023.4, '1023'], [99.96, '100'], [99.94, '99.9'], [9.996, '10.0'], [0.0996, '0.10'],
    [0.0123, '0.012'], [0.00005, '0.00005'], [1e-7, '< 0.0001'], [-1e-7, '> -0.0001'], [-2.5, '-2.50'],
  ]) assert.equal(digits(value), text, String(value));
  for (let power = -12; power < 15; power += 1) assert.doesNotMatch(digits(1.2345 * 10 ** power), /e/);
});

test('prefixes begin and end where they should', () => {
  assert.equal(plain(bytes(1023)), '1023 B');
  assert.equal(plain(bytes(1024)), '1.00 KiB');
  assert.equal(plain(bytes(1024 ** 6)), '1.00 EiB');
  assert.equal(plain(bytes(1024 ** 7)), '1024 EiB');
  assert.equal(count(9999), '9999');
  assert.equal(plain(count(10000)), '10.0 k');
  assert.equal(plain(bytesOf(5 * 2 ** 30, 64 * 2 ** 30)), '5.00 / 64.0 GiB');
  assert.equal(bytesOf(null, null), '–');
});

test('a scale never changes the value', () => {
  const words = ['', 'bytes', 'seconds', 'ratio', 'watts', 'celsius', '/s', 'bytes/s', 'seconds/s'];
  for (const word of words) {
    for (let power = -9; power < 18; power += 1) {
      const value = 2.5 * 10 ** power;
      const { divide } = scaleFor(quantity(word), value);
      const shown = value / divide;
      assert.ok(Number.isFinite(shown) && Math.abs(shown * divide - value) <= value * 1e-12, `${word} ${value}`);
    }
  }
});

test('axes of bytes step by powers of two, all others by 1, 2, 5', () => {
  assert.ok(axisSteps(quantity('bytes/s')).every((step) => Number.isInteger(Math.log2(step))));
  assert.ok(axisSteps(quantity('')).includes(0.5));
  for (const word of ['bytes', '', 'seconds', 'ratio']) {
    const steps = axisSteps(quantity(word));
    assert.deepEqual(steps, [...steps].sort((a, b) => a - b));
  }
  assert.ok(axisSteps(quantity('seconds')).includes(3600));
});

test('seconds per second are cores only for processor time', () => {
  assert.equal(meaningOf('cgroup_cpu_user_seconds_total'), 'cores');
  assert.equal(meaningOf('cgroup_pressure_cpu_some_seconds_total'), 'share');
  assert.equal(meaningOf('cgroup_cpu_throttled_seconds_total'), 'cores');
  assert.equal(meaningOf('disk_busy_seconds_total'), 'share');
  assert.equal(meaningOf('taskstats_cpu_delay_seconds_total'), 'tasks');
  assert.equal(meaningOf('disk_read_seconds_total'), undefined);
});
