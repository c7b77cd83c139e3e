// @ts-check
// Webhooks: URLs that events are posted to, their tests and their deliveries.

import { api, repeat } from '../client.js'
import { attempt, breakable, button, confirm, copyButton, dialog, liveTable, pagedTable } from '../components.js'
import { h, put } from '../dom.js'
import { clock, time } from '../format.js'
import { checkboxes, textField } from '../forms.js'
import { names } from '../names.js'

const REFRESH_MS = 5000
// Events that a new webhook gets unless chosen otherwise: those an operator acts on.
const USUAL = ['ban', 'reload', 'warning']

const result = delivery => (delivery.status ? `status ${delivery.status}` : (delivery.error ?? 'no response'))

const outcome = ({ outcome: name }) => h(`span.tag${{ delivered: '.good', dropped: '.bad' }[name] ?? ''}`, name)
const ended = () => h('span.tag.bad', { title: 'The token that created it has expired or was revoked.' }, 'ended')
const last = delivery =>
  delivery
    ? [outcome(delivery), ' ', h('span.soft', `${result(delivery)}, ${time(delivery.time)}`)]
    : h('span.soft', 'none yet')

export default async function webhooks(main, { may, isHere }) {
  const writes = may('config:write')
  const known = await names()
  if (!isHere()) return
  const list = pagedTable({
    isHere,
    caption: 'Webhooks',
    one: 'webhook',
    cards: true,
    key: webhook => webhook.id,
    empty: 'No webhooks.',
    every: REFRESH_MS,
    search: { label: 'Search by URL or event', placeholder: 'URL or event' },
    // There are few: the API returns all of them.
    load: async ({ text }) => {
      const words = text.toLowerCase()
      /** @type {import('api').components['schemas']['WebhookList']} */
      const { webhooks: all } = await api.get('/webhooks')
      const rows = all.filter(({ url, events }) => [url, ...events].some(one => one.toLowerCase().includes(words)))
      return { rows, next: null, total: rows.length }
    },
    columns: [
      ['URL', webhook => h('span.mono', breakable(webhook.url))],
      [
        'Events',
        webhook =>
          webhook.events.map(kind => [
            h('span.tag', { title: known('events', kind).text }, known('events', kind).title),
            ' '
          ])
      ],
      ['Last delivery', webhook => [webhook.active ? '' : [ended(), ' '], last(webhook.last_delivery)]],
      [
        '',
        webhook => [
          writes && button('Test', event => test(webhook.id, event.target), 'small', `Test ${webhook.url}`),
          ' ',
          button('Deliveries', () => deliveries(webhook), 'small', `Deliveries to ${webhook.url}`),
          ' ',
          writes && button('Remove', () => remove(webhook), 'small danger', `Remove ${webhook.url}`)
        ],
        'actions'
      ]
    ]
  })

  async function test(id, button) {
    button.disabled = true
    await attempt(
      async () => {
        const delivery = await api.post(`/webhooks/${id}/test`)
        const text = `${result(delivery)} after ${delivery.duration_ms} ms`
        if (delivery.outcome !== 'delivered') throw new Error(`The receiver did not accept the test event: ${text}.`)
        return `The receiver accepted the test event: ${text}.`
      },
      text => text
    )
    button.disabled = false
    await list.again()
  }

  async function deliveries({ id, url }) {
    const table = liveTable({
      caption: 'Deliveries',
      cards: true,
      key: one => `${one.event_id} ${one.attempt} ${one.time} ${one.duration_ms}`,
      empty: 'None since the start of the tracker.',
      columns: [
        ['Time', one => clock(one.time)],
        ['Event', one => (one.kind === 'test' ? 'test' : `${known('events', one.kind).title} (${one.event_id})`)],
        ['Attempt', one => String(one.attempt), 'num'],
        ['Outcome', outcome],
        ['Response', result],
        ['Took', one => `${one.duration_ms} ms`, 'num']
      ]
    })
    const load = async () => table.update((await api.get(`/webhooks/${id}/deliveries`)).deliveries)
    if (!(await attempt(load))) return
    const stop = repeat(() => load().catch(() => {}), REFRESH_MS)
    await dialog({
      title: 'Deliveries',
      wide: true,
      content: [
        h('p.mono.break', url),
        h(
          'p.hint',
          'The last 50 attempts, newest first. An event that failed is posted again after 1 s, 5 s, 30 s, 2 min and 10 min, and then dropped.'
        ),
        table.element
      ]
    })
    stop()
  }

  async function remove({ id, url }) {
    const go = await confirm({
      title: 'Remove this webhook?',
      text: [url, 'Events that wait for it are dropped. This cannot be undone: a new webhook has a new secret.'],
      action: 'Remove'
    })
    if (go && (await attempt(() => api.delete(`/webhooks/${id}`), 'Webhook removed.'))) await list.again()
  }

  async function create() {
    const { settings } = await api.get('/config')
    const ports = settings.find(setting => setting.name === 'admin.webhook_ports')?.value ?? []
    const url = textField('url', 'URL', {
      type: 'url',
      required: true,
      autofocus: true,
      maxlength: 2000,
      hint: `Its port must be one of [admin] webhook_ports: ${ports.length > 0 ? `now ${ports.join(', ')}` : 'now there is none, so every URL is refused'}.`
    })
    const kinds = checkboxes('Events', known.lists.events, USUAL)
    const act = () => {
      if (kinds.value().length === 0) throw new Error('Events: choose at least one.')
      return api.post('/webhooks', { url: url.value(), events: kinds.value() })
    }
    const webhook = await dialog({
      title: 'Create webhook',
      wide: true,
      content: [url.element, kinds.element],
      action: 'Create',
      act
    })
    if (!webhook) return
    await list.again()
    await dialog({
      title: 'Webhook created',
      content: [
        h('p', 'The key of its signatures. Copy it now, it cannot be shown again:'),
        h('.row', h('code.secret', webhook.secret), copyButton(webhook.secret, 'Copy', 'Copy secret')),
        h(
          'p.hint',
          'The header Tidegate-Signature of each post has the time and the HMAC-SHA256 of time, a dot and the body under this key.'
        )
      ]
    })
  }

  put(
    main,
    h('.head', h('h1', 'Webhooks'), list.box),
    h('p.hint', 'Events are posted to these URLs as JSON, signed, and again if the receiver does not accept them.'),
    writes &&
      h(
        '.row.tools',
        button('Create webhook …', () => attempt(create), 'primary')
      ),
    list.element
  )
  await list.again()
  return list.stop
}
