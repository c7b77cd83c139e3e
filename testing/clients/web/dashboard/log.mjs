// The log and events: filters, pausing, levels; and what the page About says.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { findings } from './accessibility.mjs'

export default async function ({ page, has, click, visit, call }) {
  const list = 'document.querySelector("[aria-label=Log]")'
  const choose = (name, value) => page.value(`(select => { select.value = ${JSON.stringify(value)}; select.dispatchEvent(new Event('change')) })(document.querySelector('select[aria-label="${name}"]'))`)
  await visit('log', 'Log')
  // Events that happened before the page listened are not shown, so bans are made until one is.
  for (let host = 0; !await page.value('document.querySelector("[aria-label=Events]")?.innerText.includes("203.0.113.")'); host++) {
    assert.ok(host < 250, 'no ban is among the events')
    await call('POST', '/bans', { network: `203.0.113.${host}` })
    await sleep(100)
  }
  await page.until(`${list}?.innerText.includes('banned 203.0.113.0/32')`, 'the line of a ban')
  await choose('Least severe level', '0')
  await page.until(`!${list}.innerText.includes('banned')`, 'lines that are no errors to be hidden')
  await choose('Least severe level', '4')
  await choose('Area', 'audit')
  await page.until(`${list}.innerText.includes('banned') && [...${list}.children].every(line => line.children[1].innerText.endsWith('audit'))`, 'lines of this area only')
  await click('Pause')
  await call('POST', '/bans', { network: '203.0.113.0/24' })
  await page.until('[...document.querySelectorAll("button")].some(one => /^Continue \\(\\d+ new\\)$/.test(one.textContent))', 'a button that counts')
  assert.equal(await page.value('[...document.querySelectorAll("[aria-pressed=true]")].length'), 1)
  await page.value('document.querySelector("[aria-pressed=true]").click()')
  await click('Log levels …')
  await page.until('document.querySelector("dialog select")', 'the levels')
  assert.deepEqual(await findings(page), [], 'the levels')
  await page.value('document.querySelectorAll("dialog select")[0].value = "debug"')
  await click('Apply')
  await page.until(has('Log levels: debug.'), 'the levels')
  assert.equal((await (await call('GET', '/log/level')).json()).level, 'debug')
  await call('PUT', '/log/level', { level: 'info' })

  await visit('about', 'About')
  await page.until(has('Running for'), 'the version')
  await page.value('document.querySelector("details").open = true')
  await page.until('document.querySelectorAll("details tbody tr").length > 50 || document.querySelector("details .empty")', 'the licences')
}
