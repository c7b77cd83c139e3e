// Sign-in with a token, or by a link that has one; a wrong one is refused.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, url, token, has, click, write } = dashboard
  // Sign-in.
  await page.go(url)
  await page.until('document.querySelector("input[name=token]")', 'the form')
  assert.deepEqual(page.errors, [])
  await write('input[name=token]', `tg_${'x'.repeat(32)}`)
  await click('Sign in')
  await page.until(has('Unknown or revoked token'), 'the refusal of a wrong token')
  // The browser notes that a request was answered with 401.
  assert.equal(page.errors.splice(0).length, 1)
  await write('input[name=token]', token)
  await click('Sign in')
  await page.until(has('Announce URLs'), 'the overview')
  assert.equal(await page.value('document.cookie'), '', 'the cookie must not be visible to scripts')
  await click('Sign out')
  await page.until('document.querySelector("input[name=token]")', 'the form')

  // A link as the start prints it: opened where the dashboard is open already, and in a new page.
  const entries = await page.value('history.length')
  const isIn = `${has('Announce URLs')} && location.hash === '#/overview'`
  await page.go(`${url}#token=${token}`)
  await page.until(isIn, 'the overview')
  assert.equal(await page.value('history.length'), entries + 1)
  await click('Sign out')
  await page.until('document.querySelector("input[name=token]")', 'the form')
  await page.go('about:blank')
  await page.go(`${url}#token=${token}`)
  await page.until(isIn, 'the overview')
  const { entries: visited } = await page.send('Page.getNavigationHistory')
  assert.deepEqual(visited.filter(one => one.url.includes(token)), [], 'the token is in no history')
  await page.go(`${url}#token=tg_${'y'.repeat(32)}`)
  await page.until(has('Unknown or revoked token'), 'the refusal of a wrong link')
  assert.equal(page.errors.splice(0).length, 1)
  assert.ok(!await page.value('location.href.includes("token")'))
  await write('input[name=token]', token)
  await click('Sign in')
  await page.until(has('Announce URLs'), 'the overview')
}
