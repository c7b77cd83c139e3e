// Upgrades: a new program file is noticed, the notice leads to the upgrade, and the new process knows the session and
// the figures of the last seconds.

import assert from 'node:assert/strict'
import { copyFile, rename } from 'node:fs/promises'
import process from 'node:process'

const program = process.env.TIDEGATE_PROGRAM

export default async function ({ page, url, token, has, click, visit, write, call }) {
  const get = async path => (await call('GET', path)).json()
  const seconds = async () => {
    const { rows } = await get('/stats/history?span=10m')
    return rows.map(([time]) => time).filter((time, at, all) => at > 0 && time - all[at - 1] <= 2)
  }
  await page.go(url)
  await page.until('document.querySelector("input[name=token]")', 'the form')
  await write('input[name=token]', token)
  await click('Sign in')
  await page.until('document.querySelector(".shell")', 'the dashboard')
  assert.ok(!await page.value(has('a new version is installed')))
  const before = { status: await get('/status'), seconds: await seconds() }
  assert.ok(before.seconds.length > 1, String(before.seconds))

  // As a package does: a new file in place of the old one.
  await copyFile(program, `${program}.new`)
  await rename(`${program}.new`, program)
  await page.until(has('a new version is installed, but not running'), 'the notice')
  const link = 'document.querySelector(".problem.info a.button")'
  assert.equal(await page.value(`${link}.innerText`), 'Upgrade …')
  await page.value(`${link}.click()`)
  await page.until(has('You stay signed in.'), 'the question')
  await click('Upgrade')
  await page.until(has('The upgrade is done'), 'the new process')
  // Requests that the old process did not answer any more.
  page.errors.splice(0)
  const after = await get('/status')
  assert.notEqual(after.started, before.status.started)
  assert.ok(!after.upgrade_pending)
  const kept = await seconds()
  const lost = before.seconds.filter(time => !kept.includes(time))
  assert.deepEqual(lost, [], 'the new process has the figures of the old one')
  await page.go(url)
  await visit('overview', 'Overview')
  await page.until(`${has('All is well')} || ${has('Needs attention')}`, 'the overview without another sign-in')
  assert.ok(!await page.value(has('a new version is installed')))
}
