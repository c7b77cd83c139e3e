// @ts-check
// The list of torrents, and the page of one torrent.

import { bars, charts, named } from '../charts.js'
import { api, repeat } from '../client.js'
import { attempt, button, confirm, dialog, fail, hash, liveTable, pagedTable, say } from '../components.js'
import { card, facts, h, put, renew } from '../dom.js'
import { bytes, count, counted, part, silence, span } from '../format.js'
import { textField } from '../forms.js'

const REFRESH_MS = 5000
// A row of a torrent's history has five minutes.
const HISTORY_MS = 60_000
// The tracker knows the age of a torrent to 1024 s: the first announce was up to that much later than stated.
const AGE_STEP_S = 1024

/** Returns the age of a torrent, as far as it is known. */
export function age(seconds) {
  if (seconds <= AGE_STEP_S) return '< 17 min'
  return seconds < 8 * AGE_STEP_S ? `~ ${span(seconds)}` : span(seconds)
}

const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567'

function base32(text) {
  let bits = ''
  for (const letter of text.toLowerCase()) bits += BASE32.indexOf(letter).toString(2).padStart(5, '0')
  return bits
    .match(/.{8}/g)
    .map(byte => parseInt(byte, 2).toString(16).padStart(2, '0'))
    .join('')
}

/**
 * A search: a whole info hash, the beginning of one, an IP address, a name, or nothing.
 * @typedef {{ hash?: string, prefix?: string, address?: string, name?: string }} Wanted
 */

/**
 * Returns true for an IP address, whose details the API checks.
 * @param {string} text
 */
export const isAddress = text => /^(\d{1,3}(\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*)$/i.test(text)

/**
 * Reads a search. Takes magnet links, too.
 * @param {string} text
 * @returns {Wanted}
 */
export function understand(text) {
  const words = text.trim()
  const id = words.match(/urn:bt(?:ih:([0-9a-f]{40}|[a-z2-7]{32})|mh:1220([0-9a-f]{64}))(?![0-9a-z])/i)
  const whole = (id ? (id[1] ?? id[2]) : words).toLowerCase()
  if (/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(whole)) return { hash: whole }
  if (/^[a-z2-7]{32}$/.test(whole)) return { hash: base32(whole) }
  if (isAddress(whole)) return { address: whole }
  if (/^[0-9a-f]{1,39}$/.test(whole)) return { prefix: whole }
  return words ? { name: words } : {}
}

const title = torrent => torrent.name && h('.name', torrent.name)

export async function torrents(main, { may, isHere }) {
  let [sort, order] = ['seeders', 'desc']
  /** @type {Wanted} */
  let wanted = {}
  const list = pagedTable({
    isHere,
    caption: 'Torrents',
    one: 'torrent',
    key: torrent => torrent.info_hash,
    empty: 'No torrents yet. They appear when the first client announces.',
    every: REFRESH_MS,
    search: {
      label: 'Search by info hash, its beginning, magnet link, name, or the IP address of a peer',
      placeholder: 'Info hash, magnet link, name or IP address'
    },
    noMatch: text =>
      wanted.name
        ? `No torrent named “${text}”. The tracker knows names of torrents from .torrent files only.`
        : `No torrent whose info hash begins with ${text}.`,
    onSort: by => {
      order = by === sort && order === 'desc' ? 'asc' : 'desc'
      sort = by
      list.table.sorted(sort, order)
      list.restart()
    },
    columns: [
      ['Torrent', torrent => [title(torrent), hash(torrent.info_hash, `#/torrent/${torrent.info_hash}`)]],
      [
        'Size',
        torrent => (torrent.size == null ? '' : bytes(torrent.size)),
        'num wide',
        undefined,
        torrent => torrent.size != null
      ],
      ['Seeders', torrent => count(torrent.seeders), 'num', 'seeders'],
      ['Leechers', torrent => count(torrent.leechers), 'num', 'leechers'],
      ['Downloads', torrent => count(torrent.downloads), 'num wide', 'downloads'],
      ['Age', torrent => age(torrent.age_s), 'num wide', 'age']
    ],
    load: async ({ cursor, text }) => {
      wanted = understand(text)
      if (wanted.hash) {
        location.hash = `#/torrent/${wanted.hash}`
        return
      }
      if (wanted.address && may('peers:read')) {
        location.hash = `#/peers/${wanted.address}`
        return
      }
      const query = new URLSearchParams({ sort, order, limit: '50' })
      if (wanted.prefix) query.set('filter', wanted.prefix)
      if (wanted.name) query.set('name', wanted.name)
      if (cursor) query.set('cursor', cursor)
      /** @type {import('api').components['schemas']['TorrentPage']} */
      const page = await api.get(`/torrents?${query}`)
      const omitted = page.omitted > 0 ? `, ${count(page.omitted)} with few peers not listed` : ''
      return {
        rows: page.torrents,
        next: page.next,
        total: page.total,
        about: `${omitted}, as of ${span(page.age_s ?? 0)} ago`
      }
    }
  })
  put(main, h('.head', h('h1', 'Torrents'), list.box), list.element)
  list.table.sorted(sort, order)
  await list.again()
  return list.stop
}

const FAMILIES = [
  ['v4', 'IPv4'],
  ['v6', 'IPv6'],
  ['web', 'WebTorrent']
]
export const ROLES = { seeder: 'seeder', leecher: 'leecher', partial_seed: 'partial seed' }

/** Bars for counts: `rows` are [name, count]. */
function shares(heading, rows, note) {
  const all = rows.reduce((sum, [, value]) => sum + value, 0)
  return card(
    'span4',
    heading,
    note,
    bars(
      rows.filter(row => row[1] > 0),
      value => `${count(value)} · ${part(value / all)}`,
      'Not known.'
    )
  )
}

function ageBars(ages) {
  return ages.map(({ up_to_s: end, peers }, at) => {
    const from = at === 0 ? 0 : ages[at - 1].up_to_s
    return [
      end == null ? `over ${span(from)}` : at === 0 ? `up to ${span(end)}` : `${span(from)} to ${span(end)}`,
      peers
    ]
  })
}

const STATES = { served: 'served', denied: 'denied', not_allowed: 'not allowed', frozen: 'frozen', refused: 'refused' }
const CREDENTIALS = { key: 'clients with a key', token: 'clients with a token' }

/** Returns a sentence: how announces of a torrent end at some listeners, and why. */
function wayText({ state, reason, list, line, needs, listeners }) {
  const file = `${list}${line ? `, line ${line}` : ''}`
  const texts = {
    served: `Served${needs ? ` to ${CREDENTIALS[needs]}` : ''}`,
    denied: `Denied: on the deny list (${list === 'api' ? 'added by dashboard or API' : file})`,
    not_allowed: 'Not allowed: not on the allow list',
    frozen: 'Frozen',
    refused: `Refused: “${reason}”`
  }
  return `${texts[state]}${listeners ? ` at ${listeners.join(', ')}` : ''}.`
}

/** Returns a tag for all listeners together: its text and its class. */
function summary(ways) {
  const served = ways.filter(way => way.state === 'served')
  if (served.length < ways.length && served.length > 0) return ['served by some listeners', 'tag warn']
  if (served.length > 0) return ['served', 'tag good']
  const states = [...new Set(ways.map(way => STATES[way.state]))]
  return [states.join(', '), 'tag bad']
}

export async function torrent(main, { rest: [id], may, isHere }) {
  const terms = h('')
  const state = h('span.tag')
  const ways = h('')
  const actions = h('.row')
  const name = h('h1', 'Torrent')
  const breakdown = h('.grid.span12')
  const shown = h('span.soft')
  /** The address without its port. */
  const ipOf = peer => peer.address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
  const address = peer => {
    if (!peer.address) return h('span.mono', 'WebTorrent')
    const text = h('span.mono', peer.address)
    return may('peers:read') ? h('a', { href: `#/peers/${ipOf(peer)}` }, text) : text
  }
  const banAt = async peer => (await import('./access.js')).ban(ipOf(peer), load)
  const peers = liveTable({
    caption: 'Peers',
    key: peer => `${peer.address ?? ''} ${peer.id ?? ''} ${peer.place}`,
    empty: 'No peers.',
    columns: [
      ['Address', peer => address(peer)],
      ['Role', peer => ROLES[peer.role] ?? String(peer.role)],
      ['Silent for', peer => silence(peer.age_s), 'num'],
      ['Peer id', peer => h('span.mono', peer.id ?? ''), 'wide', undefined, peer => Boolean(peer.id)],
      [
        '',
        peer => may('bans:write') && peer.address && button('Ban …', () => banAt(peer), 'small', `Ban ${ipOf(peer)} …`),
        'actions',
        undefined,
        peer => may('bans:write') && Boolean(peer.address)
      ]
    ]
  })
  const past = charts([
    {
      title: 'Peers',
      note: 'of 90 days, from when the torrent was first looked at here',
      series: [
        ['seeders', row => row.seeders],
        ['leechers', row => row.leechers]
      ],
      format: count,
      whole: true
    },
    { title: 'Downloads', note: 'so far', series: [['downloads', row => row.downloads]], format: count, whole: true }
  ])
  const body = h(
    '.grid',
    h('section.card.span12', h('.top', hash(id), state), ways, terms, actions),
    breakdown,
    h('.span12', past.elements),
    card('span12', 'Peers', shown, peers.element)
  )
  const missing = h('section.card', { hidden: true })
  put(main, h('.head', name, h('a.button', { href: '#/torrents' }, '← All torrents')), missing, body)

  const path = `/torrents/${id}`
  const deny = `/lists/deny/${id}`
  const allow = `/lists/allow/${id}`
  const change = (act, done, options) => async () => {
    if (await attempt(act, done, options)) await load()
  }
  const unfreeze = () => api.delete(`${path}/freeze`)
  const freeze = () => api.put(`${path}/freeze`)
  const refuse = async () => {
    const reason = textField('reason', 'Reason', {
      required: true,
      maxlength: 200,
      hint: 'Clients show it as the error of the tracker. It holds at all listeners until you serve the torrent again.'
    })
    const refused = await dialog({
      title: 'Refuse this torrent with a reason',
      content: reason.element,
      action: 'Refuse',
      act: async () => {
        await api.put(`${path}/access`, { reason: reason.value() })
        return true
      }
    })
    if (!refused) return
    say('Refused: clients show the reason.')
    await load()
  }
  const reasonButton = access => {
    const refused = access.find(way => way.state === 'refused')
    if (!refused) return button('Refuse with a reason …', refuse)
    const again = () => api.put(`${path}/access`, { reason: refused.reason }).then(load)
    return button(
      'Serve again',
      change(() => api.delete(`${path}/access`), 'Served again.', { undo: again })
    )
  }
  const isDeniedByApi = access => access.some(way => way.list === 'api')
  // A list file is changed where it is.
  const listButtons = access => [
    isDeniedByApi(access)
      ? button(
          'Remove from deny list',
          change(() => api.delete(deny), 'Removed from the deny list.', { undo: () => api.put(deny).then(load) })
        )
      : access.some(way => way.state !== 'denied') &&
        h(
          'button',
          {
            title: 'Refuse this torrent for good',
            onclick: change(() => api.put(deny), 'Added to the deny list.', {
              undo: () => api.delete(deny).then(load),
              undone: 'Removed from the deny list.'
            })
          },
          'Add to deny list'
        ),
    access.some(way => way.state === 'not_allowed') &&
      button(
        'Add to allow list',
        change(() => api.put(allow), 'Added to the allow list.', { undo: () => api.delete(allow).then(load) })
      )
  ]
  const buttons = ({ frozen, access }) => [
    may('torrents:write') &&
      (frozen
        ? button(
            'Unfreeze',
            change(unfreeze, 'Unfrozen: announces are accepted again.', { undo: () => freeze().then(load) })
          )
        : h(
            'button',
            {
              title: 'Refuse announces, keep the torrent and its peers',
              onclick: change(freeze, 'Frozen: announces are refused.', { undo: () => unfreeze().then(load) })
            },
            'Freeze'
          )),
    may('torrents:write') && reasonButton(access),
    may('lists:write') && listButtons(access),
    may('torrents:write') &&
      button(
        'Remove',
        async () => {
          const go = await confirm({
            title: 'Remove this torrent and its peers?',
            text: [
              'Its peers and counts go at once, and this cannot be undone. It comes back with the next announce of a client; its peers return within one announce interval.',
              'To keep it away, add it to the deny list or freeze it.'
            ],
            action: 'Remove'
          })
          if (go && (await attempt(() => api.delete(path), 'Torrent removed.'))) location.hash = '#/torrents'
        },
        'danger'
      )
  ]

  let shownActions
  async function load() {
    let one
    try {
      one = await api.get(path)
    } catch (problem) {
      if (!isHere()) return
      if (problem.status !== 404 && problem.status !== 400) return fail(problem)
      const { access } = problem.status === 404 ? await api.get(`${path}/access`) : { access: [] }
      if (!isHere()) return
      body.hidden = true
      missing.hidden = false
      return put(
        missing,
        hash(id),
        h(
          'p.empty',
          problem.status === 404
            ? 'This torrent has no peers at present. It appears here when a client announces it.'
            : problem.message
        ),
        access.map(way => h('p', wayText(way))),
        h('.row', may('torrents:write') && reasonButton(access), may('lists:write') && listButtons(access))
      )
    }
    if (!isHere()) return
    body.hidden = false
    missing.hidden = true
    if (one.name) name.textContent = one.name
    ;[state.textContent, state.className] = summary(one.access)
    const isPlain = one.access.every(way => way.state === 'served' && !way.needs)
    renew(ways, isPlain ? [] : one.access.map(way => h('p.soft', wayText(way))))
    renew(
      terms,
      facts([
        one.size != null && ['Size', bytes(one.size)],
        ['Seeders', count(one.seeders)],
        [
          'Leechers',
          one.partial_seeds > 0
            ? `${count(one.leechers)}, of them ${counted(one.partial_seeds, 'partial seed')}`
            : count(one.leechers)
        ],
        ['Downloads', count(one.downloads)],
        ['First seen', `${age(one.age_s)} ago`],
        ...FAMILIES.filter(([family]) => one[family] && one[family].seeders + one[family].leechers > 0).map(
          ([family, text]) => [
            text,
            `${counted(one[family].seeders, 'seeder')}, ${counted(one[family].leechers, 'leecher')}`
          ]
        )
      ])
    )
    const wanted = JSON.stringify([one.frozen, one.access])
    if (shownActions !== wanted) put(actions, buttons(one))
    shownActions = wanted
    const { counted: looked, clients, ages, networks } = one.breakdown
    const total = one.seeders + one.leechers
    const known = clients.reduce((sum, client) => sum + client.peers, 0)
    breakdown.hidden = total === 0
    renew(
      breakdown,
      shares(
        'Clients',
        clients.map(client => [client.name ?? 'other', client.peers]),
        known > 0 && known < total && `known of ${counted(known, 'peer')}`
      ),
      shares('Last announce', ageBars(ages), looked < total && `of ${counted(looked, 'peer')} looked at`),
      shares(
        'Networks',
        networks.map(({ network, peers }) => [network, peers]),
        looked < total && 'most peers first'
      )
    )
    shown.textContent = one.peers.length < total ? `${count(one.peers.length)} of ${count(total)}` : count(total)
    peers.update(one.peers.map((peer, place) => ({ ...peer, place: peer.address ? '' : place })))
  }
  async function loadHistory() {
    const { fields, rows } = await api.get(`${path}/history?span=90d`)
    if (!isHere()) return
    const shown = rows.map(row => named(fields, row))
    past.show(shown, [])
  }
  const refreshHistory = () => attempt(loadHistory)
  await load()
  await refreshHistory()
  const stops = [repeat(load, REFRESH_MS), repeat(refreshHistory, HISTORY_MS)]
  return () => {
    for (const stop of stops) stop()
    past.free()
  }
}
