// @ts-check
// The shell: sign-in, navigation between pages, keyboard, colour theme.

import { session, store, stored } from './client.js'
import { button, dialog, fail } from './components.js'
import { h, put, s } from './dom.js'
import overview from './pages/overview.js'

/**
 * Context of a page: permissions, the rest of the path, whether it is still shown.
 * @typedef {{ may: (scope: string) => boolean, rest: string[], isHere: () => boolean }} PageContext
 */
/** @typedef {(main: HTMLElement, page: PageContext) => any} Fill */
/**
 * @typedef {object} Page
 * @property {string} path
 * @property {string} title
 * @property {string} [scope]
 * @property {string} [key]
 * @property {string} [icon]
 * @property {Fill} fill
 * @property {boolean} [apart]
 * @property {string} [within]
 */

/**
 * Other pages are fetched when they are opened first.
 * @param {string} path
 * @param {string} name
 * @returns {Fill}
 */
const later =
  (path, name = 'default') =>
  async (main, page) => {
    const pages = await import(`./pages/${path}.js`)
    // Another page may have been opened meanwhile.
    return page.isHere() ? pages[name](main, page) : undefined
  }

// Path, title, the scope it needs, the key after `g`, the picture in the navigation, and the function that renders
// the page. The function may return a cleanup for when the page is left. Last: whether an empty line of the
// navigation comes before it.
/** @type {[string, string, string, string, string, Fill, boolean?][]} */
const table = [
  ['overview', 'Overview', 'stats:read', 'o', 'M2 13h12M4 10v3M8 4v9M12 7v6', overview],
  ['nodes', 'Nodes', 'stats:read', 'n', 'M8 3v4M8 7 4 12M8 7l4 5M6.5 3h3M2.5 12.5h3M10.5 12.5h3', later('nodes')],
  ['site', 'Site', 'stats:read', 's', 'M2.5 13.5v-7L8 3l5.5 3.5v7zM6.5 13.5v-4h3v4', later('site')],
  ['torrents', 'Torrents', 'torrents:read', 't', 'M3 4h10M3 8h10M3 12h6', later('torrents', 'torrents')],
  [
    'peers',
    'Peers',
    'peers:read',
    'e',
    'M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M3 13.5a5 5 0 0 1 10 0',
    later('peers')
  ],
  [
    'lists',
    'Access lists',
    'lists:read',
    'a',
    'M3 4.5l1 1 2-2M8 4.5h5M3 11l3 3M6 11l-3 3M8 12h5',
    later('lists'),
    true
  ],
  [
    'keys',
    'User keys',
    'keys:read',
    'k',
    'M9.5 6.5a3 3 0 1 0-2.8 2L8 10h2v2h2v2h2v-2.5L9.3 7',
    later('access', 'keys')
  ],
  [
    'bans',
    'Bans',
    'bans:read',
    'b',
    'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M4.2 4.2l7.6 7.6',
    later('access', 'bans')
  ],
  ['tokens', 'API tokens', 'tokens:read', 'p', 'M5 3 2 8l3 5M11 3l3 5-3 5', later('access', 'tokens')],
  ['webhooks', 'Webhooks', 'events:read', 'w', 'M2.5 7.5l11-5-4 11L7 9zM7 9l6.5-6.5', later('webhooks')],
  [
    'settings',
    'Configuration',
    'config:read',
    'c',
    'M2 5h6M11 5h3M2 11h3M8 11h6M9.5 3v4M6.5 9v4',
    later('settings'),
    true
  ],
  ['log', 'Log', 'events:read', 'l', 'M3 3.5h10v9H3zM5 6.5h6M5 9.5h4', later('log')],
  ['about', 'About', 'stats:read', 'i', 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 7.5v3.5M8 5v.5', later('about')]
]
const pages = table.map(([path, title, scope, key, icon, fill, apart]) => ({
  path,
  title,
  scope,
  key,
  icon,
  fill,
  apart
}))

/**
 * The page that a row of the torrents leads to.
 * @type {Page}
 */
const details = { path: 'torrent', title: 'Torrent', fill: later('torrents', 'torrent'), within: 'torrents' }

/** How long `g` waits for its second key. */
const CHORD_MS = 1500

let leave = () => {}
let turn = 0

// Themes.

const theme = () => stored('theme') ?? 'auto'

/** @param {string} name */
function setTheme(name) {
  if (name === 'auto') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = name
  store('theme', name)
  dispatchEvent(new Event('theme'))
}

function themeChoice() {
  const options = ['auto', 'light', 'dark'].map(name =>
    h('option', { value: name, selected: name === theme() }, `Theme: ${name}`)
  )
  return h('select.small', { 'aria-label': 'Colour theme', onchange: event => setTheme(event.target.value) }, options)
}

// Sign-in.

/**
 * @param {string} name
 * @param {Record<string, any>} attributes
 */
const brand = (name, attributes = {}) =>
  h(`${name}.brand`, attributes, h('img', { src: '/icon.svg', alt: '', width: 26, height: 26 }), 'tidegate')

/** @param {string} text */
const sentence = text => text.replace(/^./, first => first.toUpperCase())

/** @param {string} [why] */
function signIn(why) {
  leave()
  leave = () => {}
  turn++
  // Without a session there are no pages.
  window.onhashchange = null
  window.onkeydown = null
  const token = h('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'current-password',
    required: true,
    autofocus: true,
    placeholder: 'tg_…',
    spellcheck: 'false'
  })
  const fault = h('p.fault', { role: 'alert', hidden: !why }, why)
  const form = h(
    'form.card',
    {
      onsubmit: async event => {
        event.preventDefault()
        try {
          start(await session.open(token.value.trim()))
        } catch (problem) {
          fault.hidden = false
          fault.textContent = sentence(problem.message)
          token.select()
        }
      }
    },
    brand('h1'),
    h('label.field', 'Token', token),
    fault,
    h('button.primary', 'Sign in'),
    h(
      'p.soft',
      'The first start prints a link that signs in, or writes a token to the file ',
      h('code', 'first-token'),
      ' in its state directory: ',
      h('code', '/var/lib/tidegate'),
      ' for packages, ',
      h('code', '~/.local/state/tidegate'),
      ' for users.'
    ),
    h(
      'p.soft',
      'Lost it? Start tidegate once with ',
      h('code', 'TIDEGATE_BOOTSTRAP_TOKEN'),
      ' set to a token of your own.'
    )
  )
  document.title = 'Sign in: tidegate'
  put(document.body, h('main.login', form))
  token.focus()
}

// The frame around pages.

/** @param {string} path */
const icon = path => s('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, s('path', { d: path }))

/** @param {{ name: string, scopes: string[], cluster: boolean, site: boolean }} session */
function start({ name, scopes, cluster, site }) {
  /** @param {string} scope */
  const may = scope => scopes.includes('*') || scopes.includes(scope)
  const allowed = pages.filter(({ scope }) => may(scope))
  /** @type {Record<string, boolean>} */
  const isThere = { nodes: cluster, site }
  const open = allowed.filter(({ path }) => isThere[path] ?? true)
  const links = new Map(
    open.map(page => [
      page.path,
      h(
        'a',
        { href: `#/${page.path}`, class: page.apart && 'apart', title: `g ${page.key}` },
        icon(page.icon),
        page.title
      )
    ])
  )
  const main = h('main', { id: 'main', tabindex: '-1' })
  const menu = h(
    'button.menu',
    {
      'aria-controls': 'side',
      onclick: () => unfold(menu.ariaExpanded !== 'true')
    },
    h('span', { 'aria-hidden': 'true' }, '☰'),
    h('span.title', 'Menu')
  )
  const side = h(
    '.side',
    { id: 'side' },
    h('nav', { 'aria-label': 'Pages' }, [...links.values()]),
    h(
      'footer',
      h('span.who', `Signed in as ${name || 'unnamed token'}`),
      h(
        '.row',
        themeChoice(),
        button('Keys', () => help(open), 'small'),
        button(
          'Sign out',
          async () => {
            await session.close().catch(() => {})
            signIn()
          },
          'small'
        )
      )
    )
  )
  /** @param {boolean} isOpen */
  const unfold = isOpen => {
    menu.ariaExpanded = isOpen
    side.classList.toggle('open', isOpen)
  }
  put(
    document.body,
    h(
      'a.skip.button',
      {
        href: '#main',
        onclick: event => {
          event.preventDefault()
          main.focus()
        }
      },
      'Skip to content'
    ),
    h('.shell', h('header.topbar', brand('a', { href: '#/overview' }), menu), side, main)
  )

  async function show() {
    leave()
    leave = () => {}
    const own = ++turn
    const [path = '', ...rest] = location.hash.replace(/^#\/?/, '').split('/')
    /** @type {Page} */
    const page = [details, ...allowed].find(one => one.path === path) ??
      open[0] ?? {
        path: '',
        title: 'No page',
        fill() {
          put(
            main,
            h('h1', 'No page'),
            h('p.empty', 'This token has no permission for any page. Sign in with another one.')
          )
        }
      }
    document.title = `${page.title}: tidegate`
    menu.querySelector('.title').textContent = page.title
    unfold(false)
    for (const [name, link] of links) {
      link.ariaCurrent = name === (page.within ?? page.path) ? 'page' : null
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
      if (main.childElementCount === 0)
        put(main, h('h1', page.title), h('p.empty', 'This page could not be loaded.'), button('Try again', show))
      fail(problem)
    }
  }
  window.onhashchange = show
  window.onkeydown = shortcuts(open)
  show()
}

// The keyboard.

/**
 * Returns true if keys are text for an element, not commands.
 * @param {Element} element
 */
const takesText = element => element.closest('input, textarea, select, [contenteditable], dialog') != null

/** @param {Page[]} open */
function shortcuts(open) {
  let chord = 0
  return (/** @type {any} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || takesText(event.target)) return
    const isSecond = Date.now() - chord < CHORD_MS
    chord = 0
    const page = isSecond && open.find(({ key }) => key === event.key)
    if (page) location.hash = `#/${page.path}`
    else if (event.key === 'g') chord = Date.now()
    else if (event.key === '?') help(open)
    else if (event.key === '/') search(open)
    else return
    event.preventDefault()
  }
}

/**
 * Goes to the search of this page, or to that of torrents.
 * @param {Page[]} open
 */
async function search(open) {
  /** @returns {HTMLInputElement | null} */
  const field = () => document.querySelector('[data-search], main input[type=search]')
  if (!field() && open.some(({ path }) => path === 'torrents')) {
    location.hash = '#/torrents'
    for (let times = 0; times < 50 && !field(); times++) await new Promise(resolve => setTimeout(resolve, 40))
  }
  field()?.focus()
  field()?.select?.()
}

/** @param {Page[]} open */
function help(open) {
  const rows = [
    ['/', 'Search this page, or all torrents'],
    ['?', 'Show these keys'],
    ['Esc', 'Close a dialog; leave a chart'],
    ['← →', 'Move through the values of a chart that has the focus'],
    ...open.map(({ key, title }) => [`g ${key}`, `Go to ${title}`])
  ]
  dialog({
    title: 'Keys',
    content: h(
      'dl.keys',
      rows.map(([keys, text]) => [
        h(
          'dt',
          keys.split(' ').map(key => h('kbd', key))
        ),
        h('dd', text)
      ])
    )
  })
}

// `detail` says why, if that is known.
addEventListener('signed-out', (/** @type {any} */ { detail }) => {
  if (document.querySelector('.shell'))
    signIn(detail || 'The session has ended. It lasts 12 hours, or until tidegate is restarted. Sign in again.')
})

setTheme(theme())
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => dispatchEvent(new Event('theme')))
/** The token of a link that signs in. It leaves the address, and with it the history, before anything else happens. */
function takeToken() {
  const token = location.hash.match(/^#token=(.+)$/)?.[1]
  if (token) history.replaceState(null, '', `${location.pathname}#/overview`)
  return token
}

/**
 * Signs in by a token, or by the cookie if there is none.
 * @param {string} [token]
 */
async function enter(token) {
  try {
    const known = await (token ? session.open(token) : session.current().catch(() => null))
    if (known) start(known)
    else signIn()
  } catch (problem) {
    signIn(sentence(problem.message))
  }
}

// A link that is opened where the dashboard is open already.
addEventListener('hashchange', () => {
  const token = takeToken()
  if (token) enter(token)
})
await enter(takeToken())
