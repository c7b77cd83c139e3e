// Webhooks: why one cannot be made here, a test, and the log of deliveries. The tracker of these tests permits no
// port, so the API's answers about webhooks are made up.

import assert from 'node:assert/strict'
import { findings } from './accessibility.mjs'

export default async function ({ page, has, click, visit, write }) {
  await visit('webhooks', 'Webhooks')
  await page.until(has('No webhooks.'), 'that there are none')
  await click('Create webhook …')
  await page.until('document.querySelector("dialog input[name=url]")', 'the form')
  assert.ok(await page.value(has('so every URL is refused')))
  assert.deepEqual(await findings(page), [], 'the form')
  await write('dialog input[name=url]', 'https://hooks.example.org/')
  await click('Create')
  await page.until(has('webhook_ports does not contain port 443'), 'the reason')
  // The browser notes that a request was answered with 403.
  page.errors.splice(0)
  await click('Cancel')

  const time = 1760000000
  const delivery = { time, event_id: 7, kind: 'ban', attempt: 2, outcome: 'failed', status: 503, duration_ms: 31 }
  const webhooks = [{ id: 1, url: 'https://hooks.example.org/x', events: ['ban', 'warning'], created: time, active: true, last_delivery: delivery }]
  await page.answer('*/api/v1/webhooks*', ({ url, method }) => {
    if (url.endsWith('/test')) return { ...delivery, event_id: 0, kind: 'test', outcome: 'delivered', status: 204 }
    if (url.endsWith('/deliveries')) return { deliveries: [delivery, { ...delivery, attempt: 1, status: undefined, error: 'timed out' }] }
    return method === 'GET' ? { webhooks } : {}
  })
  await visit('overview', 'Overview')
  await visit('webhooks', 'Webhooks')
  await page.until(`${has('hooks.example.org/x')} && ${has('status 503')}`, 'the webhook with its last delivery')
  await click('Test')
  await page.until(has('The receiver accepted the test event: status 204 after 31 ms.'), 'the test')
  await click('Deliveries')
  await page.until(`${has('timed out')} && document.querySelectorAll('dialog tbody tr').length === 2`, 'the deliveries')
  assert.deepEqual(await findings(page), [], 'the deliveries')
  await click('Close')
  assert.ok(!await page.value(has('ended')))
  webhooks[0].active = false
  await page.until(has('ended'), 'that its token has ended')
}
