// Live events, and the last lines of the log.

import { api, follow } from '../client.js'
import { h, put, toast } from '../dom.js'
import { clock } from '../format.js'

const KINDS = ['torrent_added', 'torrent_removed', 'completed', 'ban', 'key_first_used', 'reload', 'warning']
const LINES = 300

export default async function log (main, { may, isHere }) {
  const events = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Events' })
  const lines = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Log' })
  const level = h('input', { 'aria-label': 'Log levels', title: 'As in info,front=debug', size: '24', spellcheck: 'false' })
  const wanted = new Set(KINDS.slice(2))
  const kinds = KINDS.map(kind => h('label', { class: 'row' }, h('input', {
    type: 'checkbox',
    checked: wanted.has(kind),
    onchange: event => { event.target.checked ? wanted.add(kind) : wanted.delete(kind); listen() }
  }), kind.replaceAll('_', ' ')))
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Log')),
    h('div', { class: 'grid' },
      h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Events'), h('div', { class: 'row soft' }, kinds)), events),
      may('config:read') && h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Log lines'), h('div', { class: 'row' }, may('config:write') && h('label', { class: 'row soft' }, 'Log levels', level))), lines)))

  const add = (list, ...cells) => {
    list.prepend(h('div', {}, ...cells))
    while (list.children.length > LINES) list.lastChild.remove()
  }
  let stop = () => {}
  function listen () {
    stop()
    stop = wanted.size === 0 ? () => {} : follow(`/events?kinds=${[...wanted].join(',')}`, [...KINDS, 'missed'], (name, event) => {
      if (name === 'missed') return add(events, h('span', {}), h('span', { class: 'WARN' }, 'missed'), h('span', {}, `${event} events were dropped: too many at once`))
      add(events, h('span', { class: 'soft' }, clock(event.time)), h('span', {}, name.replaceAll('_', ' ')),
        h('span', {}, Object.entries(event.data).map(([key, value]) => `${key} ${value}`).join(' · ')))
    })
  }
  listen()
  if (events.children.length === 0) add(events, h('span', { class: 'soft' }, clock(Date.now() / 1000)), h('span', { class: 'soft' }, 'waiting for events'), h('span', {}))

  if (!may('config:read')) return () => stop()
  level.value = (await api.get('/log/level')).level
  level.addEventListener('change', async () => {
    try { await api.put('/log/level', { level: level.value }); toast(`Log levels set to ${level.value} until the next reload.`) } catch (problem) { toast(problem.message, true) }
  })
  let after = 0
  async function tail () {
    const { lines: fresh } = await api.get(`/log?after=${after}`).catch(() => ({ lines: [] }))
    if (!isHere()) return
    for (const line of fresh) {
      after = line.id
      add(lines, h('span', { class: 'soft' }, clock(line.time)), h('span', { class: line.level }, `${line.level} ${line.area}`), h('span', {}, line.message))
    }
  }
  await tail()
  const timer = setInterval(tail, 2000)
  return () => { stop(); clearInterval(timer) }
}
