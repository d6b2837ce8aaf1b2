/**
 * Vertical lines in the plots for events of nodes: changes of settings, promotions, their ends, and requested
 * bursts.
 */

import { Refused } from '../server/api.js';

/** @typedef {import('../server/api.js').Mark} Mark */

/** Seconds for which all plots of a page share one response. */
const FRESH_S = 5;

export class Marks {
  /**
   * @param {import('../server/api.js').Api} api
   * @param {() => string[]} devices of the marks that are drawn
   */
  constructor(api, devices) {
    this.api = api;
    this.devices = devices;
    /** @type {{start: number, end: number, at: number, answer: Promise<Mark[]>}|null} */
    this.requested = null;
  }

  /**
   * Returns the marks in a time range. All plots that show this range share one request.
   * @param {number} start
   * @param {number} end
   * @returns {Promise<Mark[]>}
   */
  within(start, end) {
    const now = this.api.now();
    const { requested } = this;
    const covers = requested !== null && requested.start <= start && Math.min(end, now - FRESH_S) <= requested.end &&
      now - requested.at < FRESH_S;
    // The start times of the plots on a page differ by up to one step, so request a little more.
    const early = Math.floor(start - (end - start) / 20);
    const answer = covers ? requested.answer : this.request(early, Math.ceil(end), now);
    return answer.then((marks) => marks.filter(({ at }) => start <= at && at <= end));
  }

  /** @param {number} start @param {number} end @param {number} now */
  request(start, end, now) {
    const device = this.devices().join(',');
    const answer = device === '' ? Promise.resolve([]) : this.api.marks({ device, start, end });
    // Show plots without marks rather than no plots. An older server has no route for marks.
    const drawn = answer.catch((error) => {
      if (error instanceof Refused && error.status !== 401) return [];
      throw error;
    });
    this.requested = { start, end, at: now, answer: drawn };
    return drawn;
  }
}

/** @type {Record<string, string>} */
const WORDS = {
  set: 'changed', undone: 'undone', expired: 'ended', promoted: 'promoted', demoted: 'no longer promoted',
  flushed: 'burst requested',
};

/** Describes a mark. @param {Mark} mark */
export function markText({ kind, id, text, actor, job }) {
  const who = actor === null ? '' : ` by ${actor}`;
  const ofJob = job === null ? '' : ` for ${job}`;
  return `${WORDS[kind] ?? kind}${who}${ofJob}: ${text} (${id})`;
}

/**
 * Returns the marks within `reach` seconds of a time.
 * @param {Mark[]} marks
 * @param {number} time
 * @param {number} reach in seconds, to both sides
 */
export const nearMarks = (marks, time, reach) => marks.filter(({ at }) => Math.abs(at - time) <= reach);
