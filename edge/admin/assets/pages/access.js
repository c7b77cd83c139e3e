// @ts-check
// User keys, bans and API tokens.

import { api } from '../client.js'
import { announceUrls, attempt, button, confirm, copyButton, dialog, fail, pagedTable, say } from '../components.js'
import { h, put } from '../dom.js'
import { bytes, counted, span, time } from '../format.js'
import { checkboxes, expires, expiry, fileButton, labelled, number, textField } from '../forms.js'
import { names } from '../names.js'

const PAGE = 50

/** @typedef {import('api').components['schemas']} Schemas */

/**
 * Returns what loads a page of the records below `path`.
 * @param {string} path
 * @param {string} list the property of the response that has the records
 * @returns {import('../components.js').Loader}
 */
const loader =
  (path, list) =>
  async ({ cursor, text }) => {
    const query = new URLSearchParams({ limit: String(PAGE) })
    if (text) query.set('q', text)
    if (cursor) query.set('cursor', cursor)
    const page = await api.get(`${path}?${query}`)
    return { rows: page[list], next: page.next, total: page.total }
  }

function layout(main, title, list, about, ...more) {
  put(main, h('.head', h('h1', title), list.box), h('p.hint', about), ...more, list.element)
  return list.again()
}

// Keys.

/** @typedef {'torrents' | 'addresses' | 'peers_per_torrent' | 'announces_per_minute'} Limit */
/** @type {[Limit, string, { one: string, max?: number, hint: string }][]} */
const LIMITS = [
  ['torrents', 'Torrents', { one: 'torrent', hint: 'At the same time. 0 = unlimited.' }],
  ['addresses', 'Addresses', { one: 'address', max: 65535, hint: 'IP addresses at the same time. 0 = unlimited.' }],
  [
    'peers_per_torrent',
    'Peers per torrent',
    { one: 'peer per torrent', max: 65535, hint: 'Clients in one torrent. 0 = unlimited.' }
  ],
  [
    'announces_per_minute',
    'Announces per minute',
    { one: 'announce per minute', max: 65535, hint: 'More are refused. 0 = unlimited.' }
  ]
]

/** @param {Schemas['Key']} [key] */
function keyForm(key) {
  const name = textField('name', 'Name', {
    value: key?.name ?? '',
    maxlength: 100,
    autofocus: true,
    hint: 'For you: who has this key.'
  })
  const ends = expiry(key ? (key.expires ?? null) : undefined)
  const limits = LIMITS.map(([field, label, options]) => number(field, label, { ...options, value: key?.[field] ?? 0 }))
  return {
    content: [
      h('.fields', name.element, ends.element),
      h(
        '.fields',
        limits.map(limit => limit.element)
      )
    ],
    value: () => ({
      name: name.value(),
      expires: ends.value(),
      ...Object.fromEntries(limits.map((limit, at) => [LIMITS[at][0], limit.value()]))
    })
  }
}

/**
 * @param {string} title
 * @param {Schemas['Key']} key
 */
const showKey = (title, key) =>
  dialog({
    title,
    wide: true,
    content: [
      h('p', key.name ? `Key of ${key.name}:` : 'Key:'),
      h('.row', h('code.secret', key.key), copyButton(key.key, 'Copy', 'Copy key')),
      ...(key.announce_urls.length > 0
        ? [
            h(
              'p',
              'Announce URLs with it, for the user’s torrents. Behind a proxy or NAT, replace the host by the public one:'
            ),
            announceUrls(key.announce_urls.map(url => ({ url })))
          ]
        : [h('p', 'No listener asks for keys ([access] private = true does), so there is no announce URL with one.')])
    ]
  })

/** @param {Schemas['Key']} key */
const limitsOf = key =>
  LIMITS.filter(([field]) => key[field] > 0)
    .map(([field, label, { one }]) => counted(key[field], one, { many: label.toLowerCase() }))
    .join(', ')

export async function keys(main, { may, isHere }) {
  const writes = may('keys:write')
  const list = pagedTable({
    isHere,
    caption: 'Keys',
    one: 'key',
    cards: true,
    key: key => key.id,
    empty: 'No keys. Listeners with [access] private = true refuse clients without one.',
    search: { label: 'Search by name, beginning of the key, or id', placeholder: 'Name, beginning of the key, id' },
    load: /** @type {import('../components.js').Loader<Schemas['Key']>} */ (loader('/keys', 'keys')),
    columns: [
      ['Name', key => key.name || '–', undefined, undefined, key => key.name !== ''],
      ['Key', key => h('span.mono', `${key.key.slice(0, 6)}…`, copyButton(key.key, '', 'Copy key'))],
      ['Uploaded', key => bytes(key.totals.uploaded), 'num', undefined, key => key.totals.uploaded > 0],
      ['Downloaded', key => bytes(key.totals.downloaded), 'num', undefined, key => key.totals.downloaded > 0],
      ['Seeding time', key => span(key.totals.seeding_s), 'num wide', undefined, key => key.totals.seeding_s > 0],
      [
        'First used',
        key => (key.first_used ? time(key.first_used) : h('span.soft', 'not yet')),
        'wide',
        undefined,
        key => Boolean(key.first_used)
      ],
      ['Limits', key => limitsOf(key) || h('span.soft', 'none'), 'wide', undefined, key => limitsOf(key) !== ''],
      ['Expires', key => expires(key.expires), undefined, undefined, key => key.expires != null],
      [
        '',
        ({ id, name }) => [
          button(
            'URLs',
            () => fetched(id).then(key => key && showKey('Announce URLs', key)),
            'small',
            `Announce URLs of ${name || id}`
          ),
          ' ',
          writes && button('Change', () => change(id), 'small', `Change ${name || id}`),
          ' ',
          writes && button('Revoke', () => revoke(id), 'small danger', `Revoke ${name || id}`)
        ],
        'actions'
      ]
    ]
  })

  /**
   * The key as it is now; a row may be older.
   * @param {number} id
   * @returns {Promise<Schemas['Key'] | undefined>}
   */
  const fetched = id => api.get(`/keys/${id}`).catch(fail)

  async function create() {
    const form = keyForm()
    const key = await dialog({
      title: 'Create key',
      content: form.content,
      wide: true,
      action: 'Create',
      act: () => api.post('/keys', form.value())
    })
    if (!key) return
    await list.restart()
    await showKey('Key created', key)
  }

  async function change(id) {
    const key = await fetched(id)
    if (!key) return
    const form = keyForm(key)
    const changed = await dialog({
      title: `Change ${key.name || `key ${id}`}`,
      content: form.content,
      wide: true,
      action: 'Apply',
      act: () => api.patch(`/keys/${id}`, form.value())
    })
    if (changed) {
      say('Key changed.')
      await list.again()
    }
  }

  async function revoke(id) {
    const key = await fetched(id)
    if (!key) return
    const go = await confirm({
      title: `Revoke the key ${key.name || id}?`,
      text: 'Clients that use it are refused at once.',
      action: 'Revoke'
    })
    if (!go) return
    const again = Object.fromEntries(
      ['key', 'name', 'expires', ...LIMITS.map(([field]) => field)].map(field => [field, key[field]])
    )
    await attempt(() => api.delete(`/keys/${id}`), `Key ${key.name || id} revoked.`, {
      undo: () => api.post('/keys', again).then(list.again),
      undone: 'The key is valid again, with its limits. Its totals begin at 0.'
    })
    await list.again()
  }

  await layout(
    main,
    'User keys',
    list,
    'A key is a part of a user’s announce URL. Listeners with [access] private = true serve only clients with a valid key, and count for each what its clients report.',
    writes && h('.row.tools', button('Create key …', create, 'primary'))
  )
  return list.stop
}

// Bans.

const BULK = 1000

/** Returns what bans a network as `ban` does. */
const again = ({ network, reason, expires }) => ({ network, reason, expires: expires ?? undefined })

/** Asks which networks to ban, and why. Calls `changed` when that is done, and when it is undone. */
export async function ban(network = '', changed = () => {}) {
  const networks = h(
    'textarea',
    {
      name: 'networks',
      required: true,
      autofocus: true,
      spellcheck: 'false',
      placeholder: '192.0.2.0/24\n2001:db8::/32'
    },
    network
  )
  const reason = textField('reason', 'Reason', { maxlength: 100, hint: 'For you and the log. Clients are not told.' })
  const ends = expiry()
  let before = []
  const done = await dialog({
    title: 'Ban networks',
    wide: true,
    content: [
      network &&
        h('p', 'Behind one address or network there may be many clients: those of a provider, a proxy or a VPN.'),
      labelled(
        'Addresses or networks, one per line',
        networks,
        'Text after # or ; is ignored, so that published block lists can be used as they are.'
      ),
      h(
        '.row',
        fileButton('From a file …', '.txt,.netset,.ipset,text/plain', async file => {
          networks.value = await file.text()
        })
      ),
      h('.fields', reason.element, ends.element)
    ],
    action: 'Ban',
    act: async () => {
      const all = networks.value
        .split('\n')
        .map(line => line.replace(/[#;].*/, '').trim())
        .filter(Boolean)
      if (all.length === 0) throw new Error('Networks: expected at least one address or network.')
      const rest = { reason: reason.value(), expires: ends.value() ?? undefined }
      if (all.length === 1) {
        // A ban of the same network is replaced; Undo restores it.
        before = (
          await api.get(`/bans?${new URLSearchParams({ q: all[0], limit: '1000' })}`).catch(() => ({ bans: [] }))
        ).bans
        return api.post('/bans', { network: all[0], ...rest })
      }
      for (let at = 0; at < all.length; at += BULK)
        await api.post('/bans/bulk', { networks: all.slice(at, at + BULK), ...rest })
      return all
    }
  })
  if (!done) return
  if (Array.isArray(done)) say(`${counted(done.length, 'network')} banned.`)
  else {
    const { network } = done
    const old = before.find(ban => ban.network === network)
    say(`${network} banned.`, {
      undo: () => (old ? api.post('/bans', again(old)) : api.delete(`/bans/${network}`)).then(changed),
      undone: old ? `${network} is banned as before.` : `${network} is no longer banned.`
    })
  }
  changed()
}

export async function bans(main, { may, isHere }) {
  const writes = may('bans:write')
  const list = pagedTable({
    isHere,
    caption: 'Bans',
    one: 'ban',
    cards: true,
    key: ban => ban.network,
    empty: 'No bans.',
    noMatch: text => `No ban matches “${text}”. An IP address finds the bans that contain it.`,
    search: {
      label: 'Search by network, reason, or an address that may be banned',
      placeholder: 'Address, network or reason'
    },
    load: /** @type {import('../components.js').Loader<Schemas['Ban']>} */ (loader('/bans', 'bans')),
    columns: [
      ['Network', ban => h('span.mono', ban.network)],
      [
        'Reason',
        ban => [
          ban.automatic ? h('span', { title: ban.reason }, reasons(ban.reason)) : ban.reason || '–',
          ban.automatic && [' ', h('span.tag', 'automatic')]
        ]
      ],
      ['Banned', ban => time(ban.created), 'wide'],
      ['Expires', ban => expires(ban.expires), undefined, undefined, ban => ban.expires != null],
      [
        '',
        ban => writes && button('Remove', () => remove(ban), 'small danger', `Remove the ban of ${ban.network}`),
        'actions'
      ]
    ]
  })
  const known = await names()
  if (!isHere()) return
  const reasons = label => known('bans', label).title

  async function remove(ban) {
    const { network } = ban
    await attempt(() => api.delete(`/bans/${network}`), `${network} is no longer banned.`, {
      undo: () => api.post('/bans', again(ban)).then(list.again),
      undone: `${network} is banned again.`
    })
    await list.again()
  }

  await layout(
    main,
    'Bans',
    list,
    'Requests from banned networks are dropped without a reply. The tracker bans networks itself if [bans] says so.',
    writes &&
      h(
        '.row.tools',
        button('Ban networks …', () => ban('', list.restart), 'primary')
      )
  )
  return list.stop
}

// Tokens.

/** @type {[string, (scopes: string[]) => string[]][]} */
const PRESETS = [
  ['Full access', () => ['*']],
  ['Read only', all => all.filter(scope => scope.endsWith(':read'))],
  ['Monitoring', () => ['stats:read']],
  ['Site with user keys', () => ['stats:read', 'keys:read', 'keys:write']],
  ['Moderator', all => all.filter(scope => /^(stats:read|(torrents|peers|lists|bans):)/.test(scope))]
]

export async function tokens(main, { may, isHere }) {
  const writes = may('tokens:write')
  const known = await names()
  if (!isHere()) return
  const scopes = known.lists.scopes
  const list = pagedTable({
    isHere,
    caption: 'Tokens',
    one: 'token',
    cards: true,
    key: token => token.id,
    search: { label: 'Search by name or permission', placeholder: 'Name or permission' },
    load: /** @type {import('../components.js').Loader<Schemas['Token']>} */ (loader('/tokens', 'tokens')),
    columns: [
      ['Name', token => token.name || '–'],
      [
        'Permissions',
        token =>
          token.scopes.map(scope => [
            h('span.tag', { title: known('scopes', scope).text }, scope === '*' ? 'full access' : scope),
            ' '
          ])
      ],
      [
        'Created',
        token => (token.created ? time(token.created) : '–'),
        'wide',
        undefined,
        token => Boolean(token.created)
      ],
      ['Expires', token => expires(token.expires), undefined, undefined, token => token.expires != null],
      [
        '',
        token =>
          token.id === 0
            ? h(
                'span.soft',
                { title: 'It is valid as long as the environment variable is set.' },
                'set by the environment'
              )
            : writes &&
              token.scopes.every(may) &&
              button('Revoke', () => revoke(token), 'small danger', `Revoke ${token.name}`),
        'actions'
      ]
    ]
  })

  async function revoke({ id, name }) {
    const go = await confirm({
      title: `Revoke the token ${name || id}?`,
      text: 'Programs that use it lose access at once. This cannot be undone: create a new token instead.',
      action: 'Revoke'
    })
    if (go && (await attempt(() => api.delete(`/tokens/${id}`), `Token ${name || id} revoked.`))) await list.again()
  }

  async function create() {
    const choices = scopes
      .filter(scope => may(scope.name))
      .map(({ name, title, text }) => ({ name, title: text || title, text: name }))
    const name = textField('name', 'Name', {
      maxlength: 100,
      required: true,
      autofocus: true,
      hint: 'For you: what uses this token.'
    })
    const ends = expiry()
    const boxes = checkboxes('Permissions', choices, ['stats:read'])
    const single = choices.map(scope => scope.name).filter(scope => scope !== '*')
    const presets = PRESETS.map(([label, of]) => ({ label, wanted: of(single) }))
    const usable = presets.filter(({ wanted }) => wanted.length > 0 && wanted.every(may))
    const act = () => {
      const wanted = boxes.value()
      if (wanted.length === 0) throw new Error('Permissions: choose at least one.')
      return api.post('/tokens', {
        name: name.value(),
        scopes: wanted.includes('*') ? ['*'] : wanted,
        expires: ends.value()
      })
    }
    const token = await dialog({
      title: 'Create token',
      wide: true,
      content: [
        h('.fields', name.element, ends.element),
        h(
          '.row',
          { role: 'group', 'aria-label': 'Presets' },
          usable.map(({ label, wanted }) => button(label, () => boxes.set(wanted), 'small'))
        ),
        boxes.element
      ],
      action: 'Create',
      act
    })
    if (!token) return
    await list.restart()
    await dialog({
      title: 'Token created',
      content: [
        h('p', `Copy the token ${token.name} now. It cannot be shown again:`),
        h('.row', h('code.secret', token.secret), copyButton(token.secret, 'Copy', 'Copy token'))
      ]
    })
  }

  await layout(
    main,
    'API tokens',
    list,
    'Programs, and people in this dashboard, sign in with a token. Give each only what it needs.',
    writes && h('.row.tools', button('Create token …', create, 'primary'))
  )
  return list.stop
}
