/** Browser storage of the page's settings. A browser that forbids storage only loses them. */

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
    // Storage is forbidden or full: the value holds until the user leaves the page.
  }
}
