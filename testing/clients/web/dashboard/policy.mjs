// The content security policy: nothing violates it, and a violation would be noticed.

import assert from 'node:assert/strict'

export default async function ({ page }) {
  assert.deepEqual(await page.value('violations'), [])
  assert.deepEqual(page.errors, [])
  await page.value('document.body.append(Object.assign(document.createElement("img"), { src: "http://192.0.2.1/x.png" }))')
  await page.until('violations.length > 0', 'the policy to block an image of another host')
  page.errors.splice(0)
}
