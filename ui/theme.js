/** Light or dark: the system's choice unless the reader made one, which is kept. */

import { keepValue, kept } from './storage.js';

/** @typedef {'system'|'light'|'dark'} Choice */

const KEY = 'jobmeter-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');

/** @type {Array<() => void>} */
const watchers = [];
const first = kept('localStorage', KEY);
/** @type {Choice} */
let chosen = first === 'light' || first === 'dark' ? first : 'system';

/** The reader's choice. */
export const choice = () => chosen;

/** The theme on the screen. */
const seen = () => (chosen === 'system' ? systems() : chosen);

/** @returns {'light'|'dark'} */
const systems = () => (DARK.matches ? 'dark' : 'light');

function apply() {
  document.documentElement.dataset.theme = seen();
  for (const watcher of watchers) watcher();
}

/** The next choice: first the theme that is not the system's, then its own, then to follow it. */
export function toggle() {
  const other = systems() === 'dark' ? 'light' : 'dark';
  if (chosen === 'system') chosen = other;
  else chosen = chosen === other ? systems() : 'system';
  keepValue('localStorage', KEY, chosen === 'system' ? null : chosen);
  apply();
}

/**
 * @param {() => void} watcher called when the colours change
 * @returns {() => void} ends the watching
 */
export function onTheme(watcher) {
  watchers.push(watcher);
  return () => {
    watchers.splice(watchers.indexOf(watcher), 1);
  };
}

DARK.addEventListener('change', apply);
apply();
