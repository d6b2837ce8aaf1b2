/**
 * Poller of the page. Each task repeats at its own period and stops while the tab is hidden or the server is
 * unreachable. While the server is unreachable, a single health request with exponential back-off checks for
 * it.
 */

import { Refused, Unreachable } from './api.js';

/** @typedef {import('./api.js').Api} Api */

const BACKOFF_FIRST_MS = 2000;
const BACKOFF_MAX_MS = 30000;
/** After an error response, a task waits for its period times this factor. */
const REJECTED_FACTOR = 4;

/**
 * A request that repeats.
 * @typedef {object} Task
 * @property {() => void} now run as soon as possible
 * @property {(on: boolean) => void} pause hold it, or let it go on
 * @property {() => void} cancel
 */

/**
 * @typedef {object} Connection
 * @property {boolean} up
 * @property {string} why
 * @property {number} since when it went, by our clock in seconds
 * @property {number} retryAt when we ask again, by our clock in seconds
 */

export class Live {
  /** @param {Api} api */
  constructor(api) {
    this.api = api;
    /** @type {Connection} */
    this.connection = { up: true, why: '', since: 0, retryAt: 0 };
    /** @type {Set<{run: () => void, stop: () => void}>} */
    this.tasks = new Set();
    /** @type {Array<(connection: Connection) => void>} */
    this.watchers = [];
    /** @type {(error: Refused) => void} */
    this.onunauthorized = () => {};
    this.backoffMs = BACKOFF_FIRST_MS;
    this.probe = 0;
    document.addEventListener('visibilitychange', () => this.resume());
  }

  /** True if tasks may send requests now. */
  get open() {
    return this.connection.up && !document.hidden;
  }

  /** @param {(connection: Connection) => void} watcher */
  watch(watcher) {
    this.watchers.push(watcher);
  }

  /**
   * Runs a task now, and then again `periodMs` after each run ends.
   * @param {number|(() => number)} periodMs
   * @param {(signal: AbortSignal) => Promise<void>} work
   * @param {(error: Error) => void} [failed] receives errors that are the server's answer
   * @returns {Task}
   */
  every(periodMs, work, failed = () => {}) {
    let timer = 0;
    let held = false;
    let again = false;
    /** @type {AbortController|null} */
    let running = null;

    const plan = (/** @type {number} */ factor) => {
      clearTimeout(timer);
      const period = typeof periodMs === 'function' ? periodMs() : periodMs;
      if (!held && this.open && this.tasks.has(entry)) {
        timer = window.setTimeout(run, again ? 0 : period * factor);
        again = false;
      }
    };
    const run = async () => {
      clearTimeout(timer);
      if (held || !this.open || !this.tasks.has(entry)) return;
      if (running) {
        again = true;
        return;
      }
      const mine = new AbortController();
      running = mine;
      let factor = 1;
      try {
        await work(mine.signal);
      } catch (error) {
        if (!mine.signal.aborted) {
          factor = REJECTED_FACTOR;
          this.fail(error, failed);
        }
      } finally {
        running = null;
      }
      plan(factor);
    };
    const stop = () => {
      clearTimeout(timer);
      running?.abort();
    };
    const entry = { run, stop };
    this.tasks.add(entry);
    queueMicrotask(run);
    return {
      now: () => {
        running?.abort();
        again = true;
        run();
      },
      pause: (on) => {
        const was = held;
        held = on;
        if (on) clearTimeout(timer);
        else if (was) run();
      },
      cancel: () => {
        this.tasks.delete(entry);
        stop();
      },
    };
  }

  /**
   * @param {any} error
   * @param {(error: Error) => void} failed
   */
  fail(error, failed) {
    if (error instanceof Unreachable) {
      this.lost(error.message);
      return;
    }
    if (!(error instanceof Refused)) {
      // A bug of this page: report it to the console and keep the task.
      reportError(error);
    } else if (error.status === 401) {
      this.onunauthorized(error);
    }
    failed(error);
  }

  /** @param {string} why */
  lost(why) {
    if (!this.connection.up) return;
    const now = Date.now() / 1000;
    this.backoffMs = BACKOFF_FIRST_MS;
    this.set({ up: false, why, since: now, retryAt: now + this.backoffMs / 1000 });
    for (const task of this.tasks) task.stop();
    this.planProbe();
  }

  planProbe() {
    clearTimeout(this.probe);
    if (document.hidden) return;
    this.probe = window.setTimeout(() => this.retry(), this.backoffMs);
  }

  /** Checks now whether the server is reachable. */
  async retry() {
    clearTimeout(this.probe);
    if (this.connection.up) return;
    try {
      await this.api.health();
    } catch (error) {
      if (error instanceof Unreachable) {
        this.backoffMs = Math.min(this.backoffMs * 2, BACKOFF_MAX_MS);
        this.set({ ...this.connection, retryAt: Date.now() / 1000 + this.backoffMs / 1000 });
        this.planProbe();
        return;
      }
    }
    this.set({ up: true, why: '', since: 0, retryAt: 0 });
    this.resume();
  }

  resume() {
    if (document.hidden) {
      clearTimeout(this.probe);
      for (const task of this.tasks) task.stop();
    } else if (this.connection.up) {
      for (const task of this.tasks) task.run();
    } else {
      this.retry();
    }
  }

  /** @param {Connection} connection */
  set(connection) {
    this.connection = connection;
    for (const watcher of this.watchers) watcher(connection);
  }
}
