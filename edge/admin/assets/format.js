// @ts-check
// Formats numbers for people.

const whole = new Intl.NumberFormat('en')

/** @typedef {number | null | undefined} Value */

/** @param {Value} value */
export const count = value => (value == null ? '–' : whole.format(Math.round(value)))

/**
 * A number and its noun. `form` writes the number.
 * @param {number} value
 * @param {string} one
 * @param {{ many?: string, form?: (value: number) => string }} options
 */
export const counted = (value, one, { many = `${one}s`, form = count } = {}) =>
  `${form(value)} ${value === 1 ? one : many}`

/** @type {[number, string][]} */
const SIZES = [
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k']
]

/** @param {Value} value */
export function short(value) {
  if (value == null) return '–'
  const size = Math.abs(value)
  for (const [step, unit] of SIZES) {
    if (size >= step) return digits(value / step) + unit
  }
  return size < 10 ? digits(value) : String(Math.round(value))
}

/** @param {number} value */
const digits = value => String(Number(value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)))

/** @param {Value} value */
export function bytes(value) {
  if (value == null) return '–'
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let unit = 0
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`
}

/** @param {number} value */
export function bits(value) {
  const text = short(value * 8)
  const unit = /[kMG]$/.exec(text)?.[0] ?? ''
  return `${text.slice(0, text.length - unit.length)} ${unit}bit/s`
}
/** @param {Value} value */
export const rate = value => `${short(value)}/s`
/** @param {number} value */
export const part = value => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`

/** @param {Value} value */
export function micros(value) {
  if (!value) return '–'
  return value < 1000 ? `${digits(value)} µs` : value < 1e6 ? `${digits(value / 1000)} ms` : `${digits(value / 1e6)} s`
}

/** @type {[number, string][]} */
const SPANS = [
  [86400, 'd'],
  [3600, 'h'],
  [60, 'min']
]

/** @param {Value} seconds */
export function span(seconds) {
  if (seconds == null) return '–'
  for (const [step, unit] of SPANS) {
    if (seconds >= step) return `${Math.floor(seconds / step)} ${unit}`
  }
  return `${Math.floor(seconds)} s`
}

/**
 * The time since a peer's last announce, which the tracker knows to 16 s.
 * @param {number} seconds
 */
export const silence = seconds => (seconds < 16 ? '< 16 s' : span(seconds))

const clockForm = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23'
})
const dayForm = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })

/** @param {Value} seconds */
export const time = seconds =>
  seconds == null
    ? 'never'
    : `${dayForm.format(seconds * 1000)} ${new Date(seconds * 1000).getFullYear()}, ${clock(seconds)}`
/** @param {number} seconds */
export const clock = seconds => clockForm.format(seconds * 1000)
/**
 * The time of day, after the date if it is not today's.
 * @param {number} seconds
 */
export function day(seconds) {
  const date = new Date(seconds * 1000)
  return date.toDateString() === new Date().toDateString()
    ? clock(seconds)
    : `${dayForm.format(date)}, ${clock(seconds)}`
}
