// @ts-check
// The peers at an address, with their torrents: who it is, and what an operator can do about it.

import { api, repeat } from '../client.js'
import { attempt, button, confirm, fail, hash, liveTable, searchBox } from '../components.js'
import { h, put } from '../dom.js'
import { counted, silence } from '../format.js'
import { ban } from './access.js'
import { isAddress, ROLES } from './torrents.js'

const REFRESH_MS = 5000

/** @typedef {import('api').components['schemas']['TorrentPeer']} TorrentPeer */

export default async function peers(main, { may, rest, isHere }) {
  const address = decodeURIComponent(rest[0] ?? '')
  const about = h('span.soft', { 'aria-live': 'polite' })
  const actions = h('.row.tools')
  /** @type {import('../components.js').Column<TorrentPeer>[]} */
  const columns = [
    ['Torrent', one => hash(one.info_hash, `#/torrent/${one.info_hash}`)],
    ['Address', one => h('span.mono', one.peer.address ?? 'WebTorrent')],
    ['Role', one => ROLES[one.peer.role] ?? String(one.peer.role)],
    ['Silent for', one => silence(one.peer.age_s), 'num'],
    ['Peer id', one => h('span.mono', one.peer.id ?? ''), 'wide', undefined, one => Boolean(one.peer.id)]
  ]
  const table = liveTable({
    caption: 'Peers',
    cards: true,
    key: one => `${one.info_hash} ${one.peer.address} ${one.peer.id}`,
    empty: address ? `No peer at ${address} at present.` : 'Search for an IP address, without a port.',
    columns
  })
  const box = searchBox({
    label: 'Search by IP address',
    placeholder: 'IP address',
    onSearch: text => {
      if (isAddress(text)) location.hash = `#/peers/${text}`
      else if (text) fail(new Error(`Expected an IP address without a port, found “${text}”.`))
    }
  })

  async function load() {
    let found
    try {
      found = await api.get(`/peers?${new URLSearchParams({ address })}`)
    } catch (problem) {
      if (isHere()) fail(problem)
      return
    }
    if (!isHere()) return
    about.textContent = counted(found.peers.length, 'peer')
    table.update(found.peers)
  }

  async function remove() {
    const go = await confirm({
      title: `Remove all peers at ${address}?`,
      text: 'They come back with their next announces. To keep them away, ban the address.',
      action: 'Remove'
    })
    if (!go) return
    await attempt(
      () => api.delete(`/peers?${new URLSearchParams({ address })}`),
      ({ removed }) => `${counted(removed, 'peer')} removed.`
    )
    await load()
  }

  put(
    main,
    h('.head', h('h1', address ? `Peers at ${address}` : 'Peers'), box),
    actions,
    h('section.card', h('.top', h('h2', 'Peers'), about), table.element)
  )
  table.update([])
  if (!address) return
  put(
    actions,
    may('bans:write') && button('Ban …', () => ban(address, load), 'danger', `Ban ${address} …`),
    may('peers:write') && button('Remove …', remove, 'danger', `Remove all peers at ${address} …`)
  )
  await load()
  return repeat(load, REFRESH_MS)
}
