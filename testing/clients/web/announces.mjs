// Announces and scrapes over ws with bittorrent-tracker's own client, and checks every response.
//
//     node announces.mjs HOST:PORT

import assert from 'node:assert/strict'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { announce, join, scrape, scrapeAll } from './tracker.mjs'

const [tracker] = process.argv.slice(2)
// The client opens one socket per URL, so each path stands for a socket. Many trackers have theirs at /announce.
const url = name => `ws://${tracker}/${name}`
// Bytes that JSON escapes or encodes in different ways.
const torrent = '000a1f22265c7f80a0adc3d7feff0a2f5c75ffbe'
const other = 'ff'.repeat(20)
const unknown = '5c'.repeat(20)

const seeder = join(url('announce'), torrent)
assert.deepEqual(await announce(seeder, 'start', { left: 0 }), { complete: 1, incomplete: 0 })
const leecher = join(url('announce?name=two'), torrent)
assert.deepEqual(await announce(leecher, 'start', { left: 9 }), { complete: 1, incomplete: 1 })
assert.deepEqual(await announce(leecher, 'update', { left: 4 }), { complete: 1, incomplete: 1 })
assert.deepEqual(await announce(leecher, 'complete', { left: 0 }), { complete: 2, incomplete: 0 })
assert.deepEqual(await announce(seeder, 'update', { left: 0 }), { complete: 2, incomplete: 0 })
assert.deepEqual(await scrape(seeder), { complete: 2, incomplete: 0, downloaded: 1 })

// A second torrent on the first one's socket.
const neighbour = join(url('announce'), other)
assert.deepEqual(await announce(neighbour, 'start', { left: 5 }), { complete: 0, incomplete: 1 })
assert.deepEqual(await scrape(neighbour), { complete: 0, incomplete: 1, downloaded: 0 })
assert.deepEqual(await scrapeAll(url('three'), [torrent, unknown, other]), [
  { complete: 2, incomplete: 0, downloaded: 1 },
  { complete: 0, incomplete: 0, downloaded: 0 },
  { complete: 0, incomplete: 1, downloaded: 0 }
])

assert.deepEqual(await announce(leecher, 'stop', { left: 0 }), { complete: 1, incomplete: 0 })
assert.deepEqual(await scrape(leecher), { complete: 1, incomplete: 0, downloaded: 1 })

// Peers of a closed socket are removed from all their torrents.
seeder.destroy()
neighbour.destroy()
for (let tries = 0; tries < 600; tries += 1) {
  const seen = await scrapeAll(url('three'), [torrent, other])
  if (seen.every(({ complete, incomplete }) => complete + incomplete === 0)) process.exit(0)
  await sleep(100)
}
assert.fail('expected no peers of the closed sockets, found some after a minute')
