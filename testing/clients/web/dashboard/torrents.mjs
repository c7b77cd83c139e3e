// Torrents: the list, one torrent, and freezing it.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, hash, has, click, visit, announce } = dashboard
  await visit('torrents', 'Torrents')
  await page.until(has(hash), 'the torrent in the list')
  await visit(`torrent/${hash}`)
  await page.until(has('Last announce'), 'its peers')
  await click('Freeze')
  await page.until('document.querySelector(".tag.bad")', 'the torrent to be frozen')
  assert.match(await announce(3, 5), /failure reason.*frozen/s)
  await click('Unfreeze')
  await page.until('document.querySelector(".tag.good")', 'the torrent to be served')
  assert.doesNotMatch(await announce(3, 5), /failure reason/)
}
