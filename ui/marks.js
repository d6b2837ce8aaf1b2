/** What was asked of nodes, as lines in the plots: when settings were changed, by whom, and when that ended. */

import { Refused } from './api.js';

/** @typedef {import('./api.js').Mark} Mark */

/** So long an answer is taken for fresh by all plots of a page. */
const FRESH_S = 5;

export class Marks {
  /**
   * @param {import('./api.js').Api} api
   * @param {() => string[]} devices whose marks are drawn
   */
  constructor(api, devices) {
    this.api = api;
    this.devices = devices;
    /** @type {{start: number, end: number, at: number, answer: Promise<Mark[]>}|null} */
    this.asked = null;
  }

  /**
   * The marks of a time, asked for once by all plots that show it.
   * @param {number} start
   * @param {number} end
   * @returns {Promise<Mark[]>}
   */
  within(start, end) {
    const now = this.api.now();
    const { asked } = this;
    const covers = asked !== null && asked.start <= start && Math.min(end, now - FRESH_S) <= asked.end &&
      now - asked.at < FRESH_S;
    // Plots of one page begin a step apart.
    const early = Math.floor(start - (end - start) / 20);
    const answer = covers ? asked.answer : this.ask(early, Math.ceil(end), now);
    return answer.then((marks) => marks.filter(({ at }) => start <= at && at <= end));
  }

  /** @param {number} start @param {number} end @param {number} now */
  ask(start, end, now) {
    const device = this.devices().join(',');
    const answer = device === '' ? Promise.resolve([]) : this.api.marks({ device, start, end });
    // Plots without marks are better than no plots; an older server has none.
    const drawn = answer.catch((error) => {
      if (error instanceof Refused && error.status !== 401) return [];
      throw error;
    });
    this.asked = { start, end, at: now, answer: drawn };
    return drawn;
  }
}

/** @type {Record<string, string>} */
const WORDS = {
  set: 'changed', undone: 'undone', expired: 'ended', promoted: 'promoted', demoted: 'no more promoted',
  flushed: 'burst asked for',
};

/** A mark in words. @param {Mark} mark */
export function markText({ kind, id, text, actor, job }) {
  const who = actor === null ? '' : ` by ${actor}`;
  const whose = job === null ? '' : ` for ${job}`;
  return `${WORDS[kind] ?? kind}${who}${whose}: ${text} (${id})`;
}

/**
 * The marks so near to a time that they are meant.
 * @param {Mark[]} marks
 * @param {number} time
 * @param {number} reach in seconds, to both sides
 */
export const nearMarks = (marks, time, reach) => marks.filter(({ at }) => Math.abs(at - time) <= reach);
