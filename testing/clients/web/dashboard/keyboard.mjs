// The keyboard: the skip link, keys that go to pages, search, and the list of keys.

import assert from 'node:assert/strict'

export default async function ({ page, visit, has, pages }) {
  await visit('overview', 'Overview')
  // Tab reaches the link to the content first.
  await page.value('document.body.tabIndex = -1; document.body.focus()')
  await page.press('Tab', 9)
  await page.until('document.activeElement.classList.contains("skip")', 'the link to the content')
  await page.press('Enter', 13, '\r')
  await page.until('document.activeElement.id === "main"', 'the focus to go to the content')

  // `?` lists the keys; each page of the navigation has one.
  await page.character('?')
  await page.until('document.querySelector("dialog[open] .keys")', 'the list of keys')
  const listed = await page.value('[...document.querySelectorAll(".keys dt")].map(one => one.innerText.replace(/\\s+/g, " ").trim())')
  const all = await pages()
  const chords = listed.filter(keys => keys.startsWith('g '))
  assert.equal(chords.length, all.length)
  await page.press('Escape', 27)
  await page.until('!document.querySelector("dialog")', 'the list to close')
  for (const [at, [path]] of all.entries()) {
    await page.character('g')
    await page.character(chords[at].slice(2))
    await page.until(`location.hash === '#/${path}'`, `${chords[at]} to go to ${path}`)
  }

  // `/` goes to the search of torrents from a page without one.
  await visit('overview', 'Overview')
  await page.character('/')
  await page.until('document.activeElement.matches("[data-search]")', 'the search to have the focus')
  assert.equal(await page.value('document.activeElement.value'), '', 'the key is no text')
  // In a field, keys are text.
  await page.type('go')
  assert.equal(await page.value('location.hash'), '#/torrents')
  await visit('overview', 'Overview')
  assert.ok(await page.value(has('Announce URLs')))
}
