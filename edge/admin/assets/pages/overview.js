// @ts-check
// How the tracker is: what is wrong and what to do, figures, charts, and where the load comes from.

import { bars, charts, isFailure, named } from '../charts.js'
import { api, follow, repeat, store, stored } from '../client.js'
import { announceUrls, breakable, button, hash } from '../components.js'
import { card, h, put, renew, unseen } from '../dom.js'
import { bits, bytes, count, counted, day, micros, part, rate, short, span } from '../format.js'
import { names } from '../names.js'

const STATUS_MS = 10_000
// The stream has a sample each second.
const SILENCE_MAX_S = 5
const TOP_MS = 15_000
const HISTORY_MS = 300_000
const SCALES = [
  ['linear', 'Linear'],
  ['clip', 'Cut off spikes'],
  ['log', 'Logarithmic']
]
const known = value => (value > 0 ? value : null)

/** Buttons of which one is pressed; `options` are [value, label]. */
function choice(label, options, chosen, choose) {
  const press = chosen =>
    options.forEach(([value], at) => {
      group.children[at].ariaPressed = value === chosen
    })
  const group = h(
    '.choice',
    { role: 'group', 'aria-label': label },
    options.map(([value, text]) =>
      button(text, () => {
        press(value)
        choose(value)
      })
    )
  )
  press(chosen)
  return group
}

// The status strip.

const HEADLINES = { ok: 'All is well', info: 'All is well', warning: 'Needs attention', error: 'Something is wrong' }

/** Text with commands between backticks. */
const marked = text => text.split('`').map((words, at) => (at % 2 === 1 ? h('code', words) : words))

function problem({ level, area, text, remedy }, mayUpgrade) {
  return h(
    'li',
    { class: `problem ${level}` },
    h('span.mark', { 'aria-hidden': 'true' }),
    h('div', h('p', unseen(`${level}, ${area}: `), marked(text)), remedy && h('p.soft', marked(remedy))),
    area === 'upgrade' && mayUpgrade && h('a.button.small', { href: '#/settings/upgrade' }, 'Upgrade …')
  )
}

// Engines that serve where nothing else was set.
const USUAL_ENGINES = ['mmsg', 'portable']

/** Listeners that differ in nothing but their addresses, and protocols that share addresses, together. */
function grouped(listeners) {
  const notesOf = one => [
    ...(one.engine && !USUAL_ENGINES.includes(one.engine) ? [one.engine] : []),
    ...(one.private ? ['private'] : []),
    ...(one.mode === 'open' ? [] : [`${one.mode} list`])
  ]
  const groups = []
  for (const one of listeners) {
    const notes = notesOf(one)
    const known = groups.find(group => group.protocols[0] === one.protocol && String(group.notes) === String(notes))
    if (known) known.addresses.push(one.address)
    else groups.push({ protocols: [one.protocol], addresses: [one.address], notes })
  }
  const merged = []
  for (const group of groups) {
    const known = merged.find(
      other => String(other.addresses) === String(group.addresses) && String(other.notes) === String(group.notes)
    )
    if (known) known.protocols.push(...group.protocols)
    else merged.push(group)
  }
  return merged
}

function facts({
  version,
  upgrade_pending: isPending,
  uptime_s: uptime,
  records,
  swarms,
  cluster,
  certificates,
  listeners
}) {
  const first = [...certificates].sort((a, b) => a.days_left - b.days_left)[0]
  return h(
    'dl.status-facts',
    [
      ['Version', `${version}${isPending ? ', upgrade pending' : ''}`],
      ['Up for', span(uptime)],
      [
        'Records',
        records.failing
          ? 'cannot be written'
          : records.durable
            ? ['in ', breakable(records.directory)]
            : 'in memory only'
      ],
      ['Journal of swarms', swarms.journal === 'off' ? 'off' : `${swarms.journal}, ${bytes(swarms.disk_bytes)}`],
      cluster && ['Cluster', `node ${cluster.node}, ${cluster.heard} of ${cluster.others} others heard`],
      first && [
        'Certificates',
        first.days_left < 0 ? `${first.name} has expired` : `${counted(first.days_left, 'day')} left`
      ]
    ].map(fact => fact && h('div', h('dt', fact[0]), h('dd', fact[1]))),
    h(
      '.listeners',
      h('dt', 'Listeners'),
      h(
        'dd',
        listeners.length === 0
          ? 'none'
          : grouped(listeners).map(({ protocols, addresses, notes }) =>
              h(
                'span.chip',
                h('b', protocols.join(', ').toUpperCase()),
                h('span.mono', addresses.join(', ')),
                notes.map(text => h('span.soft', text))
              )
            )
      )
    )
  )
}

function urls(list) {
  if (list.length === 0) return h('p.empty', 'No listener for announces is open. Set [[listen]] in the configuration.')
  const rows = list.map(({ url, protocol, private: isPrivate }) => ({
    url: isPrivate ? `${url.replace(/\/$/, '')}/KEY` : url,
    protocol
  }))
  // One of each protocol says it; the others are those of further addresses.
  const first = rows.filter((row, at) => rows.findIndex(other => other.protocol === row.protocol) === at)
  const others = rows.filter(row => !first.includes(row))
  return [
    announceUrls(first),
    others.length > 0 &&
      h(
        'details.more',
        h('summary', `${count(others.length)} at ${others.length === 1 ? 'another address' : 'other addresses'}`),
        announceUrls(others)
      ),
    list.some(one => one.private) && h('p.hint', 'Instead of KEY, each user has a key of their own: see User keys.')
  ]
}

function strip(mayUpgrade) {
  const state = h('.state')
  const list = h('ul.problems')
  const body = h('div')
  const where = h('div')
  const element = h(
    'section.status',
    { 'data-level': 'info', 'aria-label': 'Status' },
    h('.card', h('div', { role: 'status' }, state, list), body),
    h('.card', h('.top', h('h2', 'Announce URLs')), where)
  )
  const say = (level, headline, health) => {
    element.dataset.level = level
    renew(state, h('span.mark', { 'aria-hidden': 'true' }), h('strong', headline))
    renew(
      list,
      health.map(one => problem(one, mayUpgrade))
    )
  }
  say('info', 'Asking…', [])
  let shown
  return {
    element,
    show(status) {
      say(status.level, HEADLINES[status.level], status.health)
      renew(body, facts(status))
      // What is open or was copied stays so.
      const text = JSON.stringify(status.announce_urls)
      if (text !== shown) put(where, urls(status.announce_urls))
      shown = text
    },
    lost(since) {
      say('error', 'No response from tidegate', [
        {
          level: 'error',
          area: 'connection',
          text: `Nothing has been heard since ${day(since)}. The figures below are from then.`,
          remedy:
            'This page keeps trying. Check that the process runs (systemctl status tidegate), and the network to it.'
        }
      ])
    }
  }
}

const services = list =>
  list.length === 0
    ? h('p.empty', 'Nothing was measured yet.')
    : h(
        'ul.bars',
        list.map(one =>
          h(
            'li.bar',
            h('span.name', one.service),
            h(
              'span.num',
              [
                `${span(one.interval_s)}${one.is_interval_max ? ' (longest)' : ''}`,
                rate(one.announces_per_s),
                bytes(one.bytes_today),
                one.is_over_budget ? h('strong', short(one.over_budget)) : short(one.over_budget)
              ].flatMap((cell, at) => (at === 0 ? [cell] : [', ', cell]))
            )
          )
        )
      )

// Figures.

function figures(protocols) {
  const labels = ['Requests', 'Response time', 'Peers', 'Torrents', 'Sent', 'CPU']
  const cells = Object.fromEntries(labels.map(label => [label, { value: h('dd.value', '–'), note: h('dd.note') }]))
  const element = h(
    'dl.stats',
    labels.map(label => h('.card.stat', h('dt', label), cells[label].value, cells[label].note))
  )
  const set = (label, value, note) => {
    cells[label].value.textContent = value
    cells[label].note.textContent = note
  }
  let downloads = ''
  return {
    element,
    sample(now) {
      set(
        'Requests',
        rate(protocols.reduce((sum, { name }) => sum + now[`${name}_s`], 0)),
        counted(now.connections, 'open connection', { form: short })
      )
      set(
        'Response time',
        micros(now.p99_us),
        now.p50_us > 0 ? `p99; p50 ${micros(now.p50_us)}` : 'p99; no requests now'
      )
      set(
        'Peers',
        count(now.seeders + now.leechers),
        `${counted(now.seeders, 'seeder', { form: short })}, ${counted(now.leechers, 'leecher', { form: short })}`
      )
      set('Torrents', count(now.torrents), downloads)
      set('Sent', bits(now.bytes_out_s), `${bits(now.bytes_in_s)} received`)
      set('CPU', part(now.cpu), `of one core; ${bytes(now.memory)} of memory`)
    },
    details(now) {
      downloads = counted(now.downloads, 'download')
    }
  }
}

const definitions = word => [
  {
    title: 'Requests',
    note: 'per second, stacked',
    series: word.lists.protocols.map(({ name, title }) => [title, row => row[`${name}_s`]]),
    format: rate,
    stacked: true
  },
  {
    title: 'Response time',
    note: 'without the network',
    series: [
      ['p50', row => known(row.p50_us)],
      ['p99', row => known(row.p99_us)]
    ],
    format: micros
  },
  {
    title: 'Peers',
    note: 'stacked',
    series: [
      ['Seeders', row => row.seeders],
      ['Leechers', row => row.leechers]
    ],
    format: short,
    stacked: true,
    whole: true
  },
  {
    title: 'Refused and dropped',
    note: 'per second',
    series: [
      ['Refused', row => row.refusals_s],
      ['Dropped', row => row.drops_s]
    ],
    format: rate
  },
  {
    title: 'Traffic',
    note: 'payload',
    series: [
      ['Sent', row => row.bytes_out_s],
      ['Received', row => row.bytes_in_s]
    ],
    format: bits
  },
  { title: 'Torrents', series: [['Torrents', row => row.torrents]], format: short, whole: true },
  { title: 'CPU', note: 'of one core', series: [['CPU', row => row.cpu]], format: part },
  {
    title: 'Open connections',
    note: 'HTTP and WebTorrent',
    series: [['Connections', row => row.connections]],
    format: short,
    whole: true
  }
]

const sorted = (counts, limit = 8) =>
  Object.entries(counts)
    .filter(([, value]) => value > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, limit)

export default async function overview(main, { may, isHere }) {
  const word = await names()
  const spans = word.lists.spans.map(({ name, title }) => [name, title])
  let range = stored('span')
  if (!spans.some(([name]) => name === range)) range = spans[0][0]
  let scale = stored('scale') ?? 'linear'
  let [fields, rows, annotations, stepS, lengthS] = [[], [], [], 10, 3600]

  const status = strip(may('config:write'))
  const figure = figures(word.lists.protocols)
  const group = charts(definitions(word))
  const panel = (title, note) => {
    const body = h('')
    return { body, element: card('', title, note, body) }
  }
  const spanText = () => spans.find(([name]) => name === range)[1]
  const spanNotes = [h('span.soft'), h('span.soft')]
  const panels = {
    torrents: panel('Largest torrents', 'seeders, leechers'),
    services: panel('Services', 'interval, announces, bytes today, over budget'),
    refused: panel('Refused, by reason', spanNotes[0]),
    dropped: panel('Dropped, by reason', spanNotes[1]),
    networks: panel('Networks that announce most', 'share of announces'),
    clients: panel('Client software', 'share of announces'),
    happened: panel('What happened')
  }

  put(
    main,
    h('h1.visually-hidden', 'Overview'),
    status.element,
    figure.element,
    h(
      '.controls',
      choice('Time range', spans, range, name => {
        range = name
        store('span', name)
        history()
      }),
      choice('Scale', SCALES, scale, name => {
        scale = name
        store('scale', name)
        group.scale(name)
      }),
      choice(
        'Form',
        [
          [false, 'Charts'],
          [true, 'Table']
        ],
        false,
        group.table
      )
    ),
    group.elements,
    h(
      '.panels',
      Object.values(panels).map(one => one.element)
    )
  )
  group.scale(scale)

  function draw() {
    const from = Date.now() / 1000 - lengthS
    rows = rows.filter(row => row.time >= from)
    if (!document.hidden) group.show(rows, annotations)
  }

  function notes() {
    renew(
      panels.happened.body,
      annotations.length === 0
        ? h('p.empty', `No start, reload, upgrade or failure in the last ${spanText()}.`)
        : h(
            'ol.happened',
            annotations
              .slice(-12)
              .reverse()
              .map(one =>
                h('li', { class: isFailure(one.kind) && 'bad' }, h('time', day(one.time)), h('span', one.text))
              )
          )
    )
  }

  const reasons = (list, counts) =>
    sorted(counts).map(([name, number]) => {
      const { title, text } = word(list, name)
      return [title, number, text]
    })

  async function history() {
    const wanted = range
    const past = await api.get(`/stats/history?span=${wanted}`).catch(() => null)
    if (!past || !isHere() || wanted !== range) return
    fields = past.fields
    stepS = past.step_s
    lengthS = past.to - past.from
    rows = past.rows.map(row => named(fields, row))
    annotations = past.annotations
    for (const note of spanNotes) note.textContent = `over ${spanText()}`
    renew(panels.refused.body, bars(reasons('refusals', past.refusals), count, 'No request was refused.'))
    renew(panels.dropped.body, bars(reasons('drops', past.drops), count, 'Nothing was dropped.'))
    notes()
    draw()
  }

  // Live samples continue the chart: means of as many as make a row.
  let recent = []
  function append(sample) {
    recent.push(sample)
    if (recent.length < stepS && rows.length) return
    const mean = Object.fromEntries(
      fields.map(name => [name, recent.reduce((sum, one) => sum + one[name], 0) / recent.length])
    )
    mean.time = sample.time
    rows.push(mean)
    recent = []
    draw()
  }

  let heard = Date.now() / 1000
  let isLost = false
  const found = () => {
    if (isLost) {
      isLost = false
      history()
      ask()
    }
  }
  const lost = () => {
    isLost = true
    status.lost(heard)
  }
  const stop = follow(
    '/stats/stream',
    ['history', 'sample', 'details', 'annotation'],
    (name, data) => {
      heard = Date.now() / 1000
      found()
      if (name === 'history') {
        fields = data.fields
        if (data.seconds.length) figure.sample(named(fields, data.seconds.at(-1)))
      } else if (name === 'sample') {
        const sample = named(fields, data)
        figure.sample(sample)
        append(sample)
      } else if (name === 'annotation') {
        annotations = [...annotations, data]
        notes()
        draw()
      } else {
        figure.details(data)
        renew(
          panels.clients.body,
          bars(
            sorted(data.clients).map(([client, share]) => [client === 'other' ? 'Other' : client, share]),
            part,
            'No announces yet.'
          )
        )
        renew(
          panels.networks.body,
          bars(
            sorted(data.networks).map(([network, share]) => [
              h(
                'span.mono',
                network,
                may('bans:write') && button('Ban …', () => ban(network), 'small', `Ban ${network} …`)
              ),
              share
            ]),
            part,
            'No announces yet.'
          )
        )
      }
    },
    isConnected => {
      if (isConnected) found()
      else lost()
    }
  )
  // A tracker that hangs keeps its connections.
  const watch = () => {
    if (!isLost && Date.now() / 1000 - heard > SILENCE_MAX_S) lost()
  }

  async function ask() {
    const now = await api.get('/status').catch(() => null)
    if (!now || !isHere() || isLost) return
    status.show(now)
    renew(panels.services.body, services(now.load?.services ?? []))
  }

  const ban = async network => (await import('./access.js')).ban(network)

  async function top() {
    if (!may('torrents:read'))
      return put(panels.torrents.body, h('p.empty', 'This token lacks the scope torrents:read.'))
    const page = await api.get('/torrents?sort=seeders&limit=8').catch(() => null)
    if (!page || !isHere()) return
    renew(
      panels.torrents.body,
      page.torrents.length === 0
        ? h('p.empty', 'No torrents yet. Put an announce URL from above into a torrent.')
        : h(
            'ul.bars',
            page.torrents.map(one =>
              h(
                'li.bar',
                one.name
                  ? h('a.name', { href: `#/torrent/${one.info_hash}`, title: one.info_hash }, one.name)
                  : h('span.name', hash(one.info_hash, `#/torrent/${one.info_hash}`)),
                h('span.num', `${short(one.seeders)} / ${short(one.leechers)}`)
              )
            )
          )
    )
  }

  const stops = [
    stop,
    group.free,
    repeat(watch, 1000),
    repeat(ask, STATUS_MS),
    repeat(top, TOP_MS),
    repeat(history, HISTORY_MS)
  ]
  const visible = () => {
    if (!document.hidden) history()
  }
  document.addEventListener('visibilitychange', visible)
  await Promise.all([ask(), history(), top()])
  return () => {
    for (const stop of stops) stop()
    document.removeEventListener('visibilitychange', visible)
  }
}
