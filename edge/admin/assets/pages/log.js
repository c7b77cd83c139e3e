// @ts-check
// Live events, and the log, with filters.

import { api, follow, repeat } from '../client.js'
import { attempt, button, dialog, fail, say } from '../components.js'
import { card, h, put } from '../dom.js'
import { clock, count } from '../format.js'
import { labelled } from '../forms.js'
import { names } from '../names.js'

const KEPT = 1000
const SHOWN = 300
const PERIOD_MS = 2000
// Events that are many: not shown unless asked for.
const MANY = ['torrent_added', 'torrent_removed', 'completed']

/**
 * A list of lines, newest first, that keeps more than it shows so that filters find older ones. Its button holds new
 * lines back, and says how many.
 */
function feed(label, isWanted, empty) {
  const kept = []
  const held = []
  let isPaused = false
  const list = h('.log', { tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': label })
  const nothing = h('p.empty', empty)
  const pause = h(
    'button.small',
    {
      'aria-pressed': 'false',
      onclick() {
        isPaused = !isPaused
        pause.ariaPressed = isPaused
        pause.textContent = isPaused ? 'Continue' : 'Pause'
        for (const line of held.splice(0)) add(line)
      }
    },
    'Pause'
  )

  function add(line) {
    if (isPaused) {
      held.push(line)
      if (held.length > KEPT) held.shift()
      pause.textContent = `Continue (${held.length < KEPT ? '' : 'over '}${count(held.length)} new)`
      return
    }
    kept.unshift(line)
    if (kept.length > KEPT) kept.pop()
    if (!isWanted(line)) return
    list.prepend(line.element())
    if (list.children.length > SHOWN) list.lastChild.remove()
    nothing.hidden = true
  }

  return {
    element: h('', list, nothing),
    pause,
    add,
    refilter() {
      const wanted = kept.filter(isWanted).slice(0, SHOWN)
      put(
        list,
        wanted.map(line => line.element())
      )
      nothing.hidden = wanted.length > 0
    }
  }
}

const line = (when, what, kind, text) => () =>
  h('div', h('span.soft', clock(when)), h('span', { class: kind }, what), h('span', text))

function eventsCard(known) {
  const kinds = known.lists.events
  const wanted = new Set(kinds.map(kind => kind.name).filter(name => !MANY.includes(name)))
  const list = feed('Events', () => true, 'Waiting for events.')
  let stop = () => {}
  function listen() {
    stop()
    stop =
      wanted.size === 0
        ? () => {}
        : follow(
            `/events?kinds=${[...wanted].join(',')}`,
            [...kinds.map(kind => kind.name), 'missed'],
            (name, event) => {
              const now = Date.now() / 1000
              if (name === 'missed')
                return list.add({
                  element: line(now, 'missed', 'WARN', `${count(event)} events were dropped: too many at once`)
                })
              const text = Object.entries(event.data)
                .filter(([, value]) => value !== null && value !== '')
                .map(
                  ([key, value]) =>
                    `${key.replaceAll('_', ' ')} ${Array.isArray(value) ? value.join(', ') || 'none' : value}`
                )
                .join(' · ')
              list.add({
                element: line(event.time, known('events', name).title, name === 'warning' ? 'WARN' : '', text)
              })
            }
          )
  }
  listen()
  const boxes = kinds.map(({ name, title, text }) =>
    h(
      'label.row.soft',
      { title: text },
      h('input', {
        type: 'checkbox',
        checked: wanted.has(name),
        onchange: event => {
          event.target.checked ? wanted.add(name) : wanted.delete(name)
          listen()
        }
      }),
      title
    )
  )
  return {
    element: card('span12', 'Events', list.pause, h('.row.filters', boxes), list.element),
    stop: () => stop()
  }
}

/** Asks for the log levels, by area. */
async function changeLevels(known) {
  const { level } = await api.get('/log/level')
  const parts = level.split(',')
  const [rest] = parts.filter(part => !part.includes('='))
  const own = new Map(parts.filter(part => part.includes('=')).map(part => part.split('=')))
  const select = (chosen, other) =>
    h(
      'select',
      other && h('option', { value: '' }, other),
      known.lists.log_levels.map(({ name, title }) => h('option', { value: name, selected: name === chosen }, title))
    )
  const all = select(rest ?? 'info')
  const areas = known.lists.log_areas.map(area => [area, select(own.get(area.name), 'as all others')])
  const act = () => {
    const wanted = [
      all.value,
      ...areas.filter(([, input]) => input.value).map(([area, input]) => `${area.name}=${input.value}`)
    ].join(',')
    return api.put('/log/level', { level: wanted })
  }
  const done = await dialog({
    title: 'Log levels',
    wide: true,
    content: [
      h('p.hint', 'They hold until the next reload. To keep them, set log.level under Configuration.'),
      labelled('All areas', all),
      h(
        '.fields',
        areas.map(([area, input]) => labelled(area.title, input, area.text))
      )
    ],
    action: 'Apply',
    act
  })
  if (done) say(`Log levels: ${done.level}.`)
}

function linesCard(known, { may, isHere }) {
  const order = known.lists.log_levels.map(level => level.name)
  const filter = { level: order.length - 1, area: '', text: '' }
  const isWanted = one =>
    order.indexOf(one.level) <= filter.level &&
    (!filter.area || one.area === filter.area) &&
    (!filter.text || one.text.includes(filter.text))
  const list = feed('Log', isWanted, 'No line matches.')
  const changed = act => event => {
    act(event.target.value)
    list.refilter()
  }
  const level = h(
    'select',
    {
      'aria-label': 'Least severe level',
      onchange: changed(value => {
        filter.level = Number(value)
      })
    },
    known.lists.log_levels.map(({ title }, at) =>
      h(
        'option',
        { value: at, selected: at === filter.level },
        at === 0 ? `${title} only` : at === filter.level ? 'All levels' : `${title} and worse`
      )
    )
  )
  const area = h(
    'select',
    {
      'aria-label': 'Area',
      onchange: changed(value => {
        filter.area = value
      })
    },
    h('option', { value: '' }, 'All areas'),
    known.lists.log_areas.map(({ name, title }) => h('option', { value: name }, title))
  )
  const text = h('input', {
    type: 'search',
    'data-search': true,
    'aria-label': 'Text in lines',
    placeholder: 'Text',
    oninput: changed(value => {
      filter.text = value.toLowerCase()
    })
  })
  let after = 0
  let isLost = false
  async function tail() {
    let fresh
    try {
      fresh = (await api.get(`/log?after=${after}`)).lines
      isLost = false
    } catch (problem) {
      if (!isLost && isHere()) fail(problem)
      isLost = true
      return
    }
    if (!isHere() || fresh.length === 0) return
    after = fresh.at(-1).id
    for (const one of fresh) {
      const severity = one.level.toLowerCase()
      list.add({
        level: severity,
        area: one.area,
        text: `${one.area} ${one.message}`.toLowerCase(),
        element: line(one.time, `${one.level} ${one.area}`, one.level, one.message)
      })
    }
  }
  return {
    element: card(
      'span12',
      'Log lines',
      h(
        '.row',
        may('config:write') && button('Log levels …', () => attempt(() => changeLevels(known)), 'small'),
        list.pause
      ),
      h('.row.filters', level, area, text),
      list.element
    ),
    start: tail,
    stop: repeat(tail, PERIOD_MS)
  }
}

export default async function log(main, page) {
  const known = await names()
  if (!page.isHere()) return
  const cards = []
  if (page.may('config:read')) cards.push(linesCard(known, page))
  cards.push(eventsCard(known))
  put(
    main,
    h('.head', h('h1', 'Log')),
    h(
      '.grid',
      cards.map(card => card.element)
    )
  )
  await Promise.all(cards.map(card => card.start?.()))
  return () => {
    for (const card of cards) card.stop()
  }
}
