// Live statistics with charts.

import { api, follow } from '../client.js'
import { bars, chart } from '../charts.js'
import { h, put } from '../dom.js'
import { bits, bytes, count, micros, part, rate, short, span } from '../format.js'

const SECONDS = 600
const MINUTES = 1440

// The journal's state, how much of it there is, and what there is to know besides.
function journal ({ journal, round_age_s: age, disk_bytes: size, restored }) {
  if (journal === 'off') return ['off', 'nothing on disk', 'Swarms are lost when the tracker ends: set state.dir']
  return [journal, `${bytes(size)} on disk`, `The last complete round began ${span(age)} ago; ${short(restored)} peers were restored at the start`]
}

export default async function overview (main, { may, isHere }) {
  const stat = (label) => {
    const value = h('div', { class: 'value' }, '–')
    const note = h('div', { class: 'note' })
    const element = h('div', { class: 'card stat' }, h('div', { class: 'label' }, label), value, note)
    return { element, set (text, more = '', all = more) { value.textContent = text; note.textContent = more; note.title = all } }
  }
  const stats = Object.fromEntries(['Requests', 'Torrents', 'Peers', 'Downloads', 'Latency', 'Memory', 'Journal'].map(label => [label, stat(label)]))
  const charts = [
    chart('Requests by protocol', ['udp', 'http', 'https', 'ws', 'wss'].map(name => [name, sample => sample[`${name}_s`]]), rate, { stacked: true }),
    chart('Server latency', [['p50', sample => sample.p50_us], ['p99', sample => sample.p99_us]], micros),
    chart('Peers', [['seeders', sample => sample.seeders], ['leechers', sample => sample.leechers]], short, { stacked: true }),
    chart('Torrents', [['torrents', sample => sample.torrents]], short),
    chart('Refused and dropped requests', [['refused', sample => sample.refusals_s], ['dropped', sample => sample.drops_s]], rate),
    chart('Payload traffic', [['sent', sample => sample.bytes_out_s], ['received', sample => sample.bytes_in_s]], bits)
  ]
  const panels = Object.fromEntries(['Top torrents', 'Client software', 'Dropped', 'Refused'].map(title => [title, h('div', {})]))
  const panel = title => h('section', { class: 'card span6' }, h('div', { class: 'top' }, h('h2', {}, title)), panels[title])
  const state = h('span', { class: 'offline', role: 'status', hidden: true }, 'Connection lost. Reconnecting…')
  const since = h('span', { class: 'soft' })
  let isDay = false
  const choose = (label, day) => h('button', {
    'aria-pressed': String(day === isDay),
    onclick: event => {
      isDay = day
      for (const button of event.target.parentElement.children) button.setAttribute('aria-pressed', String(button === event.target))
      draw()
    }
  }, label)
  const memoryOnly = h('p', { class: 'offline', hidden: true },
    'Records are in memory only: keys, lists, bans, tokens, counters and swarms are lost when the tracker ends. Set [state] dir to keep them.')
  api.get('/stats').then(({ records }) => { memoryOnly.hidden = records.durable }, () => {})
  put(main,
    h('div', { class: 'head' }, h('h1', {}, 'Overview'),
      h('div', { class: 'row' }, state, since, h('div', { class: 'choice', role: 'group', 'aria-label': 'Time range' }, choose('10 min', false), choose('24 h', true)))),
    memoryOnly,
    h('div', { class: 'stats' }, Object.values(stats).map(one => one.element)),
    h('div', { class: 'grid' },
      ...charts.map(({ element }) => { element.classList.add('span6'); return element }),
      ...Object.keys(panels).map(panel)))

  let [fields, seconds, minutes] = [[], [], []]
  const named = row => Object.fromEntries(fields.map((name, at) => [name, row[at]]))
  const draw = () => charts.forEach(one => one.show(isDay ? minutes : seconds))

  function latest (sample) {
    const requests = sample.udp_s + sample.http_s + sample.https_s + sample.ws_s + sample.wss_s
    stats.Requests.set(rate(requests), `${short(sample.connections)} open connections`)
    stats.Torrents.set(count(sample.torrents))
    stats.Peers.set(count(sample.seeders + sample.leechers), `${short(sample.seeders)} seeders, ${short(sample.leechers)} leechers`)
    stats.Latency.set(micros(sample.p99_us), 'p99 of responses')
    stats.Memory.set(bytes(sample.memory), `CPU: ${part(sample.cpu)} of a core`)
  }

  const stop = follow('/stats/stream', ['history', 'sample', 'details'], (name, data) => {
    if (name === 'history') {
      fields = data.fields
      seconds = data.seconds.map(named)
      minutes = data.minutes.map(named)
      if (seconds.length > 0) latest(seconds.at(-1))
    } else if (name === 'sample') {
      const sample = named(data)
      seconds = [...seconds, sample].slice(-SECONDS)
      if (sample.time % 60 === 0) minutes = [...minutes, sample].slice(-MINUTES)
      latest(sample)
    } else {
      const sorted = pairs => Object.entries(pairs).sort((a, b) => b[1] - a[1]).slice(0, 8)
      stats.Downloads.set(count(data.downloads), 'since the start')
      stats.Journal.set(...journal(data.swarms))
      since.textContent = `up for ${span(data.uptime_s)} · ${count(data.keys)} keys · ${count(data.bans)} bans`
      put(panels['Dropped'], bars(sorted(data.drops), rate, 'None.'))
      put(panels.Refused, bars(sorted(data.refusals), rate, 'None.'))
      put(panels['Client software'], bars(sorted(data.clients).filter(([, share]) => share > 0), part, 'No announces yet.'))
      return
    }
    draw()
  }, isConnected => { state.hidden = isConnected })

  async function top () {
    if (!may('torrents:read')) return put(panels['Top torrents'], h('p', { class: 'empty' }, 'This token lacks the scope torrents:read.'))
    const page = await api.get('/torrents?sort=seeders&limit=8').catch(() => null)
    if (!page || !isHere()) return
    const row = torrent => h('div', { class: 'bar' },
      h('a', { class: 'hash name', href: `#/torrent/${torrent.info_hash}` }, torrent.info_hash),
      h('span', { class: 'num' }, `${short(torrent.seeders)} ↑ ${short(torrent.leechers)} ↓`))
    put(panels['Top torrents'], page.torrents.length > 0
      ? h('div', { class: 'bars' }, page.torrents.map(row))
      : h('p', { class: 'empty' }, 'No torrents yet.'))
  }
  top()
  const timer = setInterval(top, 10_000)
  return () => { stop(); clearInterval(timer) }
}
