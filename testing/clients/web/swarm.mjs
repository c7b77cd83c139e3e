// One torrent with a UDP, an HTTP and a ws peer at once: all three see the same counts, and nobody is told
// of a peer that it cannot speak with.
//
//     node swarm.mjs HOST:PORT

import assert from 'node:assert/strict'
import process from 'node:process'
import { announce, join, scrape } from './tracker.mjs'

const [tracker] = process.argv.slice(2)
// All ASCII: this client reads the keys of an HTTP scrape as UTF-8, which no others survive.
const torrent = Buffer.from('a torrent for all of').toString('hex')

const udp = join(`udp://${tracker}/announce`, torrent)
const http = join(`http://${tracker}/announce`, torrent)
const ws = join(`ws://${tracker}/`, torrent)
const everybody = { udp, http, ws }

const plainPeers = []
for (const client of [udp, http]) client.on('peer', peer => plainPeers.push(peer))
ws.on('peer', () => assert.fail('the ws peer is told of a peer, where there is no other ws peer'))

async function expect (complete, incomplete, downloaded) {
  for (const [name, client] of Object.entries(everybody)) {
    assert.deepEqual({ name, ...await scrape(client) }, { name, complete, incomplete, downloaded })
  }
}

assert.deepEqual(await announce(udp, 'start', { left: 0 }), { complete: 1, incomplete: 0 })
await expect(1, 0, 0)
assert.deepEqual(await announce(http, 'start', { left: 9, numwant: 50 }), { complete: 1, incomplete: 1 })
await expect(1, 1, 0)
assert.deepEqual(await announce(ws, 'start', { left: 9, numwant: 5 }), { complete: 1, incomplete: 2 })
await expect(1, 2, 0)

assert.deepEqual(await announce(udp, 'update', { left: 0, numwant: 50 }), { complete: 1, incomplete: 2 })
assert.deepEqual(plainPeers.map(peer => peer.split(':')[1]), ['7001', '7002'])

assert.deepEqual(await announce(ws, 'complete', { left: 0 }), { complete: 2, incomplete: 1 })
await expect(2, 1, 1)
assert.deepEqual(await announce(http, 'complete', { left: 0 }), { complete: 3, incomplete: 0 })
await expect(3, 0, 2)

assert.deepEqual(await announce(udp, 'stop', { left: 0 }), { complete: 2, incomplete: 0 })
await expect(2, 0, 2)
assert.deepEqual(await announce(ws, 'stop', { left: 0 }), { complete: 1, incomplete: 0 })
await expect(1, 0, 2)
assert.deepEqual(await announce(http, 'stop', { left: 0 }), { complete: 0, incomplete: 0 })
process.exit(0)
