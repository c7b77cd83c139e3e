// The shell: sign-in, navigation between pages, keyboard, colour theme.

import { session } from './client.js'
import { fail } from './components.js'
import { h, put, s } from './dom.js'
import overview from './pages/overview.js'

// Other pages are fetched when they are opened first.
const later = (path, name = 'default') => async (main, page) => {
  const pages = await import(`./pages/${path}.js`)
  // Another page may have been opened meanwhile.
  return page.isHere() ? pages[name](main, page) : undefined
}

// Path, title, function that renders the page, the scope it needs, the key after `g`, and the picture in the
// navigation. The function may return a cleanup for when the page is left. An empty line of the navigation comes
// before a page with `apart`.
const pages = [
  { path: 'overview', title: 'Overview', fill: overview, scope: 'stats:read', key: 'o', icon: 'M2 13h12M4 10v3M8 4v9M12 7v6' },
  { path: 'nodes', title: 'Nodes', fill: later('nodes'), scope: 'stats:read', key: 'n', icon: 'M8 3v4M8 7 4 12M8 7l4 5M6.5 3h3M2.5 12.5h3M10.5 12.5h3' },
  { path: 'torrents', title: 'Torrents', fill: later('torrents', 'torrents'), scope: 'torrents:read', key: 't', icon: 'M3 4h10M3 8h10M3 12h6' },
  { path: 'lists', title: 'Access lists', fill: later('lists'), scope: 'lists:read', key: 'a', icon: 'M3 4.5l1 1 2-2M8 4.5h5M3 11l3 3M6 11l-3 3M8 12h5', apart: true },
  { path: 'keys', title: 'User keys', fill: later('access', 'keys'), scope: 'keys:read', key: 'k', icon: 'M9.5 6.5a3 3 0 1 0-2.8 2L8 10h2v2h2v2h2v-2.5L9.3 7' },
  { path: 'bans', title: 'Bans', fill: later('access', 'bans'), scope: 'bans:read', key: 'b', icon: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M4.2 4.2l7.6 7.6' },
  { path: 'tokens', title: 'API tokens', fill: later('access', 'tokens'), scope: 'tokens:read', key: 'p', icon: 'M5 3 2 8l3 5M11 3l3 5-3 5' },
  { path: 'webhooks', title: 'Webhooks', fill: later('webhooks'), scope: 'events:read', key: 'w', icon: 'M3 12.5h3M10 12.5h3M8 3.5v3M8 6.5l-3.5 6M8 6.5l3.5 6M6.5 3.5h3' },
  { path: 'settings', title: 'Configuration', fill: later('settings'), scope: 'config:read', key: 'c', icon: 'M2 5h6M11 5h3M2 11h3M8 11h6M9.5 3v4M6.5 9v4', apart: true },
  { path: 'log', title: 'Log', fill: later('log'), scope: 'events:read', key: 'l', icon: 'M3 3.5h10v9H3zM5 6.5h6M5 9.5h4' },
  { path: 'about', title: 'About', fill: later('about'), scope: 'stats:read', key: 'i', icon: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 7.5v3.5M8 5v.5' }
]
/** Pages that others lead to: path, title, function, and the page that is marked in the navigation. */
const details = [
  { path: 'torrent', title: 'Torrent', fill: later('torrents', 'torrent'), within: 'torrents' }
]

/** How long `g` waits for its second key. */
const CHORD_MS = 1500

let leave = () => {}
let turn = 0

// Themes.

const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' }
const theme = () => { try { return localStorage.getItem('theme') ?? 'auto' } catch { return 'auto' } }

function setTheme (name) {
  if (name === 'auto') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = name
  try { localStorage.setItem('theme', name) } catch {}
  dispatchEvent(new Event('theme'))
}

function themeChoice () {
  const options = Object.keys(THEMES).map(name => h('option', { value: name, selected: name === theme() }, `Theme: ${name}`))
  return h('select', { class: 'small', 'aria-label': 'Colour theme', onchange: event => setTheme(event.target.value) }, options)
}

// Sign-in.

const brand = () => h('a', { class: 'brand', href: '#/overview' }, h('img', { src: '/icon.svg', alt: '', width: 26, height: 26 }), 'tidegate')

function signIn (why) {
  leave()
  leave = () => {}
  turn++
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, autofocus: true, placeholder: 'tg_…', spellcheck: 'false' })
  const fault = h('p', { class: 'fault', role: 'alert', hidden: !why }, why ?? '')
  const form = h('form', {
    class: 'card',
    onsubmit: async event => {
      event.preventDefault()
      try {
        start(await session.open(token.value.trim()))
      } catch (problem) {
        fault.hidden = false
        fault.textContent = problem.message.replace(/^./, first => first.toUpperCase())
        token.select()
      }
    }
  },
  h('h1', { class: 'brand' }, h('img', { src: '/icon.svg', alt: '', width: 26, height: 26 }), 'tidegate'),
  h('label', { class: 'field' }, 'Token', token),
  fault,
  h('button', { class: 'primary' }, 'Sign in'),
  h('p', { class: 'soft' }, 'The first start writes a token to the file ', h('code', {}, 'first-token'), ' in state.dir, or prints it on a terminal.'),
  h('p', { class: 'soft' }, 'Lost it? Start tidegate once with ', h('code', {}, 'TIDEGATE_BOOTSTRAP_TOKEN'), ' set to a token of your own.'))
  document.title = 'Sign in: tidegate'
  put(document.body, h('main', { class: 'login' }, form))
  token.focus()
}

// The frame around pages.

const icon = path => s('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, s('path', { d: path }))

function start ({ name, scopes }) {
  const may = scope => scopes.includes('*') || scopes.includes(scope)
  const open = pages.filter(({ scope }) => may(scope))
  const links = new Map(open.map(page => [page.path, h('a', { href: `#/${page.path}`, class: page.apart ? 'apart' : '', title: `g ${page.key}` }, icon(page.icon), page.title)]))
  const main = h('main', { id: 'main', tabindex: '-1' })
  const menu = h('button', {
    class: 'menu',
    type: 'button',
    'aria-expanded': 'false',
    'aria-controls': 'side',
    onclick: () => unfold(menu.getAttribute('aria-expanded') !== 'true')
  }, h('span', { 'aria-hidden': 'true' }, '☰'), h('span', { class: 'title' }, 'Menu'))
  const side = h('div', { class: 'side', id: 'side' },
    h('nav', { 'aria-label': 'Pages' }, ...links.values()),
    h('footer', {},
      h('span', { class: 'who' }, `Signed in as ${name || 'unnamed token'}`),
      h('div', { class: 'row' }, themeChoice(),
        h('button', { class: 'small', type: 'button', onclick: () => help(open) }, 'Keys'),
        h('button', { class: 'small', type: 'button', onclick: async () => { await session.close().catch(() => {}); signIn() } }, 'Sign out'))))
  const unfold = isOpen => {
    menu.setAttribute('aria-expanded', String(isOpen))
    side.classList.toggle('open', isOpen)
  }
  put(document.body,
    h('a', { class: 'skip button', href: '#main', onclick: event => { event.preventDefault(); main.focus() } }, 'Skip to content'),
    h('div', { class: 'shell' }, h('header', { class: 'topbar' }, brand(), menu), side, main))

  async function show () {
    leave()
    leave = () => {}
    const own = ++turn
    const [path = '', ...rest] = location.hash.replace(/^#\/?/, '').split('/')
    const page = details.find(one => one.path === path) ?? open.find(one => one.path === path) ?? open[0] ??
      { title: 'No page', fill: () => put(main, h('h1', {}, 'No page'), h('p', { class: 'empty' }, 'This token has no permission for any page. Sign in with another one.')) }
    document.title = `${page.title}: tidegate`
    menu.querySelector('.title').textContent = page.title
    unfold(false)
    for (const [name, link] of links) {
      if (name === (page.within ?? page.path)) link.setAttribute('aria-current', 'page')
      else link.removeAttribute('aria-current')
    }
    put(main)
    main.scrollTo?.(0, 0)
    scrollTo(0, 0)
    try {
      const left = await page.fill(main, { may, rest, isHere: () => own === turn })
      if (own === turn) leave = left ?? leave
      else left?.()
    } catch (problem) {
      if (own !== turn) return
      if (main.childElementCount === 0) put(main, h('h1', {}, page.title), h('p', { class: 'empty' }, 'This page could not be loaded.'), h('button', { onclick: show }, 'Try again'))
      fail(problem)
    }
  }
  onhashchange = show
  onkeydown = shortcuts(open)
  show()
}

// The keyboard.

/** Whether keys are text for an element, not commands. */
const takesText = element => element.closest('input, textarea, select, [contenteditable], dialog') != null

function shortcuts (open) {
  let chord = 0
  return event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || takesText(event.target)) return
    const isSecond = Date.now() - chord < CHORD_MS
    chord = 0
    if (isSecond) {
      const page = open.find(({ key }) => key === event.key)
      if (page) { event.preventDefault(); location.hash = `#/${page.path}` }
    } else if (event.key === 'g') chord = Date.now()
    else if (event.key === '?') { event.preventDefault(); help(open) } else if (event.key === '/') { event.preventDefault(); search(open) }
  }
}

/** Goes to the search of this page, or to that of torrents. */
async function search (open) {
  const field = () => document.querySelector('[data-search], main input[type=search]')
  if (!field() && open.some(({ path }) => path === 'torrents')) {
    location.hash = '#/torrents'
    for (let times = 0; times < 50 && !field(); times++) await new Promise(resolve => setTimeout(resolve, 40))
  }
  field()?.focus()
  field()?.select?.()
}

function help (open) {
  const rows = [['/', 'Search this page, or all torrents'], ['?', 'Show these keys'], ['Esc', 'Close a dialog; leave a chart'], ['← →', 'Move through the values of a chart that has the focus'], ...open.map(({ key, title }) => [`g ${key}`, `Go to ${title}`])]
  const dialog = h('dialog', { 'aria-label': 'Keys', onclose: () => dialog.remove() },
    h('form', { method: 'dialog' }, h('h2', {}, 'Keys'),
      h('dl', { class: 'keys' }, rows.flatMap(([keys, text]) => [h('dt', {}, keys.split(' ').map(key => h('kbd', {}, key))), h('dd', {}, text)])),
      h('div', { class: 'row end' }, h('button', { autofocus: true }, 'Close'))))
  document.body.append(dialog)
  dialog.showModal()
}

addEventListener('signed-out', () => {
  if (document.querySelector('.shell')) signIn('The session has expired. Sign in again.')
})

setTheme(theme())
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => dispatchEvent(new Event('theme')))
const known = await session.current().catch(() => null)
if (known) start(known)
else signIn()
