// @ts-check
// Fields that several forms use.

import { button } from './components.js'
import { h } from './dom.js'
import { time } from './format.js'

let ids = 0

/** @typedef {import('./dom.js').Child} Child */

/**
 * A labelled input with a hint below it.
 * @param {Child} label
 * @param {HTMLElement} input
 * @param {Child} [hint]
 */
export function labelled(label, input, hint) {
  const id = input.id || `field${++ids}`
  input.id = id
  if (hint) input.setAttribute('aria-describedby', `${id}hint`)
  return h('.field', h('label', { for: id }, label), input, hint && h('small.hint', { id: `${id}hint` }, hint))
}

/**
 * A whole number. The hint says what 0 means.
 * @param {string} name
 * @param {Child} label
 * @param {{ value?: number, max?: number, min?: number, hint?: Child }} options
 */
export function number(name, label, { value = 0, max, min = 0, hint } = {}) {
  const input = h('input', { name, type: 'number', inputmode: 'numeric', min, max, value, required: true })
  return { element: labelled(label, input, hint), value: () => Number(input.value) }
}

/**
 * @param {string} name
 * @param {Child} label
 * @param {{ value?: string, hint?: Child, [attribute: string]: any }} options
 */
export function textField(name, label, { value = '', hint, ...attributes } = {}) {
  const input = h('input', { name, value, spellcheck: 'false', autocomplete: 'off', ...attributes })
  return { element: labelled(label, input, hint), input, value: () => input.value.trim() }
}

const DAY_S = 86400
/** @type {[number | string, string][]} */
const LIFETIMES = [
  ['', 'Never'],
  [3600, 'In 1 hour'],
  [DAY_S, 'In 1 day'],
  [7 * DAY_S, 'In 1 week'],
  [30 * DAY_S, 'In 30 days'],
  [365 * DAY_S, 'In 1 year'],
  ['date', 'At a date …']
]

/**
 * When something expires. `value` returns a Unix time in seconds, null for never, or undefined for "as now".
 * @param {number | null} [current]
 */
export function expiry(current) {
  const soon = new Date(Date.now() + DAY_S * 1000 - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 16)
  const date = h('input', {
    type: 'datetime-local',
    value: soon,
    hidden: true,
    'aria-label': 'Date and time of expiry, in your time zone'
  })
  const now = current === undefined ? [] : [['keep', current == null ? 'Never (as now)' : `${time(current)} (as now)`]]
  const select = h(
    'select',
    {
      name: 'lifetime',
      onchange: () => {
        date.hidden = select.value !== 'date'
      }
    },
    [...now, ...LIFETIMES.slice(current === null ? 1 : 0)].map(([value, text]) => h('option', { value }, text))
  )
  return {
    element: h('.stacked', labelled('Expires', select), date),
    value() {
      if (select.value === 'keep') return undefined
      if (select.value === '') return null
      if (select.value !== 'date') return Math.floor(Date.now() / 1000) + Number(select.value)
      const at = Math.floor(new Date(date.value).getTime() / 1000)
      if (!Number.isFinite(at)) throw new Error('Expires: choose a date and a time.')
      if (at * 1000 < Date.now()) throw new Error('Expires: the date is in the past.')
      return at
    }
  }
}

/**
 * When something expires, for a table.
 * @param {number | null | undefined} at
 */
export function expires(at) {
  if (at == null) return h('span.soft', 'never')
  return at * 1000 < Date.now() ? h('span.tag.bad', 'expired') : time(at)
}

/**
 * Labelled checkboxes.
 * @param {Child} legend
 * @param {{ name: string, title: string, text?: string }[]} choices
 * @param {string[]} checked
 */
export function checkboxes(legend, choices, checked = []) {
  /** @type {HTMLInputElement[]} */
  const boxes = choices.map(({ name }) =>
    h('input', { type: 'checkbox', name: 'choice', value: name, checked: checked.includes(name) })
  )
  return {
    element: h(
      'fieldset',
      h('legend', legend),
      h(
        '.checks',
        choices.map(({ name, title, text }, at) =>
          h('label.check', { title: name }, boxes[at], h('span', title), text && h('small', text))
        )
      )
    ),
    boxes,
    value: () => boxes.filter(box => box.checked).map(box => box.value),
    /** @param {string[]} names */
    set(names) {
      for (const box of boxes) box.checked = names.includes(box.value)
    }
  }
}

/**
 * A button that lets the user choose a file, and passes it on.
 * @param {string} label
 * @param {string} accept
 * @param {(file: File) => Promise<unknown>} onFile
 */
export function fileButton(label, accept, onFile) {
  const input = h('input', {
    type: 'file',
    accept,
    hidden: true,
    onchange: async () => {
      const [file] = input.files
      if (file) await onFile(file)
      input.value = ''
    }
  })
  return [input, button(label, () => input.click())]
}
