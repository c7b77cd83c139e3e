// @ts-check
// Line charts over time, drawn by uPlot: local time below, zero at the bottom, one cursor over all charts.
// Arrow keys move the cursor, and screen readers hear the values; a table has the same figures.

import { liveTable } from './components.js'
import { h, put } from './dom.js'
import { day } from './format.js'

const HEIGHT = 190
/** Rows in the table. */
const ROWS = 40
/** Distances between ticks of whole numbers: 1, 2, 5, 10, … */
const WHOLE = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3))

/** Colours come from the style sheet, so that they follow the theme. */
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
const hueOf = at => colour(`--c${(at % 6) + 1}`)

const fade = (value, share) => {
  const [red, green, blue] = [1, 3, 5].map(at => parseInt(value.slice(at, at + 2), 16))
  return `rgba(${red},${green},${blue},${share})`
}

/** @type {Intl.DateTimeFormatOptions} */
const hours = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }
const times = {
  s: new Intl.DateTimeFormat('en-GB', { ...hours, second: '2-digit' }),
  m: new Intl.DateTimeFormat('en-GB', hours),
  d: new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })
}

/** Ticks of the time axis: the date where a day begins, else hours and minutes, and seconds where they differ. */
function ticks(chart, splits, axis, space, step) {
  return splits.map(seconds => {
    const date = new Date(seconds * 1000)
    const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0
    return isMidnight || step >= 86400 ? times.d.format(date) : step < 60 ? times.s.format(date) : times.m.format(date)
  })
}

/** The top of an axis: a little above the largest value, 1 for a chart of zeros. */
const top = value => (value > 0 ? value * 1.08 : 1)

/** The value that all but the highest one in fifty do not exceed. */
function usual(values) {
  const sorted = values.filter(value => value != null).sort((a, b) => a - b)
  return sorted[Math.floor((sorted.length - 1) * 0.98)] ?? 0
}

/**
 * A group of charts with one time axis, cursor and scale. `definitions` are { title, note, series, format,
 * stacked, whole }; `series` are [name, value of a row]. Rows are objects with a `time`.
 */
export function charts(definitions) {
  let [rows, annotations, scale, isTable] = [[], [], 'linear', false]
  let pointed = null
  const all = definitions.map(one)
  const element = h(
    '.charts',
    all.map(chart => chart.element)
  )
  const figures = h('.card.figures', { hidden: true })

  const last = () => {
    for (let at = rows.length - 1; at >= 0; at--) if (!rows[at].gap) return at
    return null
  }

  /** Moves the cursor of all charts to a row; null: away. */
  function point(at) {
    if (at === pointed) return
    pointed = at
    for (const chart of all) chart.point(at)
  }

  function one({ title, note, series, format, stacked, whole }) {
    const legend = h('.legend')
    const clipped = h('span.clipped', { hidden: true })
    const canvas = h('.plot')
    const slider = h(
      '.plot-focus',
      {
        role: 'slider',
        tabindex: '0',
        'aria-label': `${title}: values over time`,
        'aria-valuemin': '0',
        'aria-valuemax': '0',
        'aria-valuenow': '0',
        'aria-valuetext': 'No values yet',
        onkeydown: event => {
          const jump = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity }[
            event.key
          ]
          if (event.key === 'Escape') return point(null)
          if (jump === undefined || rows.length === 0) return
          event.preventDefault()
          let to = Math.min(Math.max((pointed ?? last() ?? 0) + jump, 0), rows.length - 1)
          while (rows[to]?.gap && rows[to + Math.sign(jump)]) to += Math.sign(jump)
          point(to)
        },
        onblur: () => point(null)
      },
      canvas
    )
    const element = h(
      'section.card.chart',
      h('.top', h('h2', title, note && h('span.soft', ` ${note}`)), clipped),
      legend,
      slider
    )
    let plot = null
    let data = [[]]
    let used = series

    const value = (row, get) => (row.gap ? null : (get(row) ?? null))

    /** Columns of values: the time, then each series, each on top of those before it if they are stacked. */
    function columns() {
      // A protocol without any traffic needs no line.
      used = series.filter(([, get], at) => at === 0 || rows.some(row => value(row, get) > 0))
      const below = rows.map(() => 0)
      const values = used.map(([, get]) =>
        rows.map((row, at) => {
          const own = value(row, get)
          if (!stacked || own == null) return own
          below[at] += own
          return below[at]
        })
      )
      return [rows.map(row => row.time), ...values]
    }

    function range() {
      const values = data.slice(1).flat()
      const highest = values.reduce((high, value) => Math.max(high, value ?? 0), 0)
      const limit = scale === 'clip' ? usual(values) * 1.5 : highest
      const isClipped = scale === 'clip' && highest > limit * 1.3 && limit > 0
      clipped.hidden = !isClipped
      if (isClipped) clipped.textContent = `Spikes up to ${format(highest)} are cut off`
      return [0, top(isClipped ? limit : highest)]
    }

    function legendOf(at) {
      const row = rows[at ?? last()]
      const parts = used.map(([name, get]) =>
        h(
          'span',
          { class: `s${(series.findIndex(([known]) => known === name) % 6) + 1}` },
          name,
          h('b', row && !row.gap ? format(get(row)) : '–')
        )
      )
      put(legend, parts, row && at != null && h('time', day(row.time)))
      slider.setAttribute('aria-valuemax', String(Math.max(rows.length - 1, 0)))
      slider.setAttribute('aria-valuenow', String(at ?? last() ?? 0))
      slider.setAttribute(
        'aria-valuetext',
        row && !row.gap
          ? `${day(row.time)}: ${used.map(([name, get]) => `${name} ${format(get(row))}`).join(', ')}`
          : 'No values'
      )
    }

    function build() {
      plot?.destroy()
      const width = canvas.clientWidth
      if (width === 0) {
        plot = null
        return
      }
      const font = '11px system-ui, sans-serif'
      const axis = {
        stroke: colour('--soft'),
        font,
        grid: { stroke: colour('--grid'), width: 1 },
        ticks: { show: false }
      }
      const steps = /** @type {any} */ (globalThis).uPlot.paths.stepped({ align: -1 })
      const lines = used.map(([name]) => {
        const hue = hueOf(series.findIndex(([known]) => known === name))
        return {
          label: name,
          stroke: hue,
          width: 1.5,
          fill: stacked ? undefined : used.length === 1 ? fade(hue, 0.13) : undefined,
          points: { show: false },
          // A row is a mean over the time until it: after a restart, that may be a minute among seconds.
          paths: steps,
          spanGaps: false
        }
      })
      // What lies between a stacked line and the one below it has the line's colour.
      const bands = stacked
        ? used.map(([name], at) => ({ series: [at + 1, at], fill: fade(lines[at].stroke, 0.35) })).slice(1)
        : []
      if (stacked && lines.length > 0) lines[0].fill = fade(lines[0].stroke, 0.35)
      plot = new /** @type {any} */ (globalThis).uPlot(
        {
          width,
          height: HEIGHT,
          legend: { show: false },
          padding: [8, 26, 0, 0],
          cursor: {
            x: true,
            y: false,
            drag: { setScale: false, x: false, y: false },
            points: {
              size: 7,
              width: 1.5,
              stroke: (chart, at) => lines[at - 1]?.stroke ?? '',
              fill: () => colour('--card')
            }
          },
          scales: {
            x: { time: true, range: (chart, low, high) => [Math.min(low, high - 60), high] },
            y: scale === 'log' ? { distr: 4, asinh: 1, range: () => [0, range()[1]] } : { range }
          },
          axes: [
            { ...axis, values: ticks, space: 64, size: 28, gap: 6 },
            {
              ...axis,
              ...(whole && { incrs: WHOLE }),
              size: (chart, labels) => Math.max(44, ...(labels ?? []).map(label => 12 + 6.3 * label.length)),
              gap: 6,
              space: 34,
              values: (chart, splits) => splits.map(split => (split === 0 ? '0' : format(split)))
            }
          ],
          series: [{}, ...lines],
          bands,
          hooks: {
            setCursor: [
              chart => {
                if (chart.cursor.event) point(chart.cursor.idx ?? null)
              }
            ],
            draw: [marks]
          }
        },
        data,
        canvas
      )
    }

    /** Dashed lines where something happened. */
    function marks(chart) {
      const { ctx, bbox } = chart
      const [from, to] = [chart.scales.x.min, chart.scales.x.max]
      const ratio = globalThis.devicePixelRatio || 1
      ctx.save()
      ctx.setLineDash([3 * ratio, 3 * ratio])
      ctx.lineWidth = ratio
      for (const { time, kind } of annotations) {
        if (time < from || time > to) continue
        const x = Math.round(chart.valToPos(time, 'x', true)) + 0.5
        ctx.strokeStyle = colour(isFailure(kind) ? '--bad' : '--mark')
        ctx.fillStyle = ctx.strokeStyle
        ctx.beginPath()
        ctx.moveTo(x, bbox.top)
        ctx.lineTo(x, bbox.top + bbox.height)
        ctx.stroke()
        ctx.beginPath()
        ctx.arc(x, bbox.top, 3 * ratio, 0, 7)
        ctx.fill()
      }
      ctx.restore()
    }

    let shown = ''
    function draw() {
      data = columns()
      // Another set of lines, scale or theme needs another plot; new values do not.
      const form = `${used.map(([name]) => name)} ${scale} ${colour('--c1')}`
      if (!plot || form !== shown) {
        shown = form
        build()
      } else plot.setData(data)
      legendOf(pointed)
    }

    canvas.addEventListener('mouseleave', () => point(null))
    return {
      element,
      draw,
      point(at) {
        legendOf(at)
        if (!plot) return
        const isOwn = plot.cursor.event && plot.cursor.idx === at
        if (!isOwn)
          plot.setCursor(
            at == null ? { left: -10, top: -10 } : { left: plot.valToPos(rows[at].time, 'x'), top: 0 },
            false
          )
      },
      resize() {
        if (plot && canvas.clientWidth > 0 && plot.width !== canvas.clientWidth)
          plot.setSize({ width: canvas.clientWidth, height: HEIGHT })
        else if (!plot) build()
      },
      free: () => plot?.destroy()
    }
  }

  let table
  let titles
  /** The same figures as a table, thinned out to some forty rows, the latest first. */
  function tabulate() {
    const known = rows.filter(row => !row.gap)
    const step = Math.max(Math.ceil(known.length / ROWS), 1)
    const thin = known.filter((row, at) => (known.length - 1 - at) % step === 0).reverse()
    /** @type {import('./components.js').Column[]} */
    const columns = [
      ['Time', row => day(row.time)],
      ...definitions.flatMap(({ title, series, format }) =>
        series
          .filter(([, get], at) => at === 0 || known.some(row => get(row) > 0))
          .map(([name, get]) => [series.length > 1 ? `${title}: ${name}` : title, row => format(get(row)), 'num'])
      )
    ]
    if (!table || String(columns.map(([title]) => title)) !== titles) {
      titles = String(columns.map(([title]) => title))
      table = liveTable({ caption: 'Values over time', key: row => row.time, columns })
      put(figures, h('h2', 'Values over time'), table.element)
    }
    table.update(thin, 'No values yet.')
  }

  function draw() {
    if (isTable) tabulate()
    else for (const chart of all) chart.draw()
  }

  const observer = new ResizeObserver(() => {
    for (const chart of all) chart.resize()
  })
  observer.observe(element)
  const theme = () => draw()
  addEventListener('theme', theme)

  return {
    elements: [element, figures],
    /** Shows rows and annotations. */
    show(newRows, newAnnotations) {
      ;[rows, annotations] = [newRows, newAnnotations]
      if (pointed != null && pointed >= rows.length) pointed = null
      draw()
    },
    /** linear, clip or log. */
    scale(name) {
      scale = name
      draw()
    },
    table(isOn) {
      isTable = isOn
      element.hidden = isOn
      figures.hidden = !isOn
      draw()
    },
    free() {
      observer.disconnect()
      removeEventListener('theme', theme)
      for (const chart of all) chart.free()
    }
  }
}

export const isFailure = kind => kind.endsWith('_failed')

/** Rows of /stats/history as objects. A row with nothing but a time becomes a gap. */
export const named = (fields, row) =>
  row.length === 1 ? { time: row[0], gap: true } : Object.fromEntries(fields.map((name, at) => [name, row[at]]))

/** Horizontal bars, longest first; `parts` are [name, value, explanation]. */
export function bars(parts, format, nothing) {
  const high = Math.max(...parts.map(([, value]) => value))
  return parts.length === 0
    ? h('p.empty', nothing)
    : h(
        'ul.bars',
        parts.map(([name, value, text]) =>
          h(
            'li.bar',
            { title: text ?? name.textContent ?? name },
            h('span.name', name),
            h('span.num', format(value)),
            h('progress', { max: high, value, 'aria-label': name.textContent ?? name }),
            text && h('span.why.soft', text)
          )
        )
      )
}
