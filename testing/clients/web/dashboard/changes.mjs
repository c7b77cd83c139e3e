// Changes by the forms of lists, keys and bans; and what tokens, configuration and log show.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, has, click, visit, write, text, call } = dashboard
  await visit('lists', 'Access lists')
  await page.until('document.querySelector("textarea")', 'the form for entries')
  await write('textarea', `${'ab'.repeat(20)}\n${'cd'.repeat(20)}`)
  await click('Add')
  await page.until(`document.querySelectorAll('tbody tr').length === 2`, 'two entries')
  await visit('keys', 'User keys')
  await page.until('document.querySelector("input[name=name]")', 'the form for keys')
  await write('input[name=name]', 'Ada')
  const setPrivate = async value => assert.equal((await call('PATCH', '/config', { 'access.private': value })).status, 200)
  await setPrivate(true)
  await click('Create key')
  await page.until('document.querySelector(".secret")', 'the key')
  const key = await text('.secret')
  assert.match(key, /^[A-Za-z0-9_-]{16,64}$/)
  const urls = await page.value('[...document.querySelectorAll(".secret")].slice(1).map(one => one.innerText).join(" ")')
  assert.match(urls, new RegExp(`http://[^ ]+/announce/${key}( |$)`))
  await setPrivate(null)
  await page.until(`document.querySelector('tbody td').innerText === 'Ada'`, 'the key in the table')
  await visit('bans', 'Bans')
  await page.until('document.querySelector("input[name=network]")', 'the form for bans')
  await write('input[name=network]', '192.0.2.0/24')
  await write('input[name=reason]', 'test')
  await click('Ban')
  await page.until(`document.querySelector('tbody td')?.innerText === '192.0.2.0/24'`, 'the ban')
  await visit('tokens', 'API tokens')
  await page.until(has('full access'), 'tokens')
  await visit('settings', 'Configuration')
  await page.until(has('tracker.interval_s'), 'the configuration')
  await visit('log', 'Log')
  await page.until(has('Log lines'), 'the log')
}
