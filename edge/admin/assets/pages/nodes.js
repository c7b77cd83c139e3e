// @ts-check
// The cluster as this node sees it.

import { bars } from '../charts.js'
import { api, repeat } from '../client.js'
import { attempt, button, confirm, liveTable } from '../components.js'
import { card, facts, h, put, renew } from '../dom.js'
import { bytes, count, day, rate, short, span, time } from '../format.js'

const PERIOD_MS = 2000

const words = label => label.replaceAll('_', ' ')
const seconds = value =>
  value < 0.0005 ? '0' : value < 10 ? `${Number(value.toFixed(value < 1 ? 3 : 1))} s` : span(value)
const offset = value => (Math.abs(value) < 0.0005 ? '0' : `${value > 0 ? '+' : '−'}${seconds(Math.abs(value))}`)

function none(main) {
  put(
    main,
    h('.head', h('h1', 'Nodes')),
    h(
      'section.card.lead',
      h('h2', 'This tracker is not part of a cluster'),
      h(
        'p',
        'Several tidegates can be one tracker: a client of any node is given the peers of all nodes, and any node may fail. The nodes hear each other through NATS.'
      ),
      h(
        'p.soft',
        'To set one up, run `tidegate cluster init`. The chapter “Run several nodes as one tracker” of the documentation has the steps.'
      )
    )
  )
}

export default async function nodes(main, { may, isHere }) {
  // Asked first, because a browser reports a refused request as an error.
  if (!(await api.get('/status')).cluster) return none(main)
  let cluster = await api.get('/cluster')
  const state = h('span.tag')
  const lost = h('span.offline', { role: 'status', hidden: true }, 'Connection lost. Trying again…')
  const summary = h('p.summary')
  const problems = h('ul.problems', { role: 'status' })
  const body = h('.grid')

  const act = (path, done) => async () => {
    if (await attempt(() => api.post(path), done)) await load()
  }
  const ignore = one => async () => {
    const yes = await confirm({
      title: `Ignore node ${one.node}?`,
      text: 'Every node drops what it sends, its peers included, until you undo this. Use it for a node that is compromised or sends nonsense; to stop a node, stop its process.',
      action: 'Ignore'
    })
    if (yes) await act(`/cluster/nodes/${one.node}/ignore`, `Node ${one.node} is ignored.`)()
  }
  const action = one => {
    if (!may('config:write') || one.node === cluster.node) return null
    return one.ignored
      ? button(
          'Heed',
          act(`/cluster/nodes/${one.node}/heed`, `Node ${one.node} is heard again.`),
          'small',
          `Heed node ${one.node}`
        )
      : button('Ignore', ignore(one), 'small danger', `Ignore node ${one.node}`)
  }
  const isOwn = one => one.node === cluster.node
  const heard = one => isOwn(one) || one.state === 'alive'
  const figure = show => one => (heard(one) ? show(one) : '–')
  const other = show => one => (isOwn(one) || one.state === 'left' ? '' : show(one))

  function stateOf(one) {
    if (one.ignored) return h('span.tag.bad', 'ignored')
    if (isOwn(one)) return h('span.tag', 'this node')
    const isGood = one.state === 'alive' && one.warm
    const text = one.state === 'alive' && !one.warm ? 'warming up' : words(one.state)
    return h(
      'span',
      { class: `tag ${isGood ? 'good' : one.state === 'left' ? '' : 'bad'}` },
      text,
      one.state !== 'alive' && h('span.wide', `, ${span(one.heartbeat_age_s)}`)
    )
  }

  const nodeTable = liveTable({
    caption: 'Nodes',
    key: one => one.node,
    cards: true,
    empty: 'No node has been heard yet.',
    columns: [
      ['Node', one => String(one.node), 'num'],
      ['State', stateOf],
      ['Zone', one => one.zone || '–'],
      ['Version', one => one.version, 'wide'],
      ['Up for', figure(one => span(Date.now() / 1000 - one.started)), 'num wide'],
      ['Peers', figure(one => short(one.peers)), 'num'],
      ['Announces', figure(one => rate(one.announces_s)), 'num wide'],
      ['Lag here', other(one => seconds(one.lag_s)), 'num'],
      ['Lag there', other(figure(one => seconds(one.their_lag_s))), 'num wide'],
      ['Behind', other(one => short(one.behind_blocks)), 'num wide'],
      ['Clock', figure(one => offset(one.clock_offset_s)), 'num wide'],
      ['Queue', figure(one => bytes(one.queue_bytes)), 'num wide'],
      [
        'Records',
        other(figure(one => (one.differing.length === 0 ? 'equal' : `differ: ${one.differing.map(words).join(', ')}`))),
        'wide'
      ],
      ['', action, 'actions']
    ]
  })

  function streamHealth(one) {
    const [text, kind] = !cluster.connection.server
      ? ['not known', '']
      : !one.has_leader
        ? ['no leader', 'bad']
        : one.replicas_current < one.replicas
          ? ['few copies', 'warn']
          : ['stores', 'good']
    return h('span', { class: `tag ${kind}` }, text)
  }

  const streamTable = liveTable({
    caption: 'Streams',
    key: one => one.name,
    cards: true,
    empty: 'Not known yet.',
    columns: [
      ['Stream', one => h('span.mono', one.name)],
      ['State', streamHealth],
      ['Copies', one => `${one.replicas_current} of ${one.replicas}`, 'num'],
      ['Messages', one => short(one.messages), 'num wide'],
      ['Size', one => (one.bytes_max > 0 ? `${bytes(one.bytes)} of ${bytes(one.bytes_max)}` : bytes(one.bytes)), 'num'],
      ['As of', one => `${span(one.age_s)} ago`, 'num wide']
    ]
  })

  function own() {
    const { connection, queue, traffic, records } = cluster
    return facts([
      [
        'NATS server',
        connection.server ? `${connection.server}, for ${span(connection.age_s)}` : `none for ${span(connection.age_s)}`
      ],
      ['Reconnections', count(connection.reconnects)],
      [
        'Warm',
        connection.warm ? `yes, after ${seconds(connection.warm_s)}` : `not yet, for ${seconds(connection.warm_s)}`
      ],
      ['Log', words(queue.log)],
      [
        'Not stored',
        `${count(queue.unstored_blocks)} blocks, ${bytes(queue.unstored_bytes)} of ${bytes(queue.bytes_max)}${queue.unstored_s > 1 ? `, since ${span(queue.unstored_s)}` : ''}`
      ],
      queue.dirty_s > 0 && [
        'Dropped from the queue',
        `changes of the last ${span(queue.dirty_s)}; a walk makes up for them`
      ],
      ['To be read', `${count(queue.log_behind)} messages`],
      ['Published again', `${count(queue.retries)} ×, ${count(queue.walks)} walks`],
      ['Blocks sent', bytes(traffic.bytes.sent ?? 0)],
      ['Blocks received', bytes(traffic.bytes.received ?? 0)],
      [
        'Letters',
        Object.entries(traffic.letters)
          .flatMap(([direction, results]) =>
            Object.entries(results)
              .filter(([, number]) => number > 0)
              .map(([result, number]) => `${direction}: ${words(result)} ${count(number)}`)
          )
          .join(' · ') || 'none'
      ],
      [
        'Records',
        `${count(records.sent)} messages sent, ${count(records.received)} received, ${count(records.merged)} rows merged`
      ],
      ['Records fetched', `${count(records.repairs)} ×, because they differed`]
    ])
  }

  function events() {
    if (cluster.events.length === 0) return h('p.empty', 'None yet.')
    return h(
      'ol.happened',
      cluster.events.map(event =>
        h('li', h('time', { title: time(event.time) }, day(event.time)), h('span', event.text))
      )
    )
  }

  const parts = { nodes: h('span.soft'), own: h('div'), drops: h('div'), events: h('div') }
  put(main, h('.head', h('.row', h('h1', 'Nodes'), state), lost), summary, problems, body)
  put(
    body,
    card('span12', 'All nodes', parts.nodes, nodeTable.element),
    card('span12', 'Streams', 'of JetStream, as this node knows them', streamTable.element),
    card('span12', `This node (${cluster.node})`, 'since its start', parts.own),
    card('span6', 'Dropped messages', '', parts.drops),
    card('span6', 'Last events', '', parts.events)
  )

  function draw() {
    const isGood = cluster.problems.length === 0
    state.className = `tag ${isGood ? 'good' : cluster.state === 'linked' ? 'warn' : 'bad'}`
    state.textContent = words(cluster.state)
    summary.textContent = `Node ${cluster.node} of cluster ${cluster.name}. ${cluster.summary}`
    renew(
      problems,
      cluster.problems.map(({ text }) => h('li.problem.error', h('span.mark', { 'aria-hidden': 'true' }), h('p', text)))
    )
    parts.nodes.textContent = `${count(cluster.nodes.length)} known`
    nodeTable.update(cluster.nodes)
    streamTable.update(cluster.streams)
    const drops = Object.entries(cluster.traffic.drops)
      .filter(([, number]) => number > 0)
      .sort((a, b) => b[1] - a[1])
    renew(parts.own, own())
    renew(
      parts.drops,
      bars(
        drops.map(([reason, number]) => [words(reason), number]),
        count,
        'No message was dropped.'
      )
    )
    renew(parts.events, events())
  }

  async function load() {
    let fresh
    try {
      fresh = await api.get('/cluster')
    } catch (problem) {
      if (isHere()) lost.hidden = problem.status !== 0
      return
    }
    if (!isHere()) return
    lost.hidden = true
    cluster = fresh
    draw()
  }
  draw()
  return repeat(load, PERIOD_MS)
}
