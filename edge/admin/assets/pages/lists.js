// @ts-check
// The access lists: info hashes added through the API, and how the lists of the configuration are.

import { api } from '../client.js'
import { attempt, breakable, button, dialog, hash, liveTable, pagedTable, say } from '../components.js'
import { h, put } from '../dom.js'
import { count, counted, span } from '../format.js'
import { fileButton, labelled } from '../forms.js'
import { understand } from './torrents.js'

const LISTS = {
  deny: ['Deny list', 'These torrents are refused.', ['open', 'allow', 'deny', 'both']],
  allow: ['Allow list', 'Only these torrents are served.', ['allow', 'both']]
}

/** Returns the list that decides at some listener: the allow list, or else the deny list, which always holds. */
async function listInForce(may) {
  if (!may('stats:read')) return 'deny'
  const { listeners } = await api.get('/status').catch(() => ({ listeners: [] }))
  return listeners.some(one => LISTS.allow[2].includes(one.mode)) ? 'allow' : 'deny'
}

/** @typedef {import('api').components['schemas']['ListStatus']} ListStatus */

/** @param {ListStatus} list */
const stateOf = list => {
  if (list.error) return [h('span.tag.bad', 'not refreshed'), ' ', h('span.soft', `${list.error}. ${list.remedy}`)]
  if (!list.is_used) return h('span.tag', 'not used')
  return list.copy_in_use ? h('span.tag', 'copy of an earlier run') : h('span.tag.good', 'in force')
}

/** Returns a table of the lists of the configuration, empty if there are none. */
async function configured() {
  /** @type {import('api').components['schemas']['Lists']} */
  const { lists: all } = await api.get('/lists')
  if (all.length === 0) return []
  const table = liveTable({
    caption: 'Lists of the configuration',
    key: list => `${list.key} ${list.source}`,
    cards: true,
    columns: [
      ['Key', list => h('span.mono', list.key)],
      ['File or URL', list => h('span.mono', breakable(list.source))],
      ['Entries', list => count(list.entries), 'num'],
      ['Age', list => (list.age_s == null ? '–' : span(list.age_s)), 'num'],
      ['State', stateOf]
    ]
  })
  table.update(all)
  return [h('section.card', h('.top', h('h2', 'Lists of the configuration')), table.element)]
}

export default async function lists(main, { may, rest: [path], isHere }) {
  const chosen = LISTS[path] ? path : await listInForce(may)
  if (!isHere()) return
  const [title, effect, modes] = LISTS[chosen]
  const writes = may('lists:write')
  const url = entry => `/lists/${chosen}/${entry}`
  const list = pagedTable({
    isHere,
    caption: title,
    heading: h('h2', title),
    one: 'entry',
    many: 'entries',
    key: ({ entry }) => entry,
    empty: 'No entries.',
    noMatch: text => `No entry begins with “${text}”.`,
    search: { label: 'Search by info hash, its beginning, or magnet link', placeholder: 'Info hash or magnet link' },
    load: async ({ cursor, text }) => {
      const { hash: whole, prefix, name } = understand(text)
      if (name) return { rows: [], next: null, total: 0 }
      const query = new URLSearchParams({ limit: '50' })
      // Of the hash of a v2 torrent, lists have the first 40 digits.
      if (whole || prefix) query.set('q', (whole ?? prefix).slice(0, 40))
      if (cursor) query.set('cursor', cursor)
      /** @type {import('api').components['schemas']['EntryPage']} */
      const page = await api.get(`/lists/${chosen}?${query}`)
      const files = new Map(page.files.map(({ info_hash: entry, file }) => [entry, file]))
      return {
        rows: page.entries.map(entry => ({ entry, file: files.get(entry) })),
        next: page.next,
        total: page.total
      }
    },
    columns: [
      ['Info hash', ({ entry }) => hash(entry, `#/torrent/${entry}`)],
      ['From', ({ file }) => file ?? 'API', 'wide'],
      [
        '',
        ({ entry, file }) =>
          writes && !file && button('Remove', () => remove(entry), 'small danger', `Remove ${entry}`),
        'actions'
      ]
    ]
  })

  async function remove(entry) {
    await attempt(() => api.delete(url(entry)), 'Entry removed.', {
      undo: () => api.put(url(entry)).then(list.again),
      undone: 'Entry added again.'
    })
    await list.again()
  }

  /** Adds or removes the entries of a text or a file. Undo is offered where it is exact. */
  async function edit(method, body) {
    const { requested, changed, total } = await api[method](`/lists/${chosen}`, body)
    const is = method === 'post' ? 'added' : 'removed'
    const before =
      requested > changed
        ? `, ${count(requested - changed)} ${method === 'post' ? 'were there before' : 'were not there'}`
        : ''
    const undo =
      changed > 0 &&
      changed === requested &&
      (() => api[method === 'post' ? 'delete' : 'post'](`/lists/${chosen}`, body).then(list.restart))
    say(
      `${counted(changed, 'entry', { many: 'entries' })} ${is}${before}. The list has ${count(total)} now.`,
      undo ? { undo } : {}
    )
    await list.restart()
  }

  function change(method, label) {
    const entries = h('textarea', {
      autofocus: true,
      required: true,
      spellcheck: 'false',
      placeholder: '0123456789abcdef0123456789abcdef01234567'
    })
    const act = () => edit(method, `${entries.value.trim()}\n`).then(() => true)
    return dialog({
      title: `${label}: ${title.toLowerCase()}`,
      wide: true,
      content: [
        labelled(
          'Info hashes, one per line',
          entries,
          '40 or 64 hex digits, then any note. # begins a comment. If one line is invalid, nothing is changed.'
        )
      ],
      action: label,
      kind: method === 'post' ? 'primary' : 'danger',
      act
    })
  }

  const notice = h('p.offline.warn', { hidden: true })
  const tab = (name, text) =>
    h('a', { href: `#/lists/${name}`, 'aria-current': name === chosen ? 'true' : undefined }, text)
  put(
    main,
    h('.head', h('h1', 'Access lists'), list.box),
    h(
      '.row.tools',
      h(
        'nav.choice',
        { 'aria-label': 'List' },
        Object.entries(LISTS).map(([name, [text]]) => tab(name, text))
      ),
      writes && [
        button('Add …', () => change('post', 'Add entries'), 'primary'),
        button('Remove several …', () => change('delete', 'Remove entries')),
        ...fileButton('Upload a file …', '.txt,text/plain', file => attempt(() => edit('post', file)))
      ],
      h('a.button', { href: `/api/v1/lists/${chosen}?format=text`, download: `tidegate-${chosen}.txt` }, 'Download')
    ),
    notice,
    h('p.hint', `${effect} Entries of list files are changed in the file.`),
    list.element,
    await configured()
  )
  if (may('config:read')) {
    api.get('/config').then(
      ({ settings }) => {
        const mode = settings.find(setting => setting.name === 'access.mode')?.value
        notice.hidden = modes.includes(mode)
        notice.textContent = `This list has no effect now, except on listeners with their own mode: access.mode is “${mode}”. Set it to ${modes.map(one => `“${one}”`).join(' or ')} under Configuration.`
      },
      () => {}
    )
  }
  await list.again()
  return list.stop
}
