// The access lists: info hashes added through the API.

import { api } from '../client.js'
import { field, h, put, table, toast } from '../dom.js'
import { count } from '../format.js'

export default async function lists (main, { may, isHere }) {
  let [list, cursor] = ['deny', null]
  const before = []
  const body = h('section', { class: 'card' })
  const entries = h('textarea', { 'aria-label': 'Info hashes', placeholder: '0123456789abcdef0123456789abcdef01234567', spellcheck: 'false' })
  const tabs = h('div', { class: 'choice', role: 'group', 'aria-label': 'List' }, ['deny', 'allow'].map(name => h('button', {
    'aria-pressed': String(name === list),
    onclick: event => {
      list = name
      for (const tab of tabs.children) tab.setAttribute('aria-pressed', String(tab === event.target))
      before.length = 0
      cursor = null
      load()
    }
  }, name === 'deny' ? 'Deny list' : 'Allow list')))
  const change = method => async () => {
    try {
      const outcome = await api[method](`/lists/${list}`, `${entries.value.trim()}\n`)
      entries.value = ''
      toast(`${count(outcome.changed)} of ${count(outcome.requested)} entries ${method === 'post' ? 'added' : 'removed'}.`)
      await load()
    } catch (problem) { toast(problem.message, true) }
  }
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Access lists'), tabs),
    may('lists:write') && h('section', { class: 'card' }, field('Info hashes, one per line', entries),
      h('div', { class: 'row' }, h('button', { class: 'primary', onclick: change('post') }, 'Add'), h('button', { class: 'danger', onclick: change('delete') }, 'Remove'))),
    h('p', { class: 'soft' }, 'Deny list: these torrents are refused where [access] mode is "deny" or "both". Allow list: only these are served where it is "allow" or "both". Entries of list files also count but are not shown here.'),
    body)

  async function load () {
    const query = new URLSearchParams({ limit: 100 })
    if (cursor) query.set('cursor', cursor)
    let page
    try { page = await api.get(`/lists/${list}?${query}`) } catch (problem) { return toast(problem.message, true) }
    if (!isHere()) return
    const next = page.next ?? null
    put(body, h('div', { class: 'top' }, h('h2', {}, list === 'deny' ? 'Deny list' : 'Allow list'), h('span', { class: 'soft' }, `${count(page.total)} entries`)),
      page.entries.length > 0
        ? table([
          ['Info hash', entry => h('a', { class: 'hash', href: `#/torrent/${entry}` }, entry)],
          ['', entry => may('lists:write') && h('button', {
            class: 'small danger',
            onclick: async () => { try { await api.delete(`/lists/${list}/${entry}`); await load() } catch (problem) { toast(problem.message, true) } }
          }, 'Remove'), 'actions']
        ], page.entries, 'Entries')
        : h('p', { class: 'empty' }, 'No entries.'),
      (before.length > 0 || next !== null) && h('div', { class: 'row turn' },
        h('button', { disabled: before.length === 0, onclick: () => { cursor = before.pop(); load() } }, '← Previous'),
        h('button', { disabled: next === null, onclick: () => { before.push(cursor); cursor = next; load() } }, 'Next →')))
  }
  await load()
}
