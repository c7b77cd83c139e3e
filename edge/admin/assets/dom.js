// Builds elements. Text is always inserted as text, never as markup.

/** An element: its name with classes, as in `p.soft` (`div` if there is no name), attributes if any, and children. */
export function h (name, ...children) {
  const attributes = children[0]?.constructor === Object ? children.shift() : {}
  const [tag, ...classes] = name.split('.')
  const element = document.createElement(tag || 'div')
  if (classes.length > 0) element.className = classes.join(' ')
  return fill(element, attributes, children)
}

export function s (name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children)
}

function fill (element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== false && value != null) element.setAttribute(name, value)
  }
  element.append(...children.flat().filter(child => child != null && child !== false))
  return element
}

/** Replaces the children of an element. */
export function put (element, ...children) {
  element.replaceChildren(...children.flat().filter(child => child != null && child !== false))
  return element
}

/** A table; `columns` are [title, cell of a row, class]. */
export function table (columns, rows, caption) {
  return h('div', { class: 'scroll' }, h('table', {},
    h('caption', { class: 'visually-hidden' }, caption),
    h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => h('th', { class: kind, scope: 'col' }, title || h('span', { class: 'visually-hidden' }, 'Actions'))))),
    h('tbody', {}, rows.map(row => h('tr', {}, columns.map(([, cell, kind]) => h('td', { class: kind }, cell(row))))))))
}
