/**
 * Addresses of the page: `#/`, `#/nodes`, `#/jobs`, `#/node/NAME`, `#/job/CLUSTER:ID`, with what the
 * view keeps after a `?`: `#/job/local:7?range=1h`.
 */

/**
 * @typedef {object} Route
 * @property {'overview'|'nodes'|'jobs'|'node'|'job'|'unknown'} view
 * @property {string} name the node's name or the job's key
 * @property {URLSearchParams} query
 */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const text = hash.replace(/^#?\/?/, '');
  const cut = text.indexOf('?');
  const path = cut < 0 ? text : text.slice(0, cut);
  const query = new URLSearchParams(cut < 0 ? '' : text.slice(cut + 1));
  const slash = path.indexOf('/');
  const head = slash < 0 ? path : path.slice(0, slash);
  const rest = slash < 0 ? '' : decode(path.slice(slash + 1));
  if (head === '') return { view: 'overview', name: '', query };
  if ((head === 'nodes' || head === 'jobs') && rest === '') return { view: head, name: '', query };
  if ((head === 'node' || head === 'job') && rest !== '') return { view: head, name: rest, query };
  return { view: 'unknown', name: path, query };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} device */
export const nodeHash = (device) => `#/node/${encodeURIComponent(device)}`;

/** @param {string} key */
export const jobHash = (key) => `#/job/${key.split(':').map(encodeURIComponent).join(':')}`;

/**
 * The same address with other things kept; it makes no new entry in the history.
 * @param {Record<string, string|null>} changes null takes one out
 */
export function keep(changes) {
  const [path, text = ''] = location.hash.split('?');
  const query = new URLSearchParams(text);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) query.delete(key);
    else query.set(key, value);
  }
  const kept = query.toString();
  history.replaceState(null, '', `${path || '#/'}${kept === '' ? '' : `?${kept}`}`);
}
