// Parts that several pages use: tables that stay stable while they refresh, pagers, dialogs, messages, buttons
// that copy, and QR codes.

import { h, put, s } from './dom.js'
import { count } from './format.js'
import { generate } from './vendor/lean-qr.js'

/** A button. `name` is for screen readers, where the label says too little. */
export const button = (label, onclick, kind, name) => h('button', { class: kind, type: 'button', 'aria-label': name, onclick }, label)

// Messages.

let messages
const GOOD_MS = 6000
const UNDO_MS = 12000
const MESSAGES_MAX = 4

function show (line) {
  if (!messages?.isConnected) {
    messages = h('.toasts', { role: 'region', 'aria-label': 'Messages' },
      h('div', { role: 'status', 'aria-live': 'polite' }), h('div', { role: 'alert' }))
    document.body.append(messages)
  }
  // An open dialog makes the rest of the page inert: then messages belong into it.
  const top = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body
  if (messages.parentElement !== top) top.append(messages)
  messages.children[line.classList.contains('bad') ? 1 : 0].append(line)
  const all = messages.querySelectorAll('.toast')
  if (all.length > MESSAGES_MAX) all[0].remove()
}

const dismissal = line => button('✕', () => line().remove(), 'icon', 'Dismiss')

/** Says that something was done. Goes after some seconds, unless it is pointed at or has the focus. */
export function say (text, { undo, undone = 'Undone.' } = {}) {
  const line = h('.toast', h('span', text),
    undo && h('button.small', {
      type: 'button',
      onclick: async event => {
        event.target.disabled = true
        if (await attempt(undo, undone)) line.remove()
        else event.target.disabled = false
      }
    }, 'Undo'),
    dismissal(() => line))
  show(line)
  const leave = () => line.matches(':hover, :focus-within') ? setTimeout(leave, 1000) : line.remove()
  setTimeout(leave, undo ? UNDO_MS : GOOD_MS)
}

/** Shows an error until it is dismissed. The same one again is counted. */
export function fail (problem) {
  const text = problem.message ?? String(problem)
  const same = [...messages?.querySelectorAll('.toast.bad') ?? []].find(line => line.dataset.text === text)
  if (same) {
    same.dataset.times = Number(same.dataset.times) + 1
    same.querySelector('.times').textContent = ` (${same.dataset.times} times)`
    return
  }
  const line = h('.toast.bad', { 'data-text': text, 'data-times': 1 }, h('span', text, h('span.times')), dismissal(() => line))
  show(line)
}

/** Runs `act`, and says `done` or why it failed. Resolves to whether it worked. `done` may be made of the result. */
export async function attempt (act, done, options) {
  try {
    const result = await act()
    const text = typeof done === 'function' ? done(result) : done
    if (text) say(text, options)
    return true
  } catch (problem) {
    fail(problem)
    return false
  }
}

// Dialogs.

/** Opens a dialog. Resolves to what the chosen action returned, or to undefined. */
export function dialog ({ title, content = [], actions = [], cancel = 'Cancel', wide = false }) {
  return new Promise(resolve => {
    let value
    const fault = h('p.fault', { role: 'alert', hidden: true })
    const run = async (action, buttons) => {
      fault.hidden = true
      for (const button of buttons) button.disabled = true
      try {
        value = await action.act?.()
        box.close()
      } catch (problem) {
        fault.textContent = problem.message
        fault.hidden = false
      } finally {
        for (const button of buttons) button.disabled = false
      }
    }
    const buttons = actions.map((action, at) => h('button', {
      class: action.kind ?? (at === 0 ? 'primary' : ''),
      type: at === 0 ? 'submit' : 'button',
      onclick: at === 0 ? undefined : () => run(action, buttons)
    }, action.label))
    const form = h('form', {
      onsubmit: event => {
        event.preventDefault()
        if (actions.length > 0) run(actions[0], buttons)
        else box.close()
      }
    },
    h('h2', title), ...content, fault,
    h('.row.end',
      h('button', { type: 'button', autofocus: actions[0]?.kind === 'danger', onclick: () => box.close() }, actions.length > 0 ? cancel : 'Close'), ...buttons.reverse()))
    const box = h('dialog', { class: wide ? 'wide-dialog' : '', 'aria-label': title }, form)
    // Listens to the element itself: dialogs within it close, too.
    box.addEventListener('close', () => {
      if (messages && box.contains(messages)) document.body.append(messages)
      box.remove()
      resolve(value)
    })
    document.body.append(box)
    box.showModal()
  })
}

/** Asks whether to go on. Resolves to true or false. */
export async function confirm ({ title, text, action, kind = 'danger' }) {
  const content = [].concat(text ?? []).map(one => typeof one === 'string' ? h('p', one) : one)
  return await dialog({ title, content, actions: [{ label: action, kind, act: () => true }] }) === true
}

// Copying.

async function copy (text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  // Without TLS browsers offer only this.
  const field = h('textarea.visually-hidden', { readonly: true })
  field.value = text
  const focused = document.activeElement
  ;(document.querySelector('dialog[open]') ?? document.body).append(field)
  field.select()
  const copied = document.execCommand('copy')
  field.remove()
  focused?.focus({ preventScroll: true })
  if (!copied) throw new Error('The browser does not allow copying. Select the text and copy it by hand.')
}

const glyph = () => s('svg', { class: 'glyph', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, s('path', { d: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3' }))

/** A button that copies a text, or what a function returns. `name` says what, for screen readers. */
export function copyButton (text, label = 'Copy', name = label) {
  const button = h('button', {
    class: label === '' ? 'icon copy' : 'small copy',
    type: 'button',
    'aria-label': name,
    title: label === '' ? name : undefined,
    onclick: async () => {
      try {
        await copy(typeof text === 'function' ? text() : text)
        button.classList.add('copied')
        button.textContent = label === '' ? '✓' : 'Copied'
        setTimeout(() => { button.classList.remove('copied'); put(button, label || glyph()) }, 1500)
      } catch (problem) { fail(problem) }
    }
  }, label || glyph())
  return button
}

/** An info hash, as a link if there is an address. A phone shows its ends; a tap on the button copies all of it. */
export function hash (value, href) {
  const text = [h('span.whole', value), h('span.ends', `${value.slice(0, 8)}…${value.slice(-6)}`)]
  return h('span.hash', href ? h('a', { href, title: value }, text) : text, copyButton(value, '', 'Copy info hash'))
}

/** A QR code. Dark on light in both themes: many readers need that. */
export function qr (text) {
  const code = generate(text)
  let path = ''
  for (let y = 0; y < code.size; y++) {
    for (let x = 0; x < code.size; x++) if (code.get(x, y)) path += `M${x} ${y}h1v1h-1z`
  }
  return s('svg', { class: 'qr', viewBox: `-4 -4 ${code.size + 8} ${code.size + 8}`, role: 'img', 'aria-label': `QR code: ${text}`, 'shape-rendering': 'crispEdges' },
    s('rect', { x: -4, y: -4, width: code.size + 8, height: code.size + 8, class: 'light' }), s('path', { d: path, class: 'dark' }))
}

const showQr = (title, text) => dialog({ title, content: [qr(text), h('code.secret', text)] })

/** Finished announce URLs, each with its protocol, Copy and QR. */
export function announceUrls (urls) {
  return h('ul.urls', urls.map(({ url, protocol = url.split(':')[0] }) => h('li',
    h('span.tag', protocol), h('code', url),
    h('span.row', copyButton(url, 'Copy', `Copy ${url}`),
      button('QR', () => showQr('Announce URL', url), 'small', `QR code of ${url}`)))))
}

// Searching and paging.

const SEARCH_MS = 250

/** A field that calls `onSearch` shortly after the last key, or at Enter. */
export function searchBox ({ label, placeholder = label, onSearch, value = '', size = 28 }) {
  let timer
  let last = value
  const search = () => {
    clearTimeout(timer)
    const text = input.value.trim()
    if (text !== last) onSearch(last = text)
  }
  const input = h('input', {
    type: 'search',
    'data-search': true,
    'aria-label': label,
    placeholder,
    value,
    size,
    maxlength: 2000,
    spellcheck: 'false',
    autocomplete: 'off',
    oninput: () => { clearTimeout(timer); timer = setTimeout(search, SEARCH_MS) },
    onchange: search
  })
  return h('form.search', { role: 'search', onsubmit: event => { event.preventDefault(); search() } }, input)
}

/** Buttons for the pages of a list that has cursors. */
export function pager ({ onTurn }) {
  let before = []
  let next = null
  let first = 1
  const starts = []
  const where = h('span.soft', { 'aria-live': 'polite' })
  const turn = go => () => { go(); onTurn() }
  const back = button('← Previous', turn(() => { own.cursor = before.pop(); first = starts.pop() }))
  const on = button('Next →', turn(() => { before.push(own.cursor); starts.push(first); first += own.count; own.cursor = next }))
  const own = {
    element: h('.row.pager', { hidden: true }, back, on, where),
    cursor: null,
    count: 0,
    show ({ next: after, total, count: rows }) {
      next = after ?? null
      own.count = rows
      back.disabled = before.length === 0
      on.disabled = next === null
      own.element.hidden = before.length === 0 && next === null
      where.textContent = rows === 0 ? '' : `${count(first)}–${count(first + rows - 1)} of ${count(total)}`
    },
    reset () {
      before = []
      starts.length = 0
      first = 1
      own.cursor = null
    }
  }
  return own
}

// Tables.

const isSame = (one, other) => one.length === other.length && one.every((node, at) => typeof node === 'string' ? node === other[at] : typeof other[at] !== 'string' && node.isEqualNode(other[at]))
const contents = content => [content].flat(9).filter(one => one != null && one !== false).map(one => one instanceof Node ? one : String(one))

/**
 * A table whose rows are kept by key when it is updated: focus and selection stay. Nothing changes while text in
 * it is selected.
 */
export function liveTable ({ caption, columns, key, empty = 'None.', cards = false, onSort }) {
  const rows = new Map()
  const body = h('tbody')
  const nothing = h('p.empty', { hidden: true })
  const heads = columns.map(({ title, kind, sort }) => h('th', { class: kind, scope: 'col' },
    sort && onSort ? h('button', { type: 'button', onclick: () => onSort(sort) }, title, h('span.order', { 'aria-hidden': 'true' })) : title || h('span.visually-hidden', 'Actions')))
  const table = h('table', { class: cards ? 'cards' : '' }, h('caption.visually-hidden', caption), h('thead', h('tr', heads)), body)
  const scroll = h('.scroll', { hidden: true }, table)

  function fill (entry, row) {
    columns.forEach(({ cell }, at) => {
      const content = contents(cell(row))
      if (entry.contents[at] && isSame(content, entry.contents[at])) return
      entry.contents[at] = content
      put(entry.element.cells[at], content)
    })
  }

  function make () {
    const cells = columns.map(({ title, kind }) => h('td', { class: kind, 'data-label': title }))
    return { element: h('tr', cells), contents: [] }
  }

  return {
    element: h('.live', scroll, nothing),

    /** Shows these rows, in this order. */
    update (list, why = empty) {
      const selection = getSelection()
      if (!selection.isCollapsed && body.contains(selection.anchorNode)) return
      const focused = body.contains(document.activeElement) ? document.activeElement : null
      const gone = new Set(rows.keys())
      list.forEach((row, at) => {
        const name = String(key(row))
        gone.delete(name)
        const entry = rows.get(name) ?? make()
        rows.set(name, entry)
        fill(entry, row)
        if (body.rows[at] !== entry.element) body.insertBefore(entry.element, body.rows[at] ?? null)
      })
      for (const name of gone) {
        rows.get(name).element.remove()
        rows.delete(name)
      }
      // A row that moved has lost the focus.
      if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true })
      scroll.hidden = list.length === 0
      nothing.hidden = list.length > 0
      nothing.textContent = why
    },

    /** Marks the column that the rows are sorted by. */
    sorted (by, order) {
      columns.forEach(({ sort }, at) => {
        if (!sort) return
        const head = heads[at]
        if (sort === by) head.setAttribute('aria-sort', order === 'asc' ? 'ascending' : 'descending')
        else head.removeAttribute('aria-sort')
        head.querySelector('.order').textContent = sort === by ? (order === 'asc' ? ' ▴' : ' ▾') : ''
      })
    }
  }
}

/** A table with search and pages. `load` gets cursor and text, and returns `{ rows, next, total }`. */
export function pagedTable ({ load, search, every, isHere, noMatch, one, many = `${one}s`, ...options }) {
  const table = liveTable(options)
  const about = h('span.soft', { 'aria-live': 'polite' })
  let text = search?.value ?? ''
  let wanted = 0
  const pages = pager({ onTurn: () => again() })
  const box = search && searchBox({ ...search, onSearch: found => { text = found; pages.reset(); again() } })

  async function again () {
    const own = ++wanted
    let page
    try {
      page = await load({ cursor: pages.cursor, text })
    } catch (problem) {
      if (own === wanted && isHere()) fail(problem)
      return
    }
    // A later request overtook this one, or the page was left.
    if (own !== wanted || !isHere() || !page) return
    // The last row of a later page was removed.
    if (page.rows.length === 0 && pages.cursor) {
      pages.reset()
      return again()
    }
    about.textContent = page.total === 0 ? '' : `${count(page.total)} ${page.total === 1 ? one : many}${text ? ' found' : ''}${page.about ?? ''}`
    table.update(page.rows, text ? (noMatch?.(text) ?? `Nothing matches “${text}”.`) : options.empty)
    pages.show({ next: page.next, total: page.total, count: page.rows.length })
  }

  const timer = every && setInterval(() => { if (!document.hidden) again() }, every)
  return {
    box,
    about,
    table,
    element: h('div', table.element, pages.element),
    again,
    restart () { pages.reset(); return again() },
    stop: () => clearInterval(timer)
  }
}
