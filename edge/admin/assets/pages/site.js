// @ts-check
// The site whose users announce: what reaches it, and what waits.

import { api, repeat } from '../client.js'
import { card, facts, h, put, renew } from '../dom.js'
import { bytes, count, rate, span, time } from '../format.js'

const PERIOD_MS = 2000
const KINDS = { unit3d: 'UNIT3D', gazelle: 'Gazelle', feed: 'feed' }

/** @param {HTMLElement} main */
function none(main) {
  put(
    main,
    h('.head', h('h1', 'Site')),
    h(
      'section.card.lead',
      h('h2', 'This tracker accounts for no site'),
      h(
        'p',
        'A private site can learn what each user transferred of each torrent: from its own database, if it is UNIT3D or Gazelle, or from a feed.'
      ),
      h(
        'p.soft',
        'Set site.kind and restart. The chapter “Account for a private site” of the documentation has the steps.'
      )
    )
  )
}

export default async function site(main, { isHere }) {
  // Asked first, because a browser reports a refused request as an error.
  if (!(await api.get('/status')).site) return none(main)
  let stats = await api.get('/site')
  const state = h('span.tag')
  const lost = h('span.offline', { role: 'status', hidden: true }, 'Connection lost. Trying again…')
  const problems = h('ul.problems', { role: 'status' })
  const parts = { flow: h('div'), spool: h('div'), known: h('div') }
  put(main, h('.head', h('.row', h('h1', 'Site'), state), lost), problems)
  main.append(
    h(
      '.grid',
      card('span6', 'What users transferred', 'on its way to the site', parts.flow),
      card('span6', 'Spool', 'on the disk until the site has it', parts.spool),
      card('span12', 'Known', '', parts.known)
    )
  )

  function draw() {
    state.className = `tag ${stats.error ? 'bad' : 'good'}`
    state.textContent = stats.error ? 'waits' : (KINDS[stats.kind] ?? stats.kind)
    const since = stats.error_since ? ` (since ${time(stats.error_since)})` : ''
    renew(
      problems,
      stats.error && h('li.problem.error', h('span.mark', { 'aria-hidden': 'true' }), h('p', `${stats.error}${since}`))
    )
    renew(
      parts.flow,
      facts([
        ['Rows written', `${rate(stats.rows_per_s)}, ${count(stats.rows)} since the start`],
        ['Lag', span(stats.lag_s)],
        ['Announces counted', count(stats.announces)],
        ['Implausible reports', `${count(stats.implausible)}, kept out`],
        stats.lists_withheld > 0 && ['Peer lists withheld', `${count(stats.lists_withheld)}: too many for one user`],
        stats.probes && [
          'Clients probed',
          `${count(stats.probes.open)} accept connections, ${count(stats.probes.closed)} do not, ${count(stats.probes.skipped)} skipped`
        ],
        stats.uncounted > 0 && ['Not counted', `${count(stats.uncounted)}: too many sessions`],
        stats.rows_skipped > 0 && ['Rows skipped', `${count(stats.rows_skipped)}: user or torrent deleted`]
      ])
    )
    renew(
      parts.spool,
      facts([
        ['Batches that wait', count(stats.spool_batches)],
        ['Size', `${bytes(stats.spool_bytes)} of ${bytes(stats.spool_bytes_max)}`]
      ])
    )
    renew(
      parts.known,
      facts([
        stats.kind !== 'feed' && ['Users', count(stats.users)],
        stats.bad_passkeys > 0 && ['Cannot announce', `${count(stats.bad_passkeys)} users: form of the passkey`],
        ['Torrents', count(stats.torrents)],
        stats.duplicate_hashes > 0 && [
          'Not served',
          `${count(stats.duplicate_hashes)} torrents: another one has their hash`
        ],
        ['Sessions', `${count(stats.sessions)} clients of users in torrents, remembered for 21 days`]
      ])
    )
  }

  async function load() {
    let fresh
    try {
      fresh = await api.get('/site')
    } catch (problem) {
      if (isHere()) lost.hidden = problem.status !== 0
      return
    }
    if (!isHere()) return
    lost.hidden = true
    stats = fresh
    draw()
  }
  draw()
  return repeat(load, PERIOD_MS)
}
