// Torrents: search, the list while it refreshes, one torrent, and what changes it, with undo.

import assert from 'node:assert/strict'
import process from 'node:process'

const button = name => `[...document.querySelectorAll('button')].findLast(one => one.textContent === ${JSON.stringify(name)})`

export default async function (dashboard) {
  const { page, hash, has, click, visit, announce, write } = dashboard
  const other = 'ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00'
  await announce(1, 0)
  await announce(2, 5, other)
  const rows = 'document.querySelectorAll("tbody tr").length'
  await visit('torrents', 'Torrents')
  await page.until(`${has(hash)} && ${has(other)}`, 'both torrents in the list')
  await page.until(has('< 17 min'), 'the age as far as it is known')
  assert.ok(!await page.value('/\\b\\d+ min\\b/.test(document.querySelector("tbody").innerText.replaceAll("< 17 min", ""))'))

  // A refresh keeps focus, selection and rows.
  await page.value(`globalThis.row = [...document.querySelectorAll('tbody tr')].find(row => row.innerText.includes(${JSON.stringify(other)})); row.querySelector('a').focus()`)
  await announce(4, 0, other)
  await announce(5, 0, other)
  await page.until('row.cells[2].innerText === "2"', 'the list to refresh')
  assert.ok(await page.value('row.isConnected && document.activeElement === row.querySelector("a")'))
  // It replaces no text that is selected.
  const asked = 'performance.getEntriesByType("resource").filter(one => one.name.includes("/torrents?")).length'
  await page.value(`getSelection().selectAllChildren(row.cells[0]); globalThis.before = ${asked}`)
  await page.until(`${asked} > before`, 'the next refresh')
  assert.ok(await page.value('!getSelection().isCollapsed'))
  await page.value('getSelection().removeAllRanges()')

  // A prefix; nothing; and a magnet link, which leads to the torrent.
  await write('[data-search]', 'FF00ff')
  await page.until(`${rows} === 1 && ${has(other)}`, 'the one with this beginning')
  await write('[data-search]', '0123')
  await page.until(has('No torrent whose info hash begins with 0123.'), 'that there is none')
  // A name, which a .torrent file has.
  const known = process.env.TIDEGATE_TORRENT
  await announce(6, 0, known)
  await write('[data-search]', 'Payload')
  await page.until(`${rows} === 1 && ${has('payload.bin')} && ${has(known)}`, 'the one with this name')
  assert.equal(await page.value('document.querySelector("tbody tr").cells[1].innerText'), '2 MiB')
  await write('[data-search]', 'payload.txt')
  await page.until(has('No torrent named “payload.txt”.'), 'that none has this name')
  await write('[data-search]', `magnet:?xt=urn:btih:${hash.toUpperCase()}&dn=x`)
  await page.until(`location.hash === '#/torrent/${hash}'`, 'the torrent of the magnet link')

  await page.until(has('Last announce'), 'its peers')
  // The beginning of a peer id is not stored, so no row has a value of that column, or all have.
  const column = name => `[...document.querySelectorAll('thead th')].find(one => one.innerText === '${name}' || one.textContent === '${name}')`
  const hasIds = await page.value("[...document.querySelectorAll('tbody td[data-label=\"Peer id\"]')].some(one => one.textContent !== '')")
  assert.equal(await page.value(`${column('Peer id')}.hidden`), !hasIds)

  // An address: its peers, and a ban of it.
  const [address] = await page.value("[...document.querySelectorAll('tbody a[href^=\"#/peers/\"]')].map(one => one.hash.slice('#/peers/'.length))")
  await visit('torrents', 'Torrents')
  await write('[data-search]', address)
  await page.until(`location.hash === '#/peers/${address}' && ${has(`Peers at ${address}`)}`, 'the peers of the address')
  await page.until(`${rows} >= 3 && ${has(hash)} && ${has(other)}`, 'its torrents')
  await click('Ban …')
  await page.until(`document.querySelector('dialog textarea')?.value === '${address}'`, 'the form with the address')
  await click('Cancel')
  await visit('peers', 'Peers')
  await page.until(has('Search for an IP address'), 'what to search for')
  await write('[data-search]', '192.0.2.1')
  await page.until(has('No peer at 192.0.2.1 at present.'), 'that there is none')
  await write('[data-search]', '192.0.2')
  await page.until(has('Expected an IP address without a port'), 'what is wrong')
  await click('✕')
  await visit(`torrent/${hash}`)
  await page.until(has('Last announce'), 'the torrent')
  await page.until(has('127.0.0.0/24') + ' || ' + has('10.'), 'the networks of its peers')
  await click('Freeze')
  await page.until('document.querySelector(".tag.bad")?.innerText.includes("frozen")', 'the torrent to be frozen')
  assert.match(await announce(3, 5), /failure reason.*frozen/s)
  await page.until(button('Undo'), 'an offer to undo')
  await click('Undo')
  // One listener serves only a folder.
  const served = 'document.querySelector(".tag.warn")?.innerText === "served by some listeners"'
  await page.until(`${served} && ${has('Not allowed: not on the allow list at http 127.0.0.1:6971')}`, 'the torrent to be served')
  assert.doesNotMatch(await announce(3, 5), /failure reason/)
  await click('Add to deny list')
  await page.until(`document.querySelector(".tag.bad")?.innerText === "denied" && ${has('added by dashboard or API')}`, 'the torrent to be denied')
  assert.match(await announce(3, 5), /failure reason.*deny list/s)
  await click('Remove from deny list')
  await page.until(served, 'the torrent to be served again')
  await click('Remove')
  await page.until(has('this cannot be undone'), 'the question')
  await page.value('document.querySelector("dialog button.danger").click()')
  await page.until(`location.hash === '#/torrents'`, 'the list')
  await visit(`torrent/${hash}`)
  await page.until(has('has no peers at present'), 'that the torrent is gone')
  page.errors.splice(0)
  await announce(1, 0)
  await announce(3, 5)
}
