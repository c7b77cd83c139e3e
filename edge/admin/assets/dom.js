// @ts-check
// Builds elements. Text is always inserted as text, never as markup.

/**
 * A child of an element: arrays are flattened; null, undefined and false are left out.
 * @typedef {Node | string | number | null | undefined | boolean | readonly any[]} Child
 */

/**
 * An element: its name with classes, as in `p.soft` (`div` if there is no name), attributes if any, and children.
 * @param {string} name
 * @param {...any} children
 * @returns {any} an element of that name
 */
export function h(name, ...children) {
  const attributes = children[0]?.constructor === Object ? children.shift() : {}
  const [tag, ...classes] = name.split('.')
  const element = document.createElement(tag || 'div')
  if (classes.length > 0) element.className = classes.join(' ')
  // A button that does something does not submit its form.
  if (tag === 'button' && attributes.onclick) element.setAttribute('type', tag)
  return fill(element, attributes, children)
}

/**
 * An element of SVG.
 * @param {string} name
 * @param {Record<string, any>} attributes
 * @param {...Child} children
 */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children)
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== false && value != null) element.setAttribute(name, value)
  }
  return put(element, children)
}

/**
 * Replaces the children of an element.
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function put(element, ...children) {
  const flat = /** @type {any[]} */ (children.flat(9))
  element.replaceChildren(...flat.filter(child => child != null && child !== false))
  return element
}

/**
 * Like `put`, but children that look like those that are there change nothing: selections stay, and screen readers
 * are silent. Else the focus goes to the link or button that is what the focused one was.
 * @param {Element} element
 * @param {...Child} children
 */
export function renew(element, ...children) {
  const fresh = put(/** @type {Element} */ (element.cloneNode()), children)
  if (element.isEqualNode(fresh)) return
  const focused = /** @type {any} */ (document.activeElement)
  const isWithin = element.contains(focused)
  put(element, [...fresh.childNodes])
  if (!isWithin) return
  /** @type {any[]} */
  const candidates = [...element.querySelectorAll('a, button')]
  candidates
    .find(one => one.href === focused.href && one.ariaLabel === focused.ariaLabel)
    ?.focus({ preventScroll: true })
}

/**
 * A list of terms and values.
 * @param {(Child[] | null | undefined | false)[]} pairs
 */
export const facts = pairs =>
  h(
    'dl.facts',
    pairs.filter(Boolean).map((/** @type {any} */ [term, value]) => [h('dt', term), h('dd', value)])
  )

/**
 * A part of a page with a title and a note, if any. `place` are classes.
 * @param {string} place
 * @param {Child} title
 * @param {Child} note
 * @param {...Child} content
 */
export const card = (place, title, note, ...content) =>
  h(
    'section',
    { class: `card ${place}` },
    h('.top', h('h2', title), note instanceof Node ? note : h('span.soft', note)),
    content
  )

/**
 * Text for screen readers only.
 * @param {string} text
 */
export const unseen = text => h('span.visually-hidden', text)
