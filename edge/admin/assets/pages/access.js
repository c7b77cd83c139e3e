// User keys, bans and API tokens.

import { api } from '../client.js'
import { confirm, field, h, put, table, toast } from '../dom.js'
import { bytes, count, span, time } from '../format.js'

/** A page with a form above and a table below. */
async function records (main, { title, form, load }) {
  const body = h('section', { class: 'card' })
  const fresh = h('div', {})
  put(main, h('div', { class: 'head' }, h('h1', {}, title)), fresh, form && h('section', { class: 'card' }, form), body)
  async function again () {
    try { put(body, ...await load(again)) } catch (problem) { toast(problem.message, true) }
  }
  await again()
  return { again, fresh }
}

/** A form with `fields` and a button; calls `create` with the values. */
function creator (action, fields, create) {
  return h('form', {
    class: 'inline',
    onsubmit: async event => {
      event.preventDefault()
      const form = event.currentTarget
      try { await create(Object.fromEntries(new FormData(form)), form); form.reset() } catch (problem) { toast(problem.message, true) }
    }
  }, ...fields, h('button', { class: 'primary' }, action))
}

const expiry = () => field('Expires', h('select', { name: 'lifetime' },
  [['', 'never'], ['3600', 'in 1 hour'], ['86400', 'in 1 day'], ['604800', 'in 1 week'], ['2592000', 'in 30 days'], ['31536000', 'in 1 year']]
    .map(([value, text]) => h('option', { value }, text))))
const expires = seconds => seconds ? { expires: Math.floor(Date.now() / 1000) + Number(seconds) } : {}

const remover = (question, action, path, again) => h('button', {
  class: 'small danger',
  onclick: async () => {
    if (!await confirm(question, action)) return
    try { await api.delete(path); await again() } catch (problem) { toast(problem.message, true) }
  }
}, action)

export async function keys (main, { may }) {
  const form = may('keys:write') && creator('Create key', [
    field('Name', h('input', { name: 'name', maxlength: 100, required: true })),
    field('Max torrents (0 = unlimited)', h('input', { name: 'torrents', type: 'number', min: 0, value: 0 })),
    field('Max addresses (0 = unlimited)', h('input', { name: 'addresses', type: 'number', min: 0, max: 65535, value: 0 })),
    expiry()
  ], async ({ name, torrents, addresses, lifetime }) => {
    const key = await api.post('/keys', { name, torrents: Number(torrents), addresses: Number(addresses), ...expires(lifetime) })
    const urls = key.announce_urls
    put(page.fresh, h('section', { class: 'card' },
      h('p', {}, `Key created for ${key.name}:`), h('code', { class: 'secret' }, key.key),
      h('p', {}, urls.length > 0
        ? 'Announce URLs with it. Behind a proxy or NAT, replace the host by the public one:'
        : 'No listener is private ([access] private = true), so no announce URL takes a key.'),
      ...urls.map(url => h('code', { class: 'secret' }, url))))
    await page.again()
  })
  const page = await records(main, {
    title: 'User keys',
    form,
    load: async again => {
      const { keys, total } = await api.get('/keys?limit=200')
      return [h('div', { class: 'top' }, h('h2', {}, 'Keys'), h('span', { class: 'soft' }, `${count(total)} active`)),
        keys.length === 0
          ? h('p', { class: 'empty' }, 'No keys. Listeners with [access] private = true refuse clients without a key.')
          : table([
            ['Name', key => key.name || '–'],
            ['Key', key => h('span', { class: 'mono' }, `${key.key.slice(0, 4)}…`), 'wide'],
            ['Uploaded', key => bytes(key.totals.uploaded), 'num'],
            ['Downloaded', key => bytes(key.totals.downloaded), 'num'],
            ['Seeding time', key => span(key.totals.seeding_s), 'num wide'],
            ['Expires', key => time(key.expires), 'wide'],
            ['', key => may('keys:write') && remover(`Revoke the key ${key.name || key.id}? Clients that use it will be refused.`, 'Revoke', `/keys/${key.id}`, again), 'actions']
          ], keys, 'Keys')]
    }
  })
}

export async function bans (main, { may }) {
  const form = may('bans:write') && creator('Ban', [
    field('Address or network', h('input', { name: 'network', required: true, placeholder: '192.0.2.0/24', spellcheck: 'false' })),
    field('Reason', h('input', { name: 'reason', maxlength: 100 })),
    expiry()
  ], async ({ network, reason, lifetime }) => {
    const ban = await api.post('/bans', { network: network.trim(), reason, ...expires(lifetime) })
    toast(`${ban.network} banned.`)
    await page.again()
  })
  const page = await records(main, {
    title: 'Bans',
    form,
    load: async again => {
      const { bans, total } = await api.get('/bans?limit=200')
      return [h('div', { class: 'top' }, h('h2', {}, 'Banned networks'), h('span', { class: 'soft' }, `${count(total)} active`)),
        bans.length === 0
          ? h('p', { class: 'empty' }, 'No bans.')
          : table([
            ['Network', ban => h('span', { class: 'mono' }, ban.network)],
            ['Reason', ban => [ban.reason || '–', ban.automatic && h('span', { class: 'tag' }, 'automatic')]],
            ['Banned', ban => time(ban.created), 'wide'],
            ['Expires', ban => time(ban.expires)],
            ['', ban => may('bans:write') && remover(`Remove the ban of ${ban.network}?`, 'Remove', `/bans/${ban.network}`, again), 'actions']
          ], bans, 'Bans')]
    }
  })
}

const SCOPES = ['*', 'stats:read', 'torrents:read', 'torrents:write', 'peers:read', 'peers:write', 'lists:read', 'lists:write',
  'keys:read', 'keys:write', 'bans:read', 'bans:write', 'tokens:read', 'tokens:write', 'config:read', 'config:write', 'certificates:write', 'events:read']

export async function tokens (main, { may }) {
  const form = may('tokens:write') && creator('Create token', [
    field('Name', h('input', { name: 'name', maxlength: 100, required: true })),
    field('Permissions (Ctrl-click selects several)', h('select', { name: 'scopes', multiple: true, required: true, size: 8 },
      SCOPES.filter(may).map(scope => h('option', { value: scope }, scope === '*' ? '* (full access)' : scope)))),
    expiry()
  ], async ({ name, lifetime }, form) => {
    const scopes = [...form.elements.scopes.selectedOptions].map(option => option.value)
    const token = await api.post('/tokens', { name, scopes, ...expires(lifetime) })
    put(page.fresh, h('section', { class: 'card' }, h('p', {}, `Token ${token.name} created. Copy it now, it cannot be shown again:`), h('code', { class: 'secret' }, token.secret)))
    await page.again()
  })
  const page = await records(main, {
    title: 'API tokens',
    form,
    load: async again => {
      const { tokens } = await api.get('/tokens')
      return [h('div', { class: 'top' }, h('h2', {}, 'Tokens')),
        table([
          ['Name', token => token.name || '–'],
          ['Permissions', token => token.scopes.map(scope => h('span', { class: 'tag' }, scope === '*' ? 'full access' : scope))],
          ['Created', token => token.created ? time(token.created) : '–', 'wide'],
          ['Expires', token => time(token.expires)],
          ['', token => may('tokens:write') && token.id > 0 && token.scopes.every(may) && remover(`Revoke the token ${token.name}? Programs that use it lose access at once.`, 'Revoke', `/tokens/${token.id}`, again), 'actions']
        ], tokens, 'Tokens')]
    }
  })
}
