/** Entry point of the page: frame, routing, keyboard shortcuts and state that all views share. */

import { Api } from '../server/api.js';
import { fill, h, setText } from '../elements/dom.js';
import { DevicePage } from '../pages/device.js';
import { Help } from './help.js';
import { JobPage } from '../pages/job.js';
import { DevicesPage, JobsPage, NodesPage } from '../pages/list_pages.js';
import { Live } from '../server/live.js';
import { NodePage } from '../pages/node.js';
import { Overview } from '../pages/overview.js';
import { parse } from '../server/route.js';
import { Search } from './search.js';
import { choice, onTheme, toggle } from './theme.js';
import { clock, duration } from '../values/time.js';
import { TokenBox } from './token.js';

/** @typedef {import('../server/api.js').Health} Health */

/**
 * What a view receives from the frame.
 * @typedef {object} Page
 * @property {Api} api
 * @property {Live} live
 * @property {Map<string, import('../server/api.js').MetricInfo>} catalogue metrics by name; it fills up as they come
 * @property {number} uptime seconds since the server's start, at the last request
 * @property {import('../server/route.js').Route} route
 * @property {(error: Error) => void} say shows an answer that is an error
 * @property {(health: Health) => void} healthSeen
 * @property {(title: string) => void} retitle
 */

/**
 * A view that is on the screen.
 * @typedef {object} View
 * @property {string} title
 * @property {HTMLElement} element
 * @property {() => void} close
 * @property {import('../values/range.js').RangeControl} [range]
 * @property {(list: 'nodes'|'devices'|'jobs') => void} [focusList]
 * @property {() => unknown[]} [data] what its plots show
 */

const HEALTH_MS = 15000;
const CATALOGUE_MS = 60000;

const api = new Api();
const live = new Live(api);
/** @type {Map<string, import('../server/api.js').MetricInfo>} */
const catalogue = new Map();
const find = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = find('main');
const search = new Search(find('search'), api, () => live.open);
const help = new Help();
const token = new TokenBox(api, () => live.resume());
/** @type {View|null} */
let view = null;
let uptime = 0;

/** @param {Error} error */
function say(error) {
  setText(find('error'), error.message);
  find('error').hidden = false;
}

/** @param {Health} health */
function healthSeen(health) {
  find('error').hidden = true;
  if (health.writing_fails) say(new Error('The server cannot write samples to its disk. Its log states the reason.'));
  uptime = health.uptime_seconds;
  fill(find('footer'),
    h('span', {}, `jobmeter ${health.version}`),
    health.build === 'release' ? null : h('span', { class: 'build' }, `${health.build} build`),
    h('span', {}, `server up ${duration(health.uptime_seconds)}`),
    api.me === null ? null : h('span', {}, accessText(api.me)),
    api.me?.role !== 'nobody' ? null
      : h('button', { type: 'button', class: 'link', onclick: () => token.open() }, 'Use a token'),
    h('button', { type: 'button', class: 'link', onclick: () => help.open() }, 'Keys: ?'));
}

/**
 * Returns a text with the user's name and with the jobs and nodes that access control shows them.
 * @param {import('../server/api.js').Me} me
 */
function accessText(me) {
  const who = me.role === 'nobody' ? 'you are not authenticated' : `you are ${me.user ?? me.caller}`;
  const jobs = { all: 'all jobs', own: 'your jobs' }[me.sees_jobs] ?? 'no jobs';
  return `${who}; you see ${jobs} and ${me.sees_nodes === 'own' ? 'their nodes while they run' : 'all nodes'}`;
}

/** @param {string} title */
function retitle(title) {
  document.title = `${title} · jobmeter`;
}

/** @param {Page} page @returns {View} */
function open(page) {
  switch (page.route.view) {
    case 'overview': return new Overview(page);
    case 'nodes': return new NodesPage(page);
    case 'devices': return new DevicesPage(page);
    case 'jobs': return new JobsPage(page);
    case 'node': return new NodePage(page);
    case 'device': return new DevicePage(page);
    case 'job': return new JobPage(page);
    case 'unknown': return nowhere(page.route.name);
  }
}

/** @param {string} name @returns {View} */
function nowhere(name) {
  const element = h('div', { class: 'stack' }, h('h1', { tabindex: '-1' }, 'No such page'),
    h('p', {}, `There is no page at ${name}. `, h('a', { href: '#/' }, 'To the overview')));
  return { title: 'No such page', element, close: () => {} };
}

/** @param {boolean} [first] */
function show(first = false) {
  const route = parse(location.hash);
  view?.close();
  view = open({ api, live, catalogue, uptime, route, say, healthSeen, retitle });
  fill(main, view.element);
  main.dataset.hash = location.hash;
  retitle(view.title);
  for (const link of document.querySelectorAll('nav a')) {
    const mine = link.getAttribute('data-views')?.split(' ').includes(route.view);
    if (mine) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (!first) main.querySelector('h1')?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** @param {'nodes'|'devices'|'jobs'} list */
function toList(list) {
  const here = parse(location.hash).view;
  if (here === list || (here === 'overview' && list !== 'devices')) view?.focusList?.(list);
  else location.hash = `#/${list}`;
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = /** @type {Element} */ (event.target);
  if (target.closest('input, textarea, select, dialog')) return;
  /** @type {Record<string, () => void>} */
  const keys = {
    '/': () => search.focus(),
    '?': () => help.open(),
    o: () => { location.hash = '#/'; },
    j: () => toList('jobs'),
    n: () => toList('nodes'),
    d: () => toList('devices'),
    t: () => toggle(),
    Escape: () => view?.range?.back(),
  };
  for (let n = 1; n <= 6; n += 1) keys[String(n)] = () => view?.range?.chooseNth(n - 1);
  const act = keys[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
}

/** Shows a banner while the server is unreachable, with the time since when. */
function watchConnection() {
  const banner = find('banner');
  const text = h('span');
  const retry = h('button', { type: 'button', class: 'button', onclick: () => live.retry() }, 'Try now');
  fill(banner, text, retry);
  const render = () => {
    const { up, why, since, retryAt } = live.connection;
    banner.hidden = up;
    document.body.classList.toggle('away', !up);
    if (up) return;
    const wait = Math.max(0, Math.round(retryAt - Date.now() / 1000));
    setText(text, `The server has been unreachable since ${clock(since)} (${why}). ` +
      `The values are from before; next attempt in ${wait} s.`);
  };
  live.watch(render);
  setInterval(() => {
    if (!live.connection.up && !document.hidden) render();
  }, 1000);
}

function watchTheme() {
  const button = find('theme');
  const render = () => {
    setText(button, { system: 'Auto', light: 'Light', dark: 'Dark' }[choice()]);
    button.setAttribute('aria-label', `Theme: ${choice()}. Change it`);
  };
  button.addEventListener('click', toggle);
  onTheme(render);
  render();
}

async function start() {
  watchTheme();
  watchConnection();
  live.onunauthorized = () => token.open();
  find('help').addEventListener('click', () => help.open());
  find('skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  document.addEventListener('keydown', pressed);
  addEventListener('hashchange', () => show());
  /** @type {(value: null) => void} */
  let known = () => {};
  /** @type {(value: null) => void} */
  let healthy = () => {};
  const ready = Promise.all([
    new Promise((resolve) => { known = resolve; }), new Promise((resolve) => { healthy = resolve; }),
  ]);
  live.every(HEALTH_MS, async (signal) => {
    const [health] = await Promise.all([api.health(signal), api.whoAmI(signal)]);
    healthSeen(health);
    healthy(null);
  }, say);
  live.every(CATALOGUE_MS, async (signal) => {
    for (const metric of await api.catalogue(signal)) catalogue.set(metric.name, metric);
    known(null);
  }, say);
  await ready;
  show(true);
}

// Browser tests and the console read the data of the plots on the screen here.
Object.assign(window, { jobmeter: { plots: () => view?.data?.() ?? [] } });
start();
