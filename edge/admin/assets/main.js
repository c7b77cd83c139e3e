// Sign-in, navigation between pages, and the colour theme.

import { session } from './client.js'
import { h, put, toast } from './dom.js'
import overview from './pages/overview.js'
import nodes from './pages/nodes.js'
import { torrent, torrents } from './pages/torrents.js'
import lists from './pages/lists.js'
import { bans, keys, tokens } from './pages/access.js'
import settings from './pages/settings.js'
import log from './pages/log.js'

// Path, title, function that renders the page, and the scope it needs. The function may return a cleanup for when
// the page is left.
const pages = [
  ['overview', 'Overview', overview, 'stats:read'],
  ['nodes', 'Nodes', nodes, 'stats:read'],
  ['torrents', 'Torrents', torrents, 'torrents:read'],
  ['lists', 'Access lists', lists, 'lists:read'],
  ['keys', 'User keys', keys, 'keys:read'],
  ['bans', 'Bans', bans, 'bans:read'],
  ['tokens', 'API tokens', tokens, 'tokens:read'],
  ['settings', 'Configuration', settings, 'config:read'],
  ['log', 'Log', log, 'events:read']
]

let leave = () => {}
let turn = 0

function theme () {
  const set = name => {
    if (name) document.documentElement.dataset.theme = name
    else delete document.documentElement.dataset.theme
  }
  set(localStorage.getItem('theme'))
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark'
  return h('button', {
    class: 'small',
    title: 'Switch between light and dark',
    'aria-label': 'Switch between light and dark',
    onclick: () => {
      const name = isDark() ? 'light' : 'dark'
      localStorage.setItem('theme', name)
      set(name)
    }
  }, '◐')
}

function signIn (why) {
  leave()
  leave = () => {}
  turn++
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, autofocus: true, placeholder: 'tg_…', spellcheck: 'false' })
  const fault = h('p', { class: 'tag bad', role: 'alert', hidden: !why }, why ?? '')
  const form = h('form', {
    class: 'card',
    onsubmit: async event => {
      event.preventDefault()
      try {
        start(await session.open(token.value.trim()))
      } catch (problem) {
        fault.hidden = false
        fault.textContent = problem.message
        token.select()
      }
    }
  },
  h('div', { class: 'brand' }, h('img', { src: '/icon.svg', alt: '' }), 'tidegate'),
  h('label', { class: 'field' }, 'Token', token),
  fault,
  h('button', { class: 'primary' }, 'Sign in'),
  h('p', { class: 'soft' }, 'The first start writes a token to the file first-token in state.dir, or prints it on a terminal. To set one yourself, start tidegate with TIDEGATE_BOOTSTRAP_TOKEN.'))
  document.title = 'tidegate: sign in'
  put(document.body, h('div', { class: 'login' }, form))
  token.focus()
}

function start ({ name, scopes }) {
  const may = scope => scopes.includes('*') || scopes.includes(scope)
  const open = pages.filter(([, , , scope]) => may(scope))
  const links = new Map(open.map(([path, title]) => [path, h('a', { href: `#/${path}` }, title)]))
  const main = h('main', { id: 'main', tabindex: '-1' })
  put(document.body,
    h('a', { class: 'skip button', href: '#main', onclick: event => { event.preventDefault(); main.focus() } }, 'Skip to content'),
    h('div', { class: 'shell' },
      h('div', { class: 'side' },
        h('div', { class: 'brand' }, h('img', { src: '/icon.svg', alt: '' }), 'tidegate'),
        h('nav', { 'aria-label': 'Pages' }, ...links.values()),
        h('footer', {},
          h('span', { class: 'who' }, `Token: ${name || 'unnamed'}`),
          h('div', { class: 'row' }, theme(),
            h('button', { class: 'small', onclick: async () => { await session.close().catch(() => {}); signIn() } }, 'Sign out')))),
      main))

  async function show () {
    leave()
    leave = () => {}
    const own = ++turn
    const [path = '', ...rest] = location.hash.replace(/^#\/?/, '').split('/')
    const [page, title, fill] = path === 'torrent'
      ? ['torrents', 'Torrent', torrent]
      : open.find(([name]) => name === path) ?? open[0] ?? ['', 'No page', () => put(main, h('p', { class: 'empty' }, 'This token has no permission for any page.'))]
    document.title = `${title}: tidegate`
    for (const [name, link] of links) {
      if (name === page) {
        link.setAttribute('aria-current', 'page')
        link.scrollIntoView({ block: 'nearest', inline: 'center' })
      } else link.removeAttribute('aria-current')
    }
    put(main)
    try {
      const left = await fill(main, { may, rest, isHere: () => own === turn })
      if (own === turn) leave = left ?? leave
      else left?.()
    } catch (problem) {
      if (own === turn) toast(problem.message, true)
    }
  }
  onhashchange = show
  show()
}

addEventListener('signed-out', () => {
  if (document.querySelector('.shell')) signIn('The session has expired. Sign in again.')
})

theme()
const known = await session.current().catch(() => null)
if (known) start(known)
else signIn()
