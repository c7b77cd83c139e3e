// The upgrade button: a new process takes over, and the page says why it asks to sign in again.

import assert from 'node:assert/strict'

export default async function ({ page, url, token, has, click, visit, write, call }) {
  const started = async () => (await (await call('GET', '/status')).json()).started
  const before = await started()
  await page.go(url)
  await page.until('document.querySelector("input[name=token]")', 'the form')
  await write('input[name=token]', token)
  await click('Sign in')
  await page.until('document.querySelector(".shell")', 'the dashboard')
  await visit('settings', 'Configuration')
  await click('Upgrade …')
  await page.until(has('You have to sign in again'), 'the question')
  await click('Upgrade')
  await page.until(has('The upgrade is done'), 'the new process')
  // Requests that the old process did not answer any more.
  page.errors.splice(0)
  assert.notEqual(await started(), before)
  await write('input[name=token]', token)
  await click('Sign in')
  await page.until('document.querySelector("h1").textContent === "Configuration"', 'the same page')
}
