// Line charts in SVG: a few series over time, with a cursor that shows the values under it.

import { h, put, s } from './dom.js'
import { clock } from './format.js'

const [LEFT, RIGHT, TOP, BOTTOM] = [48, 6, 8, 20]
const HEIGHT = 170

/** `series` are [name, value of a sample]; `format` formats a value; stacked series add up. */
export function chart (title, series, format, { stacked = false } = {}) {
  const picture = s('svg', { class: 'chart', role: 'img', 'aria-label': title, height: HEIGHT })
  const legend = h('div', { class: 'legend' })
  const element = h('section', { class: 'card' }, h('div', { class: 'top' }, h('h2', {}, title), legend), picture)
  let samples = []
  let pointed = null

  function draw () {
    const width = picture.clientWidth || 600
    picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    const used = series.filter(([, value], at) => at === 0 || samples.some(sample => value(sample) > 0))
    const layers = used.map(() => [])
    for (const sample of samples) {
      let below = 0
      used.forEach(([, value], at) => {
        const height = value(sample) || 0
        below = stacked ? below + height : height
        layers[at].push(below)
      })
    }
    const high = nice(Math.max(...layers.flat(), 0))
    const [first, last] = [samples[0]?.time ?? 0, samples.at(-1)?.time ?? 1]
    const x = time => LEFT + (width - LEFT - RIGHT) * (time - first) / Math.max(last - first, 1)
    const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / high)
    const parts = []
    for (const step of [0, 0.5, 1]) {
      const at = Math.round(y(high * step)) + 0.5
      parts.push(s('line', { class: 'grid-line', x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
        s('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, step === 0 ? '0' : format(high * step)))
    }
    if (samples.length > 1) {
      parts.push(s('text', { x: LEFT, y: HEIGHT - 4 }, clock(first)),
        s('text', { x: width - RIGHT, y: HEIGHT - 4, 'text-anchor': 'end' }, clock(last)))
    }
    // The topmost first, so that it does not cover those below.
    for (let at = used.length - 1; at >= 0; at--) {
      const kind = `s${series.indexOf(used[at]) % 6 + 1}`
      const points = layers[at].map((value, number) => `${x(samples[number].time).toFixed(1)},${y(value).toFixed(1)}`)
      if (points.length < 2) continue
      parts.push(s('path', { class: `area ${kind}`, stroke: 'none', d: `M${x(first)},${y(0)}L${points.join('L')}L${x(last)},${y(0)}Z` }),
        s('path', { class: `line ${kind}`, d: `M${points.join('L')}` }))
    }
    const shown = samples[pointed ?? samples.length - 1]
    if (pointed != null && shown) {
      parts.push(s('line', { class: 'cursor', x1: x(shown.time), x2: x(shown.time), y1: TOP, y2: HEIGHT - BOTTOM }))
    }
    put(picture, ...parts)
    put(legend, pointed != null && shown ? h('i', {}, clock(shown.time)) : null,
      ...used.map(([name, value]) => h('span', { class: `s${series.findIndex(one => one[0] === name) % 6 + 1}` },
        h('i', { class: 'soft' }, name), h('b', {}, shown ? format(value(shown) || 0) : '–'))))
  }

  picture.addEventListener('pointermove', event => {
    const box = picture.getBoundingClientRect()
    const share = (event.clientX - box.left - LEFT) / Math.max(box.width - LEFT - RIGHT, 1)
    pointed = Math.max(0, Math.min(samples.length - 1, Math.round(share * (samples.length - 1))))
    draw()
  })
  picture.addEventListener('pointerleave', () => { pointed = null; draw() })
  new ResizeObserver(() => { if (picture.isConnected) draw() }).observe(picture)
  return { element, show (these) { samples = these; pointed = null; draw() } }
}

/** Rounds up to 1, 2 or 5 times a power of ten. */
function nice (value) {
  if (value <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 5, 10].find(step => step * power >= value) * power
}

/** A bar for each name, relative to the largest; `none` is shown without any. */
export function bars (pairs, format, none) {
  if (pairs.length === 0) return h('p', { class: 'empty' }, none)
  const high = Math.max(...pairs.map(([, value]) => value))
  return h('div', { class: 'bars' }, pairs.map(([name, value]) => h('div', { class: 'bar' },
    h('span', { class: 'name' }, name), h('span', { class: 'num' }, format(value)),
    h('progress', { max: 1, value: value / high, 'aria-label': name }))))
}
