/**
 * Light or dark theme. The theme follows the system until the user chooses one, and the browser stores that
 * choice.
 */

import { keepValue, kept } from './storage.js';

/** @typedef {'system'|'light'|'dark'} Choice */

const KEY = 'jobmeter-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');

/** @type {Array<() => void>} */
const watchers = [];
const first = kept('localStorage', KEY);
/** @type {Choice} */
let chosen = first === 'light' || first === 'dark' ? first : 'system';

/** Returns the user's choice. */
export const choice = () => chosen;

/** Returns the theme on the screen. */
const seen = () => (chosen === 'system' ? systems() : chosen);

/** @returns {'light'|'dark'} */
const systems = () => (DARK.matches ? 'dark' : 'light');

function apply() {
  document.documentElement.dataset.theme = seen();
  for (const watcher of watchers) watcher();
}

/**
 * Advances to the next choice. From `system` it goes to the opposite of the system's theme, then to the
 * system's theme as a fixed choice, then back to `system`.
 */
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
