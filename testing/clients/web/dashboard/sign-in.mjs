// Sign-in with a token; a wrong one is refused.

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
}
