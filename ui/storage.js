/** What the page remembers; a browser that forbids storage only forgets. */

/** @param {'localStorage'|'sessionStorage'} kind @param {string} key @returns {string|null} */
export function kept(kind, key) {
  try {
    return window[kind].getItem(key);
  } catch {
    return null;
  }
}

/** @param {'localStorage'|'sessionStorage'} kind @param {string} key @param {string|null} value */
export function keepValue(kind, key, value) {
  try {
    if (value === null) window[kind].removeItem(key);
    else window[kind].setItem(key, value);
  } catch {
    // Forbidden or full: the choice holds until the page is left.
  }
}
