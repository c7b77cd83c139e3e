// Site: none; and one whose database is away, then back.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, has, visit } = dashboard
  const paths = (await dashboard.pages()).map(([path]) => path)
  assert.ok(paths.includes('torrents') && !paths.includes('site'), `without a site: ${paths}`)
  await visit('site', 'Site')
  await page.until(has('accounts for no site'), 'what a site is')
  const status = await (await dashboard.call('GET', '/status')).json()
  const stats = {
    kind: 'unit3d', users: 1200, torrents: 345, sessions: 6789, announces: 10, rows_per_s: 0, rows: 5, lag_s: 65,
    rows_skipped: 7, bad_passkeys: 8, duplicate_hashes: 9, spool_batches: 21, spool_bytes: 2048, spool_bytes_max: 1048576, implausible: 2, uncounted: 0, lists_withheld: 4, probes: { open: 40, closed: 3, skipped: 0 },
    error: 'cannot reach the database: check site.database', error_since: 1700000000
  }
  await page.answer('*/api/v1/status*', () => ({ ...status, site: true }))
  await page.answer('*/api/v1/site*', () => stats)
  await visit('torrents', 'Torrents')
  await visit('site', 'Site')
  await page.until(has('cannot reach the database: check site.database'), 'the remedy')
  for (const words of ['1,200', '6,789', '2 KiB of 1 MiB', '2, kept out', '7: user or torrent deleted', '8 users: form', '9 torrents: another one', '4: too many', '40 accept connections, 3 do not']) {
    assert.ok(await page.value(has(words)), words)
  }
  // The database is back: the page says so without a reload.
  Object.assign(stats, { error: undefined, error_since: undefined, rows_per_s: 70 })
  await page.until('document.querySelector("h1 + .tag.good")', 'the end of the failure')
  assert.ok(await page.value(has('70/s')))
  await page.stopAnswering()
}
