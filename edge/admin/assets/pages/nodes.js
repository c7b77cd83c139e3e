// The cluster as this node sees it.

import { api } from '../client.js'
import { bars } from '../charts.js'
import { attempt, confirm, liveTable } from '../components.js'
import { h, put } from '../dom.js'
import { bytes, count, day, rate, short, span, time } from '../format.js'

const PERIOD_MS = 2000

const words = label => label.replaceAll('_', ' ')
const seconds = value => value < 0.0005 ? '0' : value < 10 ? `${Number(value.toFixed(value < 1 ? 3 : 1))} s` : span(value)
const offset = value => Math.abs(value) < 0.0005 ? '0' : `${value > 0 ? '+' : '−'}${seconds(Math.abs(value))}`
const card = (title, note, ...content) => h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, title), note && h('span', { class: 'soft' }, note)), ...content)
const facts = pairs => h('dl', { class: 'facts' }, pairs.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]))

function none (main) {
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Nodes')),
    h('section', { class: 'card lead' },
      h('h2', {}, 'This tracker is not part of a cluster'),
      h('p', {}, 'Several tidegates can be one tracker: a client of any node is given the peers of all nodes, and any node may fail. The nodes hear each other through NATS.'),
      h('p', { class: 'soft' }, 'To set one up, give each node a section [cluster] with a number of its own. The chapter “Run a cluster” of the documentation has the steps.')))
}

export default async function nodes (main, { may, isHere }) {
  // Asked first, because a browser reports a refused request as an error.
  if (!(await api.get('/status')).cluster) return none(main)
  let cluster = await api.get('/cluster')
  const state = h('span', { class: 'tag' })
  const lost = h('span', { class: 'offline', role: 'status', hidden: true }, 'Connection lost. Trying again…')
  const summary = h('p', { class: 'summary' })
  const problems = h('ul', { class: 'problems', role: 'status', 'aria-live': 'polite' })
  const body = h('div', { class: 'grid' })

  const act = (path, done) => async () => { if (await attempt(() => api.post(path), done)) await load() }
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
      ? h('button', { class: 'small', type: 'button', 'aria-label': `Heed node ${one.node}`, onclick: act(`/cluster/nodes/${one.node}/heed`, `Node ${one.node} is heard again.`) }, 'Heed')
      : h('button', { class: 'small danger', type: 'button', 'aria-label': `Ignore node ${one.node}`, onclick: ignore(one) }, 'Ignore')
  }
  const isOwn = one => one.node === cluster.node
  const heard = one => isOwn(one) || one.state === 'alive'
  const figure = show => one => heard(one) ? show(one) : '–'
  const other = show => one => isOwn(one) || one.state === 'left' ? '' : show(one)

  function stateOf (one) {
    if (one.ignored) return h('span', { class: 'tag bad' }, 'ignored')
    if (isOwn(one)) return h('span', { class: 'tag' }, 'this node')
    const isGood = one.state === 'alive' && one.warm
    const text = one.state === 'alive' && !one.warm ? 'warming up' : words(one.state)
    return h('span', { class: `tag ${isGood ? 'good' : one.state === 'left' ? '' : 'bad'}` }, text,
      one.state !== 'alive' && h('span', { class: 'wide' }, `, ${span(one.heartbeat_age_s)}`))
  }

  const nodeTable = liveTable({
    caption: 'Nodes',
    key: one => one.node,
    cards: true,
    empty: 'No node has been heard yet.',
    columns: [
      { title: 'Node', cell: one => String(one.node), kind: 'num' },
      { title: 'State', cell: stateOf },
      { title: 'Zone', cell: one => one.zone || '–' },
      { title: 'Version', cell: one => one.version, kind: 'wide' },
      { title: 'Up for', cell: figure(one => span(Date.now() / 1000 - one.started)), kind: 'num wide' },
      { title: 'Peers', cell: figure(one => short(one.peers)), kind: 'num' },
      { title: 'Announces', cell: figure(one => rate(one.announces_s)), kind: 'num wide' },
      { title: 'Lag here', cell: other(one => seconds(one.lag_s)), kind: 'num' },
      { title: 'Lag there', cell: other(figure(one => seconds(one.their_lag_s))), kind: 'num wide' },
      { title: 'Behind', cell: other(one => short(one.behind_blocks)), kind: 'num wide' },
      { title: 'Clock', cell: other(one => offset(one.clock_offset_s)), kind: 'num wide' },
      { title: 'Queue', cell: figure(one => bytes(one.queue_bytes)), kind: 'num wide' },
      { title: '', cell: action, kind: 'actions' }
    ]
  })

  function streamHealth (one) {
    const [text, kind] = !cluster.connection.server
      ? ['not known', '']
      : !one.found ? ['missing', 'bad'] : !one.has_leader ? ['no leader', 'bad'] : one.replicas_current < one.replicas ? ['few copies', 'warn'] : ['stores', 'good']
    return h('span', { class: `tag ${kind}` }, text)
  }

  const streamTable = liveTable({
    caption: 'Streams',
    key: one => one.name,
    cards: true,
    empty: 'Not known yet.',
    columns: [
      { title: 'Stream', cell: one => h('span', { class: 'mono' }, one.name) },
      { title: 'State', cell: streamHealth },
      { title: 'Copies', cell: one => `${one.replicas_current} of ${one.replicas}`, kind: 'num' },
      { title: 'Messages', cell: one => short(one.messages), kind: 'num wide' },
      { title: 'Size', cell: one => one.bytes_max > 0 ? `${bytes(one.bytes)} of ${bytes(one.bytes_max)}` : bytes(one.bytes), kind: 'num' },
      { title: 'As of', cell: one => `${span(one.age_s)} ago`, kind: 'num wide' }
    ]
  })

  function own () {
    const { connection, queue, traffic, records } = cluster
    const pairs = [
      ['NATS server', connection.server ? `${connection.server}, for ${span(connection.age_s)}` : `none for ${span(connection.age_s)}`],
      ['Reconnected', `${count(connection.reconnects)} times`],
      ['Warm', connection.warm ? `yes, after ${seconds(connection.warm_s)}` : `not yet, for ${seconds(connection.warm_s)}`],
      ['Log', words(queue.log)],
      ['Not stored', `${count(queue.unstored_blocks)} blocks, ${bytes(queue.unstored_bytes)} of ${bytes(queue.bytes_max)}${queue.unstored_s > 1 ? `, since ${span(queue.unstored_s)}` : ''}`],
      ...(queue.dirty_s > 0 ? [['Dropped from the queue', `changes of the last ${span(queue.dirty_s)}; a walk makes up for them`]] : []),
      ['To be read', `${count(queue.log_behind)} messages`],
      ['Published again', `${count(queue.go_backs)} times, ${count(queue.walks)} walks`],
      ['Missing in the log', `${count(queue.missing_blocks)} blocks of other nodes`],
      ['Blocks sent', bytes(traffic.bytes.sent ?? 0)],
      ['Blocks received', bytes(traffic.bytes.received ?? 0)],
      ['Letters', Object.entries(traffic.letters).flatMap(([direction, results]) => Object.entries(results).filter(([, number]) => number > 0).map(([result, number]) => `${direction}: ${words(result)} ${count(number)}`)).join(' · ') || 'none'],
      ['Records', `${count(records.sent)} changes sent, ${count(records.applied)} applied, ${bytes(records.outbox_bytes)} wait to be sent, ${count(records.behind)} to be read`],
      ['Records complete', records.resyncing ? 'being fetched from a neighbour' : records.may_differ ? `no, ${count(records.missing)} changes are missing` : 'yes']
    ]
    return facts(pairs)
  }

  function events () {
    if (cluster.events.length === 0) return h('p', { class: 'empty' }, 'None yet.')
    return h('ol', { class: 'happened' }, cluster.events.map(event => h('li', {}, h('time', { title: time(event.time) }, day(event.time)), h('span', {}, event.text))))
  }

  const parts = { nodes: h('span', { class: 'soft' }), own: h('div', {}), drops: h('div', {}), events: h('div', {}) }
  const resync = may('config:write') && h('button', { type: 'button', onclick: act('/cluster/resync', 'The records are being fetched from a neighbour.') }, 'Fetch records from a neighbour')
  put(main, h('div', { class: 'head' }, h('div', { class: 'row' }, h('h1', {}, 'Nodes'), state), lost), summary, problems, body)
  put(body,
    h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'All nodes'), parts.nodes), nodeTable.element),
    card('Streams', 'of JetStream, as this node knows them', streamTable.element),
    card(`This node (${cluster.node})`, 'since its start', parts.own, resync && h('div', { class: 'row turn' }, resync)),
    h('section', { class: 'card span6' }, h('div', { class: 'top' }, h('h2', {}, 'Dropped messages')), parts.drops),
    h('section', { class: 'card span6' }, h('div', { class: 'top' }, h('h2', {}, 'Last events')), parts.events))

  let shown = ''
  function draw () {
    const isGood = cluster.problems.length === 0
    state.className = `tag ${isGood ? 'good' : cluster.state === 'linked' ? 'warn' : 'bad'}`
    state.textContent = words(cluster.state)
    summary.textContent = `Node ${cluster.node} of cluster ${cluster.name}. ${cluster.summary}`
    // Replaced only if it differs, so that screen readers do not repeat it.
    const texts = cluster.problems.map(problem => problem.text)
    if (texts.join() !== shown) {
      shown = texts.join()
      put(problems, texts.map(text => h('li', { class: 'problem error' }, h('span', { class: 'mark', 'aria-hidden': 'true' }), h('p', {}, text))))
    }
    parts.nodes.textContent = `${count(cluster.nodes.length)} known`
    nodeTable.update(cluster.nodes)
    streamTable.update(cluster.streams)
    if (resync) resync.disabled = cluster.records.resyncing
    const drops = Object.entries(cluster.traffic.drops).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1])
    put(parts.own, own())
    put(parts.drops, bars(drops.map(([reason, number]) => [words(reason), number]), count, 'No message was dropped.'))
    put(parts.events, events())
  }

  async function load () {
    let fresh
    try { fresh = await api.get('/cluster') } catch (problem) {
      if (isHere()) lost.hidden = problem.status !== 0
      return
    }
    if (!isHere()) return
    lost.hidden = true
    cluster = fresh
    draw()
  }
  draw()
  const timer = setInterval(() => { if (!document.hidden) load() }, PERIOD_MS)
  return () => clearInterval(timer)
}
