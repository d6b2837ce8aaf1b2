// Runs before the first paint, so that a dark page does not flash white. `theme.js` does the rest.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem('jobmeter-theme');
  } catch {
    // A browser without storage follows the colour scheme of its system.
  }
  const dark = kept ? kept === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();
