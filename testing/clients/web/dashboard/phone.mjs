// A phone: nothing is wider than the screen, and the menu opens and closes.

import assert from 'node:assert/strict'
import { findings } from './accessibility.mjs'

export default async function ({ page, visit, pages, hash }) {
  const all = [...await pages(), [`torrent/${hash}`]]
  await page.size(390, 844, true)
  await page.colours('dark')
  for (const [path, title] of all) {
    await visit(path, title)
    const [width, widest] = await page.value(`[document.documentElement.scrollWidth, [...document.querySelectorAll('main *')].filter(one => one.getBoundingClientRect().right > 391 && !one.closest('.scroll, .visually-hidden')).map(one => one.outerHTML.slice(0, 120)).slice(0, 3)]`)
    assert.ok(width <= 390, `${path} is wider than the screen: ${widest}`)
  }
  await visit('overview', 'Overview')
  const menu = 'document.querySelector(".menu")'
  assert.equal(await page.value('getComputedStyle(document.querySelector(".side")).display'), 'none')
  await page.value(`${menu}.click()`)
  assert.equal(await page.value(`${menu}.getAttribute('aria-expanded')`), 'true')
  assert.deepEqual(await findings(page), [], 'the menu')
  await page.value('[...document.querySelectorAll("nav a")].at(-1).click()')
  await page.until(`${menu}.getAttribute('aria-expanded') === 'false'`, 'the menu to close')
  await page.size(1280, 800, false)
  await page.colours('light')
}
