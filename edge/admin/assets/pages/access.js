// Who may announce (keys), who may not (bans), and who may use the API (tokens).

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

/** A form that makes something: fields by name, and what becomes of them. */
function maker (act, fields, make) {
  return h('form', {
    class: 'inline',
    onsubmit: async event => {
      event.preventDefault()
      const form = event.currentTarget
      try { await make(Object.fromEntries(new FormData(form)), form); form.reset() } catch (problem) { toast(problem.message, true) }
    }
  }, ...fields, h('button', { class: 'primary' }, act))
}

const ends = () => field('Ends after', h('select', { name: 'ends' },
  [['', 'never'], ['3600', 'an hour'], ['86400', 'a day'], ['604800', 'a week'], ['2592000', '30 days'], ['31536000', 'a year']]
    .map(([value, text]) => h('option', { value }, text))))
const end = seconds => seconds ? { expires: Math.floor(Date.now() / 1000) + Number(seconds) } : {}

const remover = (question, act, path, again) => h('button', {
  class: 'small danger',
  onclick: async () => {
    if (!await confirm(question, act)) return
    try { await api.delete(path); await again() } catch (problem) { toast(problem.message, true) }
  }
}, act)

export async function keys (main, { may }) {
  const form = may('keys:write') && maker('Make a key', [
    field('Name', h('input', { name: 'name', maxlength: 100, required: true })),
    field('Torrents, at most', h('input', { name: 'torrents', type: 'number', min: 0, value: 0 })),
    field('Addresses, at most', h('input', { name: 'addresses', type: 'number', min: 0, max: 65535, value: 0 })),
    ends()
  ], async ({ name, torrents, addresses, ends }) => {
    const key = await api.post('/keys', { name, torrents: Number(torrents), addresses: Number(addresses), ...end(ends) })
    put(page.fresh, h('section', { class: 'card' }, h('p', {}, `The key of ${key.name}, for announce URLs as /announce/KEY:`), h('code', { class: 'secret' }, key.key)))
    await page.again()
  })
  const page = await records(main, {
    title: 'Keys',
    form,
    load: async again => {
      const { keys, total } = await api.get('/keys?limit=200')
      return [h('div', { class: 'top' }, h('h2', {}, 'User keys'), h('span', { class: 'soft' }, `${count(total)} in force`)),
        keys.length === 0
          ? h('p', { class: 'empty' }, 'There are none. Listeners with [access] private = true serve nobody without one.')
          : table([
            ['Name', key => key.name || '–'],
            ['Key', key => h('span', { class: 'mono' }, `${key.key.slice(0, 4)}…`), 'wide'],
            ['Uploaded', key => bytes(key.totals.uploaded), 'num'],
            ['Downloaded', key => bytes(key.totals.downloaded), 'num'],
            ['Seeding', key => span(key.totals.seeding_s), 'num wide'],
            ['Ends', key => time(key.expires), 'wide'],
            ['', key => may('keys:write') && remover(`Revoke the key of ${key.name || 'nobody'}?`, 'Revoke', `/keys/${key.id}`, again), 'actions']
          ], keys, 'Keys')]
    }
  })
}

export async function bans (main, { may }) {
  const form = may('bans:write') && maker('Ban', [
    field('Address or network', h('input', { name: 'network', required: true, placeholder: '192.0.2.0/24', spellcheck: 'false' })),
    field('Reason', h('input', { name: 'reason', maxlength: 100 })),
    ends()
  ], async ({ network, reason, ends }) => {
    const ban = await api.post('/bans', { network: network.trim(), reason, ...end(ends) })
    toast(`${ban.network} is banned.`)
    await page.again()
  })
  const page = await records(main, {
    title: 'Bans',
    form,
    load: async again => {
      const { bans, total } = await api.get('/bans?limit=200')
      return [h('div', { class: 'top' }, h('h2', {}, 'Networks that are not served'), h('span', { class: 'soft' }, `${count(total)} in force`)),
        bans.length === 0
          ? h('p', { class: 'empty' }, 'There are none.')
          : table([
            ['Network', ban => h('span', { class: 'mono' }, ban.network)],
            ['Reason', ban => [ban.reason || '–', ban.automatic && h('span', { class: 'tag' }, 'automatic')]],
            ['Since', ban => time(ban.created), 'wide'],
            ['Ends', ban => time(ban.expires)],
            ['', ban => may('bans:write') && remover(`End the ban of ${ban.network}?`, 'End', `/bans/${ban.network}`, again), 'actions']
          ], bans, 'Bans')]
    }
  })
}

const SCOPES = ['*', 'stats:read', 'torrents:read', 'torrents:write', 'peers:read', 'peers:write', 'lists:read', 'lists:write',
  'keys:read', 'keys:write', 'bans:read', 'bans:write', 'tokens:read', 'tokens:write', 'config:read', 'config:write', 'certificates:write', 'events:read']

export async function tokens (main, { may }) {
  const form = may('tokens:write') && maker('Make a token', [
    field('Name', h('input', { name: 'name', maxlength: 100, required: true })),
    field('May', h('select', { name: 'scopes', multiple: true, required: true, size: 5 }, SCOPES.map(scope => h('option', {}, scope)))),
    ends()
  ], async ({ name, ends }, form) => {
    const scopes = [...form.elements.scopes.selectedOptions].map(option => option.value)
    const token = await api.post('/tokens', { name, scopes, ...end(ends) })
    put(page.fresh, h('section', { class: 'card' }, h('p', {}, `The token ${token.name}, shown this once:`), h('code', { class: 'secret' }, token.secret)))
    await page.again()
  })
  const page = await records(main, {
    title: 'Tokens',
    form,
    load: async again => {
      const { tokens } = await api.get('/tokens')
      return [h('div', { class: 'top' }, h('h2', {}, 'Who may use the API')),
        table([
          ['Name', token => token.name || '–'],
          ['May', token => token.scopes.map(scope => h('span', { class: 'tag' }, scope))],
          ['Made', token => token.created ? time(token.created) : '–', 'wide'],
          ['Ends', token => time(token.expires)],
          ['', token => may('tokens:write') && token.id > 0 && remover(`Revoke the token ${token.name}? Whoever uses it is locked out.`, 'Revoke', `/tokens/${token.id}`, again), 'actions']
        ], tokens, 'Tokens')]
    }
  })
}
