// The configuration: search, typed inputs, the diff before a change is applied, and what waits for a restart.

import assert from 'node:assert/strict'
import { findings } from './accessibility.mjs'

const interval = '[aria-label="tracker.interval_s"]'
const shown = '[...document.querySelectorAll(".setting")].filter(row => row.checkVisibility()).length'

export default async function ({ page, has, click, visit, write, call }) {
  const value = async name => (await (await call('GET', '/config')).json()).settings.find(one => one.name === name)
  await visit('settings', 'Configuration')
  await page.until(has('tracker.interval_s'), 'the settings')
  assert.equal(await page.value(shown), (await (await call('GET', '/config')).json()).settings.length)
  await write('[data-search]', 'seconds between announces')
  await page.until(`${shown} < 10 && ${has('tracker.interval_s')}`, 'what is searched for')
  await write('[data-search]', 'zzz')
  await page.until(has('No setting matches.'), 'that nothing matches')
  await write('[data-search]', 'interval')
  await page.until(`document.querySelector('${interval}').checkVisibility()`, 'the interval')

  // Bounds are those of the key.
  await write(interval, '0')
  await page.until(has('tracker.interval_s: expected 1 to 86,400.'), 'the bounds')
  await write(interval, '901')
  await page.until(has('1 change: tracker.interval_s'), 'the change')
  await click('Review and apply …')
  await page.until('document.querySelector("dialog ins")', 'the differences')
  assert.deepEqual(await page.value('[...document.querySelectorAll("dialog .diff tbody td")].map(cell => cell.innerText)'), ['tracker.interval_s', '1800', '901'])
  assert.deepEqual(await findings(page), [], 'the differences')
  await click('Apply')
  await page.until(has('Applied: tracker.interval_s.'), 'the change')
  assert.deepEqual([(await value('tracker.interval_s')).value, (await value('tracker.interval_s')).origin], [901, 'api'])
  await page.until('document.querySelector("#section-changed").innerText.includes("tracker.interval_s")', 'it among those that differ')
  await click('Undo')
  await page.until(has('in force again'), 'the value before')
  assert.equal((await value('tracker.interval_s')).origin, 'default')

  // A mode that would refuse every torrent.
  await write('[data-search]', 'access.mode')
  const mode = 'document.querySelector(\'[aria-label="access.mode"]\')'
  await page.until(`${mode}?.checkVisibility()`, 'the mode')
  await page.value(`${mode}.value = 'allow'; ${mode}.dispatchEvent(new Event('input'))`)
  await click('Review and apply …')
  await page.until(has('The allow list is empty: every torrent will be refused.'), 'the warning')
  assert.deepEqual(await findings(page), [], 'the warning')
  await click('Cancel')
  const entry = 'ab'.repeat(20)
  await call('PUT', `/lists/allow/${entry}`)
  await click('Review and apply …')
  await page.until('document.querySelector("dialog ins")', 'the differences')
  assert.ok(!await page.value(has('The allow list is empty')), 'it has an entry')
  await click('Cancel')
  await call('DELETE', `/lists/allow/${entry}`)
  await click('Discard')
  await page.until('document.querySelector(".apply").hidden', 'the end of the change')

  await click('Upgrade …')
  await page.until(has('You stay signed in'), 'what an upgrade does')
  assert.deepEqual(await findings(page), [], 'the question')
  await click('Cancel')
}
