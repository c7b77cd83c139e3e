// The cluster as this node sees it.

import { api } from '../client.js'
import { bars } from '../charts.js'
import { confirm, h, put, table, toast } from '../dom.js'
import { bytes, clock, count, rate, short, span, time } from '../format.js'

const PERIOD_MS = 2000

const words = label => label.replaceAll('_', ' ')
const seconds = value => value < 0.0005 ? '0' : value < 10 ? `${Number(value.toFixed(value < 1 ? 3 : 1))} s` : span(value)
const offset = value => Math.abs(value) < 0.0005 ? '0' : `${value > 0 ? '+' : '−'}${seconds(Math.abs(value))}`
const card = (title, ...content) => h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, title)), ...content)
const facts = pairs => h('dl', { class: 'facts' }, pairs.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]))

function none (main) {
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Nodes')),
    h('section', { class: 'card' },
      h('p', {}, 'This tracker is not part of a cluster.'),
      h('p', { class: 'soft' }, 'Several tidegates can be one tracker: a client of any node is given the peers of all, and any node may fail. They hear each other through NATS. docs/cluster.md sets one up, with [cluster] in the configuration.')))
}

export default async function nodes (main, { may, isHere }) {
  let cluster
  try { cluster = await api.get('/cluster') } catch (problem) {
    if (problem.status !== 404) throw problem
    return none(main)
  }
  const state = h('span', { class: 'tag' })
  const lost = h('span', { class: 'offline', role: 'status', hidden: true }, 'Connection lost. Reconnecting…')
  const summary = h('p', {})
  const problems = h('div', { role: 'status', 'aria-live': 'polite' })
  const body = h('div', { class: 'grid' })
  put(main, h('div', { class: 'head' }, h('div', { class: 'row' }, h('h1', {}, 'Nodes'), state), lost), summary, problems, body)

  const act = (path, done) => async () => {
    try { await api.post(path); toast(done); await load() } catch (problem) { toast(problem.message, true) }
  }
  const ignore = one => async () => {
    const question = `Ignore node ${one.node}? Every node drops what it sends, its peers included, until you undo this. Use it for a node that is compromised or sends nonsense; to stop a node, stop its process.`
    if (await confirm(question, 'Ignore')) await act(`/cluster/nodes/${one.node}/ignore`, `Node ${one.node} is ignored.`)()
  }
  const action = one => {
    if (!may('config:write') || one.node === cluster.node) return null
    return one.ignored
      ? h('button', { class: 'small', onclick: act(`/cluster/nodes/${one.node}/heed`, `Node ${one.node} is heard again.`) }, 'Heed')
      : h('button', { class: 'small danger', onclick: ignore(one) }, 'Ignore')
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

  function rows () {
    return table([
      ['Node', one => one.node, 'num'],
      ['State', stateOf],
      ['Zone', one => one.zone || '–', 'wide'],
      ['Version', one => one.version, 'wide'],
      ['Up for', figure(one => span(Date.now() / 1000 - one.started)), 'num wide'],
      ['Peers', figure(one => short(one.peers)), 'num'],
      ['Announces', figure(one => rate(one.announces_s)), 'num wide'],
      ['Lag here', other(one => seconds(one.lag_s)), 'num'],
      ['Lag there', other(figure(one => seconds(one.their_lag_s))), 'num wide'],
      ['Behind', other(one => short(one.behind_blocks)), 'num wide'],
      ['Clock', other(one => offset(one.clock_offset_s)), 'num wide'],
      ['Queue', figure(one => bytes(one.queue_bytes)), 'num wide'],
      ['', action, 'actions']
    ], cluster.nodes, 'Nodes')
  }

  function streams () {
    if (cluster.streams.length === 0) return h('p', { class: 'empty' }, 'Not known yet.')
    const health = one => !cluster.connection.server ? ['not known', ''] : !one.found ? ['missing', 'bad'] : !one.has_leader ? ['no leader', 'bad'] : one.replicas_current < one.replicas ? ['few copies', 'bad'] : ['stores', 'good']
    return table([
      ['Stream', one => h('span', { class: 'mono' }, one.name)],
      ['State', one => { const [text, kind] = health(one); return h('span', { class: `tag ${kind}` }, text) }],
      ['Copies', one => `${one.replicas_current} of ${one.replicas}`, 'num wide'],
      ['Messages', one => short(one.messages), 'num wide'],
      ['Size', one => one.bytes_max > 0 ? `${bytes(one.bytes)} of ${bytes(one.bytes_max)}` : bytes(one.bytes), 'num'],
      ['As of', one => `${span(one.age_s)} ago`, 'num wide']
    ], cluster.streams, 'Streams')
  }

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
    return [facts(pairs), may('config:write') && h('div', { class: 'row' }, h('button', {
      onclick: act('/cluster/resync', 'The records are being fetched from a neighbour.'), disabled: records.resyncing
    }, 'Fetch records from a neighbour'))]
  }

  function events () {
    if (cluster.events.length === 0) return h('p', { class: 'empty' }, 'None yet.')
    return h('div', { class: 'log short' }, cluster.events.map(event => h('div', {}, h('span', { class: 'soft', title: time(event.time) }, clock(event.time)), h('span', {}, event.text))))
  }

  function draw () {
    const isGood = cluster.problems.length === 0
    state.className = `tag ${isGood ? 'good' : 'bad'}`
    state.textContent = words(cluster.state)
    summary.textContent = `Node ${cluster.node} of cluster ${cluster.name}. ${cluster.summary}`
    put(problems, cluster.problems.map(problem => h('p', { class: 'offline' }, problem.text)))
    const drops = Object.entries(cluster.traffic.drops).sort((a, b) => b[1] - a[1])
    put(body,
      card(`${cluster.nodes.length} nodes`, rows()),
      card('Streams', streams()),
      card(`This node (${cluster.node})`, ...own()),
      card('Dropped messages', bars(drops.map(([reason, number]) => [words(reason), number]), count, 'None.')),
      card('Last events', events()))
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
