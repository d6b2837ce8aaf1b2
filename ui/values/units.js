/**
 * Formats values with their units: prefixes, symbols, digits.
 *
 * The server returns base units with the catalogue's words (`bytes`, `seconds/s`, …). Only this file turns
 * them into text for users.
 */

/**
 * Unit of a plot or cell: a family of units, and the symbol after the prefix.
 * @typedef {object} Quantity
 * @property {'binary'|'si'|'count'|'time'|'percent'|'plain'} family
 * @property {string} symbol
 */

/**
 * A unit with its prefix: `value / divide` is followed by `symbol`.
 * @typedef {object} Scale
 * @property {number} divide
 * @property {string} symbol
 */

/** @typedef {'cores'|'share'|'tasks'|undefined} Meaning what seconds per second are */

const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const SI = ['n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
const SI_BASE = 3;

/** @type {Array<[number, string]>} */
const TIMES = [
  [86400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];

/** @type {Record<string, Quantity>} */
const WORDS = {
  bytes: { family: 'binary', symbol: 'B' },
  'bytes/s': { family: 'binary', symbol: 'B/s' },
  byte_seconds: { family: 'binary', symbol: 'B·s' },
  'byte_seconds/s': { family: 'binary', symbol: 'B' },
  seconds: { family: 'time', symbol: 's' },
  ratio: { family: 'percent', symbol: '%' },
  joules: { family: 'si', symbol: 'J' },
  'joules/s': { family: 'si', symbol: 'W' },
  watts: { family: 'si', symbol: 'W' },
  hertz: { family: 'si', symbol: 'Hz' },
  volts: { family: 'si', symbol: 'V' },
  amperes: { family: 'si', symbol: 'A' },
  celsius: { family: 'plain', symbol: '°C' },
};

/**
 * Returns the quantity of the API's unit word.
 * @param {string} word the API's `value_unit`, such as `bytes/s`; empty for a plain count
 * @param {Meaning} [meaning] of seconds per second: busy cores, a share of time, tasks on average
 * @param {string} [things] what a plain count counts, such as `faults`
 * @returns {Quantity}
 */
export function quantity(word, meaning, things = '') {
  if (word === 'seconds/s') {
    if (meaning === 'cores' || meaning === 'tasks') return { family: 'plain', symbol: meaning };
    if (meaning === 'share') return { family: 'percent', symbol: '%' };
    return { family: 'plain', symbol: 's/s' };
  }
  if (word === '') return { family: 'count', symbol: things };
  if (word === '/s' || word === 'count/s') return { family: 'count', symbol: `${things}/s` };
  return WORDS[word] ?? { family: 'plain', symbol: word };
}

/**
 * Returns the meaning of a metric's seconds per second: busy cores for processor time, tasks for delays, a
 * share for pressure.
 * @param {string} metric
 * @returns {Meaning}
 */
export function meaningOf(metric) {
  if (/pressure|busy/.test(metric)) return 'share';
  if (/delay/.test(metric)) return 'tasks';
  return /cpu/.test(metric) && !/wait/.test(metric) ? 'cores' : undefined;
}

/**
 * Returns the scale that suits a value of this size.
 * @param {Quantity} of
 * @param {number} size the largest value that the scale is for
 * @returns {Scale}
 */
export function scaleFor(of, size) {
  const abs = Number.isFinite(size) ? Math.abs(size) : 0;
  switch (of.family) {
    case 'binary': {
      const step = abs < 1024 ? 0 : Math.min(Math.floor(Math.log2(abs) / 10), BINARY.length - 1);
      return { divide: 1024 ** step, symbol: `${BINARY[step]}${of.symbol}` };
    }
    case 'si':
      return si(of.symbol, abs, 0);
    case 'count':
      return si(of.symbol, abs, SI_BASE, 1e4);
    case 'plain':
      return { divide: 1, symbol: of.symbol };
    case 'percent':
      return { divide: 0.01, symbol: '%' };
    case 'time': {
      const [divide, symbol] = TIMES.find(([one]) => abs >= (one > 1 ? 2 * one : one)) ??
        (abs === 0 ? [1, 's'] : [1e-9, 'ns']);
      return { divide, symbol };
    }
  }
}

/**
 * @param {string} symbol
 * @param {number} abs
 * @param {number} least index of the smallest prefix allowed
 * @param {number} [from] the first value that gets a prefix above 1
 * @returns {Scale}
 */
function si(symbol, abs, least, from = 1000) {
  if (abs === 0 || (abs >= 1 && abs < from)) return { divide: 1, symbol };
  const exact = Math.floor(Math.log10(abs) / 3 + 1e-9) + SI_BASE;
  const index = Math.min(Math.max(exact, least), SI.length - 1);
  const glue = symbol !== '' && least === SI_BASE && SI[index] !== '' && !symbol.startsWith('/');
  return { divide: 1000 ** (index - SI_BASE), symbol: `${SI[index]}${glue ? ' ' : ''}${symbol}` };
}

/**
 * Formats a number with about three digits and without an exponent.
 * @param {number} value
 * @returns {string}
 */
export function digits(value) {
  const abs = Math.abs(value);
  if (abs === 0) return '0';
  if (abs >= 99.95) return String(Math.round(value));
  if (abs >= 9.995) return value.toFixed(1);
  if (abs >= 0.0995) return value.toFixed(2);
  if (abs < 0.00005) return value < 0 ? '> -0.0001' : '< 0.0001';
  return String(Number(value.toPrecision(2)));
}

/**
 * Formats a value with its unit, such as `3.42 GiB/s`, or `–` without a value.
 * @param {number|null|undefined} value
 * @param {Quantity} of
 * @param {Scale} [scale] when several values share one
 * @returns {string}
 */
export function show(value, of, scale) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const { divide, symbol } = scale ?? scaleFor(of, value);
  const whole = of.family === 'count' && divide === 1 && Number.isInteger(value);
  const bytes = of.family === 'binary' && divide === 1 && Number.isInteger(value);
  const text = whole || bytes ? String(value) : digits(value / divide);
  return join(text, symbol);
}

/**
 * @param {string} text
 * @param {string} symbol
 */
function join(text, symbol) {
  if (symbol === '') return text;
  return symbol.startsWith('/') ? `${text}${symbol}` : `${text}\u00a0${symbol}`;
}

/**
 * Returns the possible steps of an axis in base units, ascending. Bytes have powers of two, so that ticks are
 * whole KiB, MiB and so on. Times have minutes and hours.
 * @param {Quantity} of
 * @returns {number[]}
 */
export function axisSteps(of) {
  if (of.family === 'binary') return Array.from({ length: 63 }, (_, n) => 2 ** n);
  const decimal = [];
  for (let power = -9; power <= 15; power += 1) {
    for (const digit of [1, 2, 5]) decimal.push(Number(`${digit}e${power}`));
  }
  if (of.family !== 'time') return decimal;
  const long = [1, 2, 5, 10, 15, 30].flatMap((n) => [n, n * 60]);
  long.push(...[1, 2, 3, 6, 12, 24, 48, 120, 240, 480, 960].map((n) => n * 3600));
  return [...decimal.filter((n) => n < 1), ...long].sort((a, b) => a - b);
}

/**
 * Formats bytes, such as `12.1 GiB`.
 * @param {number|null|undefined} value
 */
export const bytes = (value) => show(value, WORDS.bytes);

/**
 * Formats a part and its whole in one unit, such as `12.1 / 64.0 GiB`.
 * @param {number|null} part
 * @param {number|null} whole
 */
export function bytesOf(part, whole) {
  if (part === null || whole === null) return bytes(part ?? whole);
  const { divide, symbol } = scaleFor(WORDS.bytes, whole);
  return join(`${digits(part / divide)} / ${digits(whole / divide)}`, symbol);
}

/**
 * Formats a count, such as `12.3 k`.
 * @param {number|null|undefined} value
 * @param {string} [things]
 */
export const count = (value, things) => show(value, quantity('', undefined, things));

/**
 * Formats a number of used cores, such as `3.20`, without a unit.
 * @param {number|null|undefined} value
 */
export const cores = (value) =>
  value === null || value === undefined ? '–' : digits(value);
