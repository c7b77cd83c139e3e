// @ts-check
// Parts that several pages use: tables that stay stable while they refresh, pagers, dialogs, messages, buttons
// that copy, and QR codes.

import { repeat } from './client.js'
import { h, put, renew, s, unseen } from './dom.js'
import { count } from './format.js'
import { generate } from './vendor/lean-qr.js'

/** @typedef {import('./dom.js').Child} Child */
/** @typedef {Error & { status?: number }} Problem */

/**
 * A button. `name` is for screen readers, where the label says too little.
 * @param {Child} label
 * @param {(event: any) => void} onclick
 * @param {string} [kind] classes
 * @param {string} [name]
 * @returns {HTMLButtonElement}
 */
export const button = (label, onclick, kind, name) => h('button', { class: kind, 'aria-label': name, onclick }, label)

// Messages.

/** @type {HTMLElement | undefined} */
let messages
const GOOD_MS = 6000
const UNDO_MS = 12000
const MESSAGES_MAX = 4

/** @param {HTMLElement} line */
function show(line) {
  if (!messages?.isConnected) {
    messages = h(
      '.toasts',
      { role: 'region', 'aria-label': 'Messages' },
      h('div', { role: 'status', 'aria-live': 'polite' }),
      h('div', { role: 'alert' })
    )
    document.body.append(messages)
  }
  // An open dialog makes the rest of the page inert: then messages belong into it.
  const top = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body
  if (messages.parentElement !== top) top.append(messages)
  messages.children[line.classList.contains('bad') ? 1 : 0].append(line)
  const all = messages.querySelectorAll('.toast')
  if (all.length > MESSAGES_MAX) all[0].remove()
}

/** @param {() => HTMLElement} line */
const dismissal = line => button('✕', () => line().remove(), 'icon', 'Dismiss')

/**
 * `undo` takes back what was done; `undone` says that it did.
 * @typedef {{ undo?: () => Promise<unknown>, undone?: string }} SayOptions
 */

/**
 * Says that something was done. Goes after some seconds, unless it is pointed at or has the focus.
 * @param {string} text
 * @param {SayOptions} options
 */
export function say(text, { undo, undone = 'Undone.' } = {}) {
  const line = h(
    '.toast',
    h('span', text),
    undo &&
      button(
        'Undo',
        async ({ target }) => {
          target.disabled = true
          if (await attempt(undo, undone)) line.remove()
          target.disabled = false
        },
        'small'
      ),
    dismissal(() => line)
  )
  show(line)
  const leave = () => (line.matches(':hover, :focus-within') ? setTimeout(leave, 1000) : line.remove())
  setTimeout(leave, undo ? UNDO_MS : GOOD_MS)
}

/**
 * Shows an error until it is dismissed. The same one again is counted.
 * @param {any} problem
 */
export function fail(problem) {
  const text = problem.message ?? String(problem)
  /** @type {any[]} */
  const shown = [...(messages?.querySelectorAll('.toast.bad') ?? [])]
  const same = shown.find(line => line.text === text)
  if (same) {
    same.querySelector('.times').textContent = ` (${++same.times} times)`
    return
  }
  const line = h(
    '.toast.bad',
    h('span', text, h('span.times')),
    dismissal(() => line)
  )
  show(Object.assign(line, { text, times: 1 }))
}

/**
 * Runs `act`, and says `done` or why it failed. Resolves to whether it worked. `done` may be made of the result.
 * @template T
 * @param {() => T | Promise<T>} act
 * @param {string | ((result: T) => string)} [done]
 * @param {SayOptions} [options]
 */
export async function attempt(act, done, options) {
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

/**
 * Opens a dialog. Resolves to what `act`, the action, returned, or to undefined. Shows why it failed.
 * @param {{ title: string, content: Child, action?: string, act?: () => any, kind?: string, wide?: boolean }} options
 * @returns {Promise<any>}
 */
export function dialog({ title, content, action, act, kind = 'primary', wide }) {
  return new Promise(resolve => {
    let value
    const fault = h('p.fault', { role: 'alert', hidden: true })
    const submit = action && h('button', { class: kind }, action)
    const form = h(
      'form',
      {
        onsubmit: async event => {
          event.preventDefault()
          if (!act) return box.close()
          fault.hidden = submit.disabled = true
          try {
            value = await act()
            box.close()
          } catch (problem) {
            fault.textContent = problem.message
            fault.hidden = false
          }
          submit.disabled = false
        }
      },
      h('h2', title),
      content,
      fault,
      h(
        '.row.end',
        h('button', { autofocus: kind === 'danger', onclick: () => box.close() }, action ? 'Cancel' : 'Close'),
        submit
      )
    )
    const box = h(
      `dialog${wide ? '.wide-dialog' : ''}`,
      {
        'aria-label': title,
        onclose() {
          if (messages && box.contains(messages)) document.body.append(messages)
          box.remove()
          resolve(value)
        }
      },
      form
    )
    document.body.append(box)
    box.showModal()
  })
}

/**
 * Asks whether to go on. Resolves to true or false.
 * @param {{ title: string, text: Child, action: string, kind?: string }} options
 */
export async function confirm({ title, text, action, kind = 'danger' }) {
  return (
    (await dialog({ title, content: [text].flat().map(one => h('p', one)), action, kind, act: () => true })) === true
  )
}

// Copying.

/** @param {string} text */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  // Without TLS browsers offer only this.
  const field = h('textarea.visually-hidden', { readonly: true })
  field.value = text
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)
  ;(document.querySelector('dialog[open]') ?? document.body).append(field)
  field.select()
  const copied = document.execCommand('copy')
  field.remove()
  focused?.focus({ preventScroll: true })
  if (!copied) throw new Error('The browser does not allow copying. Select the text and copy it by hand.')
}

const glyph = () =>
  s(
    'svg',
    { class: 'glyph', viewBox: '0 0 16 16', 'aria-hidden': 'true' },
    s('path', { d: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3' })
  )

/**
 * A button that copies a text. `name` says what, for screen readers. Without a label it shows a picture.
 * @param {string} text
 * @param {string} label
 * @param {string} name
 */
export function copyButton(text, label = 'Copy', name = label) {
  const button = h(
    label ? 'button.small.copy' : 'button.icon.copy',
    {
      'aria-label': name,
      title: !label && name,
      onclick: () =>
        attempt(async () => {
          await copy(text)
          button.classList.add('copied')
          button.textContent = label ? 'Copied' : '✓'
          setTimeout(() => {
            button.classList.remove('copied')
            put(button, label || glyph())
          }, 1500)
        })
    },
    label || glyph()
  )
  return button
}

/**
 * An info hash, as a link if there is an address. A phone shows its ends; a tap on the button copies all of it.
 * @param {string} value
 * @param {string} [href]
 */
export function hash(value, href) {
  const text = [h('span.whole', value), h('span.ends', `${value.slice(0, 8)}…${value.slice(-6)}`)]
  return h('span.hash', href ? h('a', { href, title: value }, text) : text, copyButton(value, '', 'Copy info hash'))
}

/**
 * A QR code. Dark on light in both themes: many readers need that.
 * @param {string} text
 */
export function qr(text) {
  const code = /** @type {any} */ (generate)(text)
  let path = ''
  for (let y = 0; y < code.size; y++) {
    for (let x = 0; x < code.size; x++) if (code.get(x, y)) path += `M${x} ${y}h1v1h-1z`
  }
  return s(
    'svg',
    {
      class: 'qr',
      viewBox: `-4 -4 ${code.size + 8} ${code.size + 8}`,
      role: 'img',
      'aria-label': `QR code: ${text}`,
      'shape-rendering': 'crispEdges'
    },
    s('rect', { x: -4, y: -4, width: code.size + 8, height: code.size + 8, class: 'light' }),
    s('path', { d: path, class: 'dark' })
  )
}

/**
 * @param {string} title
 * @param {string} text
 */
const showQr = (title, text) => dialog({ title, content: [qr(text), h('code.secret', text)] })

/**
 * A URL or path that breaks between its parts only, never inside a word.
 * @param {string} url
 */
export const breakable = url => url.split(/(?<=\/)(?!\/)/).map(part => [h('span.unbroken', part), h('wbr')])

/**
 * Finished announce URLs, each with its protocol, Copy and QR.
 * @param {{ url: string, protocol?: string }[]} urls
 */
export function announceUrls(urls) {
  return h(
    'ul.urls',
    urls.map(({ url, protocol = url.split(':')[0] }) =>
      h(
        'li',
        h('span.tag', protocol),
        h('code', breakable(url)),
        h(
          'span.row',
          copyButton(url, 'Copy', `Copy ${url}`),
          button('QR', () => showQr('Announce URL', url), 'small', `QR code of ${url}`)
        )
      )
    )
  )
}

// Searching and paging.

const SEARCH_MS = 250

/**
 * A field that calls `onSearch` shortly after the last key, or at Enter.
 * @param {{ label: string, placeholder?: string, onSearch: (text: string) => void }} options
 */
export function searchBox({ label, placeholder, onSearch }) {
  /** @type {number | undefined} */
  let timer
  let last = ''
  const search = () => {
    clearTimeout(timer)
    const text = input.value.trim()
    if (text === last) return
    last = text
    onSearch(text)
  }
  const input = h('input', {
    type: 'search',
    'data-search': true,
    'aria-label': label,
    placeholder,
    size: 28,
    maxlength: 2000,
    spellcheck: 'false',
    autocomplete: 'off',
    oninput: () => {
      clearTimeout(timer)
      timer = setTimeout(search, SEARCH_MS)
    },
    onchange: search
  })
  return h(
    'form.search',
    {
      role: 'search',
      onsubmit: event => {
        event.preventDefault()
        search()
      }
    },
    input
  )
}

// Tables.

/**
 * Title, cell of a row, class, name to sort by, and which rows have a value: without any, the column is hidden.
 * @template [Row=any]
 * @typedef {[title: string, cell: (row: Row) => Child, kind?: string, sort?: string, has?: (row: Row) => boolean]} Column
 */
/**
 * @template [Row=any]
 * @typedef {object} TableOptions
 * @property {string} caption
 * @property {Column<Row>[]} columns
 * @property {(row: Row) => unknown} key
 * @property {string} [empty] shown instead of rows
 * @property {boolean} [cards] rows are cards on a phone
 * @property {(by: string) => void} [onSort]
 */

/**
 * A table whose rows are kept by key when it is updated: focus and selection stay. Nothing changes while text in
 * it is selected.
 * @template Row
 * @param {TableOptions<Row>} options
 */
export function liveTable({ caption, columns, key, empty = 'None.', cards = false, onSort }) {
  /** @type {Map<string, HTMLTableRowElement>} */
  const rows = new Map()
  /** @type {HTMLTableSectionElement} */
  const body = h('tbody')
  const nothing = h('p.empty', { hidden: true })
  /** @type {HTMLElement[]} */
  const heads = columns.map(([title, , kind, sort]) =>
    h(
      'th',
      { class: kind, scope: 'col' },
      sort && onSort
        ? button([title, h('span.order', { 'aria-hidden': 'true' })], () => onSort(sort))
        : title || unseen('Actions')
    )
  )
  const table = h(
    `table${cards ? '.cards' : ''}`,
    h('caption.visually-hidden', caption),
    h('thead', h('tr', heads)),
    body
  )
  const scroll = h('.scroll', { hidden: true }, table)

  return {
    element: h('.live', scroll, nothing),

    /**
     * Shows these rows, in this order.
     * @param {Row[]} list
     * @param {string} why there are none
     */
    update(list, why = empty) {
      const selection = getSelection()
      if (!selection.isCollapsed && body.contains(selection.anchorNode)) return
      const active = /** @type {HTMLElement | null} */ (document.activeElement)
      const focused = body.contains(active) ? active : null
      const gone = new Set(rows.keys())
      list.forEach((row, at) => {
        const name = String(key(row))
        gone.delete(name)
        const line =
          rows.get(name) ??
          h(
            'tr',
            columns.map(([title, , kind]) => h('td', { class: kind, 'data-label': title }))
          )
        rows.set(name, line)
        columns.forEach(([, cell], at) => {
          renew(line.cells[at], cell(row))
        })
        if (body.rows[at] !== line) body.insertBefore(line, body.rows[at] ?? null)
      })
      for (const name of gone) {
        rows.get(name).remove()
        rows.delete(name)
      }
      columns.forEach(([, , , , has], at) => {
        if (!has) return
        const isHidden = !list.some(has)
        heads[at].hidden = isHidden
        for (const line of rows.values()) line.cells[at].hidden = isHidden
      })
      // A row that moved has lost the focus.
      if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true })
      scroll.hidden = list.length === 0
      nothing.hidden = list.length > 0
      nothing.textContent = why
    },

    /**
     * Marks the column that the rows are sorted by.
     * @param {string} by
     * @param {string} order
     */
    sorted(by, order) {
      columns.forEach(([, , , sort], at) => {
        if (!sort) return
        const head = heads[at]
        head.ariaSort = sort === by ? `${order}ending` : null
        head.querySelector('.order').textContent = sort === by ? (order === 'asc' ? ' ▴' : ' ▾') : ''
      })
    }
  }
}

/**
 * @template [Row=any]
 * @typedef {{ rows: Row[], next?: string | null, total: number, about?: string }} TablePage
 */
/**
 * @template [Row=any]
 * @typedef {(at: { cursor: string | null, text: string }) => Promise<TablePage<Row> | undefined>} Loader
 */
/**
 * @template [Row=any]
 * @typedef {object} PagedOptions
 * @property {Child} [heading]
 * @property {Loader<Row>} load
 * @property {{ label: string, placeholder?: string }} search
 * @property {number} [every] milliseconds after which the page is loaded again
 * @property {() => boolean} isHere
 * @property {(text: string) => string} [noMatch]
 * @property {string} one names a row
 * @property {string} [many]
 */

/**
 * A table with search and pages.
 * @template Row
 * @param {PagedOptions<Row> & TableOptions<Row>} options
 */
export function pagedTable({ heading, load, search, every, isHere, noMatch, one, many = `${one}s`, ...options }) {
  const table = liveTable(options)
  const about = h('span.soft', { 'aria-live': 'polite' })
  let text = ''
  let wanted = 0
  // Cursor and number of the first row of this page, and before it those of the pages before.
  /** @typedef {[cursor: string | null, first: number]} Place */
  /** @type {Place[]} */
  let pages = [[null, 1]]
  /** @type {Place} */
  let after = [null, 1]
  const where = h('span.soft', { 'aria-live': 'polite' })
  const back = button('← Previous', () => {
    pages.pop()
    again()
  })
  const on = button('Next →', () => {
    pages.push(after)
    again()
  })
  const pager = h('.row.pager', { hidden: true }, back, on, where)
  const restart = () => {
    pages = [[null, 1]]
    return again()
  }

  async function again() {
    const own = ++wanted
    const [cursor, first] = pages.at(-1)
    let page
    try {
      page = await load({ cursor, text })
    } catch (problem) {
      if (own === wanted && isHere()) fail(problem)
      return
    }
    // A later request overtook this one, or the page was left.
    if (own !== wanted || !isHere() || !page) return
    const { rows, next, total } = page
    // The last row of a later page was removed.
    if (!rows.length && cursor) return restart()
    about.textContent =
      total === 0 ? '' : `${count(total)} ${total === 1 ? one : many}${text && ' found'}${page.about ?? ''}`
    table.update(rows, text ? (noMatch?.(text) ?? `Nothing matches “${text}”.`) : options.empty)
    after = [next, first + rows.length]
    back.disabled = !cursor
    on.disabled = !next
    pager.hidden = !cursor && !next
    where.textContent = rows.length ? `${count(first)}–${count(after[1] - 1)} of ${count(total)}` : ''
  }

  return {
    box: searchBox({
      ...search,
      onSearch: found => {
        text = found
        restart()
      }
    }),
    table,
    element: h('section.card', h('.top', heading, about), table.element, pager),
    again,
    restart,
    stop: every && repeat(again, every)
  }
}
