/** Dialog that asks the user for a token if the server requires one. */

import { h } from '../elements/dom.js';

export class TokenBox {
  /**
   * @param {import('../server/api.js').Api} api
   * @param {() => void} done called when a token was given
   */
  constructor(api, done) {
    const field = /** @type {HTMLInputElement} */ (h('input', {
      type: 'password', id: 'token-field', autocomplete: 'off', required: true,
    }));
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      api.setToken(field.value.trim());
      field.value = '';
      this.dialog.close();
      done();
    };
    this.dialog = /** @type {HTMLDialogElement} */ (h('dialog', { 'aria-labelledby': 'token-title' },
      h('form', { onsubmit: submit },
        h('h2', { id: 'token-title' }, 'This server needs a token'),
        h('p', {}, h('label', { for: 'token-field' }, 'A user\'s token. The browser keeps it until you close this tab.')),
        h('p', { class: 'command' }, field, h('button', { class: 'button' }, 'Use it')))));
    document.body.append(this.dialog);
  }

  open() {
    if (!this.dialog.open) this.dialog.showModal();
  }
}
