import assert from 'node:assert/strict';
import { test } from 'node:test';
import { needsAttention, orderDevices } from '../lists/device_table.js';
import { deviceHash, parse } from '../server/route.js';

test('failing devices come first, then by name and number', () => {
  const of = (device, state) => ({ device, state });
  const devices = [of('pdu-10', 'alive'), of('pdu-9', 'unpolled'), of('pdu-11', 'failing'), of('bmc', 'unknown')];
  assert.deepEqual(orderDevices(devices).map(({ device }) => device), ['bmc', 'pdu-11', 'pdu-9', 'pdu-10']);
  assert.deepEqual(devices.filter(needsAttention).length, 2);
});

test('a device has a page, and the devices have one', () => {
  const { view, name } = parse(deviceHash('a#b?c'));
  assert.deepEqual([view, name], ['device', 'a#b?c']);
  assert.equal(parse('#/devices?search=x').view, 'devices');
  assert.equal(parse('#/devices/x').view, 'unknown');
});
