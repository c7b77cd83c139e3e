// The list of torrents, and the page of one torrent.

import { api } from '../client.js'
import { confirm, h, put, table, toast } from '../dom.js'
import { count, span } from '../format.js'

const SORTS = [['seeders', 'Seeders'], ['leechers', 'Leechers'], ['downloads', 'Downloads'], ['age', 'Age']]

export async function torrents (main, { isHere }) {
  let [sort, order, filter] = ['seeders', 'desc', '']
  const before = []
  let cursor = null
  const body = h('div', {})
  const about = h('span', { class: 'soft' })
  const search = h('input', { type: 'search', placeholder: 'Info hash or prefix', 'aria-label': 'Info hash or prefix', maxlength: 64, size: 34, spellcheck: 'false' })
  const find = h('form', {
    class: 'row',
    onsubmit: event => {
      event.preventDefault()
      filter = search.value.trim().toLowerCase()
      if (/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(filter)) location.hash = `#/torrent/${filter}`
      else again()
    }
  }, search, h('button', {}, 'Search'))
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Torrents'), find), h('section', { class: 'card' }, h('div', { class: 'top' }, about), body))

  const again = () => { before.length = 0; cursor = null; return load() }
  const turnTo = by => { order = by === sort && order === 'desc' ? 'asc' : 'desc'; sort = by; again() }

  async function load () {
    const query = new URLSearchParams({ sort, order, limit: 50 })
    if (filter) query.set('filter', filter)
    if (cursor) query.set('cursor', cursor)
    let page
    try { page = await api.get(`/torrents?${query}`) } catch (problem) { return toast(problem.message, true) }
    if (!isHere()) return
    about.textContent = `${count(page.total)} torrents${filter ? ` with info hashes that begin with ${filter}` : ''}, as of ${span(page.age_s ?? 0)} ago`
    const columns = [
      ['Info hash', torrent => h('a', { class: 'hash', href: `#/torrent/${torrent.info_hash}` }, torrent.info_hash)],
      ['Seeders', torrent => count(torrent.seeders), 'num'],
      ['Leechers', torrent => count(torrent.leechers), 'num'],
      ['Downloads', torrent => count(torrent.downloads), 'num'],
      ['Age', torrent => span(torrent.age_s), 'num wide']
    ]
    const listed = table(columns, page.torrents, 'Torrents')
    listed.querySelectorAll('th').forEach((head, at) => {
      const by = SORTS[at - 1]?.[0]
      if (!by) return
      if (by === sort) head.setAttribute('aria-sort', order === 'asc' ? 'ascending' : 'descending')
      put(head, h('button', { onclick: () => turnTo(by) }, head.textContent, by === sort ? (order === 'asc' ? ' ▴' : ' ▾') : ''))
    })
    const next = page.next ?? null
    put(body, page.torrents.length > 0 ? listed : h('p', { class: 'empty' }, 'No torrents.'),
      h('div', { class: 'row turn' },
        h('button', { disabled: before.length === 0, onclick: () => { cursor = before.pop(); load() } }, '← Previous'),
        h('button', { disabled: next === null, onclick: () => { before.push(cursor); cursor = next; load() } }, 'Next →')))
  }
  await load()
  // The server refreshes the list every few seconds.
  const timer = setInterval(() => { if (!document.hidden) load() }, 5000)
  return () => clearInterval(timer)
}

export async function torrent (main, { rest: [hash], may, isHere }) {
  const head = h('div', { class: 'head' }, h('h1', {}, 'Torrent'), h('a', { class: 'button', href: '#/torrents' }, '← All torrents'))
  const body = h('div', { class: 'grid' })
  put(main, head, body)

  async function load () {
    let one
    try { one = await api.get(`/torrents/${hash}`) } catch (problem) {
      return put(body, h('section', { class: 'card span12' }, h('p', { class: 'hash' }, hash), h('p', { class: 'empty' }, problem.message)))
    }
    if (!isHere()) return
    const change = (act, done) => async () => {
      try { await act(); toast(done); await load() } catch (problem) { toast(problem.message, true) }
    }
    const path = `/torrents/${one.info_hash}`
    const actions = may('torrents:write')
      ? h('div', { class: 'row' },
        one.frozen
          ? h('button', { onclick: change(() => api.delete(`${path}/freeze`), 'Unfrozen: announces are accepted again.') }, 'Unfreeze')
          : h('button', { onclick: change(() => api.put(`${path}/freeze`), 'Frozen: announces are refused.') }, 'Freeze'),
        may('lists:write') && h('button', { onclick: change(() => api.put(`/lists/deny/${one.info_hash}`), 'Added to the deny list.') }, 'Add to deny list'),
        h('button', {
          class: 'danger',
          onclick: async () => {
            if (await confirm('Remove this torrent and its peers? It comes back when a client announces it again. To keep it away, add it to the deny list.', 'Remove')) {
              await change(() => api.delete(path), 'Torrent removed.')()
            }
          }
        }, 'Remove'))
      : null
    const counts = ['v4', 'v6', 'web'].filter(family => one[family])
    put(body,
      h('section', { class: 'card span12' },
        h('div', { class: 'top' }, h('span', { class: 'hash' }, one.info_hash), one.frozen ? h('span', { class: 'tag bad' }, 'frozen') : h('span', { class: 'tag good' }, 'served')),
        h('dl', { class: 'facts' },
          h('dt', {}, 'Seeders'), h('dd', {}, count(one.seeders)),
          h('dt', {}, 'Leechers'), h('dd', {}, count(one.leechers)),
          h('dt', {}, 'Downloads'), h('dd', {}, count(one.downloads)),
          h('dt', {}, 'First seen'), h('dd', {}, `${span(one.age_s)} ago`),
          counts.map(family => [h('dt', {}, { v4: 'IPv4', v6: 'IPv6', web: 'WebTorrent' }[family]), h('dd', {}, `${count(one[family].seeders)} seeders, ${count(one[family].leechers)} leechers`)]).flat()),
        actions),
      h('section', { class: 'card span12' },
        h('div', { class: 'top' }, h('h2', {}, 'Peers'), h('span', { class: 'soft' }, `${count(one.peers.length)} shown`)),
        one.peers.length > 0
          ? table([
            ['Address', peer => h('span', { class: 'mono' }, peer.address ?? 'WebTorrent')],
            ['Role', peer => String(peer.role).replace('_', ' ')],
            ['Last announce', peer => `${span(peer.age_s)} ago`, 'num'],
            ...(one.peers.some(peer => peer.id) ? [['Peer id', peer => h('span', { class: 'mono' }, peer.id ?? ''), 'wide']] : [])
          ], one.peers, 'Peers')
          : h('p', { class: 'empty' }, 'No peers.')))
  }
  await load()
}
