// Builds elements. Text is always inserted as text, never as markup.

export function h (name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children)
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

let toasts
/** Shows a message in a corner for some seconds. */
export function toast (text, isBad = false) {
  if (!toasts?.isConnected) {
    toasts = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' })
    document.body.append(toasts)
  }
  const line = h('div', { class: isBad ? 'toast bad' : 'toast' }, text)
  toasts.append(line)
  while (toasts.children.length > 3) toasts.firstChild.remove()
  setTimeout(() => line.remove(), isBad ? 8000 : 4000)
}

/** Asks for confirmation; resolves to true if the user confirms. */
export function confirm (question, act) {
  return new Promise(resolve => {
    const dialog = h('dialog', {},
      h('form', { method: 'dialog' },
        h('p', {}, question),
        h('div', { class: 'row' },
          h('button', { class: 'danger', value: 'yes' }, act),
          h('button', { value: 'no', autofocus: true }, 'Cancel'))))
    dialog.addEventListener('close', () => { dialog.remove(); resolve(dialog.returnValue === 'yes') })
    document.body.append(dialog)
    dialog.showModal()
  })
}

/** A table; `columns` are [title, cell of a row, class]. */
export function table (columns, rows, caption) {
  return h('div', { class: 'scroll' }, h('table', {},
    h('caption', { class: 'visually-hidden' }, caption),
    h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => h('th', { class: kind, scope: 'col' }, title || h('span', { class: 'visually-hidden' }, 'Actions'))))),
    h('tbody', {}, rows.map(row => h('tr', {}, columns.map(([, cell, kind]) => h('td', { class: kind }, cell(row))))))))
}

/** A field with its label. */
export function field (label, input) {
  return h('label', { class: 'field' }, label, input)
}
