/**
 * Drives headless Chromium over its DevTools pipe, without any package. The pipe is file descriptors 3 and 4,
 * which carry JSON messages that end with a zero byte.
 */

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const ANSWER_MS = 90000;
const WAIT_MS = 15000;
const POLL_MS = 50;

/** Returns the path of Chromium: `$CHROMIUM`, else one of the usual paths, else undefined. */
export const chromiumPath = () => [process.env.CHROMIUM, ...PLACES].find((path) => path && existsSync(path));

export class Browser {
  /** Starts a browser process with a new profile. */
  static async launch() {
    const path = chromiumPath();
    if (path === undefined) throw new Error('no Chromium: install the package `chromium`, or set CHROMIUM');
    const profile = await mkdtemp(join(tmpdir(), 'jobmeter-page-'));
    // Root cannot use Chromium's sandbox. The browser opens only the project's own page.
    const child = spawn(path, [
      '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-extensions',
      '--hide-scrollbars', '--force-color-profile=srgb', '--remote-debugging-pipe', `--user-data-dir=${profile}`,
      'about:blank',
    ], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    return new Browser(child, profile);
  }

  constructor(child, profile) {
    this.child = child;
    this.profile = profile;
    this.next = 1;
    this.waiting = new Map();
    this.pages = new Map();
    this.ended = new Promise((resolve) => child.once('exit', resolve));
    this.ended.then(() => {
      for (const { reject } of this.waiting.values()) reject(new Error('Chromium ended'));
    });
    let rest = '';
    child.stdio[4].setEncoding('utf8');
    child.stdio[4].on('data', (chunk) => {
      const messages = (rest + chunk).split('\0');
      rest = messages.pop();
      for (const message of messages) this.received(JSON.parse(message));
    });
  }

  received(message) {
    if (message.id === undefined) {
      this.pages.get(message.sessionId)?.event(message.method, message.params);
      return;
    }
    const { resolve, reject, timer } = this.waiting.get(message.id) ?? {};
    this.waiting.delete(message.id);
    clearTimeout(timer);
    if (message.error) reject?.(new Error(message.error.message));
    else resolve?.(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next;
    this.next += 1;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`Chromium does not answer ${method}`)), ANSWER_MS);
      this.waiting.set(id, { resolve, reject, timer });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  /** Opens a new tab of this size. */
  async page(width = 1440, height = 900) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    this.pages.set(sessionId, page);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page.send(`${domain}.enable`);
    await page.size(width, height);
    return page;
  }

  async close() {
    this.send('Browser.close').catch(() => this.child.kill());
    await this.ended;
    await rm(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  constructor(browser, sessionId, targetId) {
    this.browser = browser;
    this.sessionId = sessionId;
    this.targetId = targetId;
    /** Errors of the console, and uncaught exceptions. */
    this.errors = [];
    /** Requested URLs, in order. */
    this.requested = [];
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  event(method, params) {
    if (method === 'Runtime.exceptionThrown') {
      const { text, exception } = params.exceptionDetails;
      this.errors.push(`${text} ${exception?.description ?? ''}`);
    } else if (method === 'Runtime.consoleAPICalled' && ['error', 'warning', 'assert'].includes(params.type)) {
      this.errors.push(params.args.map((arg) => arg.value ?? arg.description).join(' '));
    } else if (method === 'Log.entryAdded' && ['error', 'warning'].includes(params.entry.level)) {
      this.errors.push(`${params.entry.text} ${params.entry.url ?? ''}`);
    } else if (method === 'Network.requestWillBeSent') {
      this.requested.push(params.request.url);
    }
  }

  open(url) {
    return this.send('Page.navigate', { url });
  }

  size(width, height, mobile = false) {
    return this.send('Emulation.setDeviceMetricsOverride', { width, height, mobile, deviceScaleFactor: mobile ? 2 : 1 });
  }

  /** Sets the preferred colour scheme of the system: `light` or `dark`. */
  prefers(scheme) {
    return this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  }

  /** Runs a function in the page, with arguments that JSON can represent. */
  async evaluate(fn, ...args) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression: `(${fn})(${args.map((arg) => JSON.stringify(arg)).join(',')})`,
      awaitPromise: true, returnByValue: true, userGesture: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until a function in the page returns a truthy value, and returns that value. */
  async waitFor(what, fn, ...args) {
    const until = Date.now() + WAIT_MS;
    for (;;) {
      const value = await this.evaluate(fn, ...args);
      if (value) return value;
      if (Date.now() > until) throw new Error(`waited ${WAIT_MS / 1000} s in vain for ${what}`);
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
    }
  }

  /** Presses a key: a character, or a name such as `ArrowDown`. */
  async key(key) {
    const codes = { ArrowDown: 40, ArrowUp: 38, ArrowLeft: 37, ArrowRight: 39, Enter: 13, Escape: 27, Tab: 9 };
    const text = key.length === 1 ? key : key === 'Enter' ? '\r' : undefined;
    const event = { key, text, windowsVirtualKeyCode: codes[key] };
    await this.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', ...event });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
  }

  async type(text) {
    for (const char of text) await this.key(char);
  }

  /** Moves the mouse. With `to`, it drags from the first point to the second. */
  async mouse(from, to = undefined) {
    const at = (type, { x, y }, buttons = 0) =>
      this.send('Input.dispatchMouseEvent', { type, x, y, button: buttons ? 'left' : 'none', buttons, clickCount: 1 });
    await at('mouseMoved', from);
    if (to === undefined) return;
    await this.send('Input.dispatchMouseEvent', { type: 'mousePressed', ...from, button: 'left', buttons: 1, clickCount: 1 });
    await at('mouseMoved', { x: (from.x + to.x) / 2, y: to.y }, 1);
    await at('mouseMoved', to, 1);
    await this.send('Input.dispatchMouseEvent', { type: 'mouseReleased', ...to, button: 'left', buttons: 0, clickCount: 1 });
  }

  /** Writes a screenshot to a PNG file. */
  async screenshot(path) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    await writeFile(path, Buffer.from(data, 'base64'));
  }

  close() {
    return this.browser.send('Target.closeTarget', { targetId: this.targetId });
  }
}
