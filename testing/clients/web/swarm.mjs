// One torrent with a UDP, an HTTP and a ws peer: all three get the same counts, and no peer gets the address
// of one that it cannot connect to.
//
//     node swarm.mjs HOST:PORT

import assert from 'node:assert/strict'
import process from 'node:process'
import { announce, join, scrape } from './tracker.mjs'

const [tracker] = process.argv.slice(2)
// ASCII only: this client decodes the keys of an HTTP scrape as UTF-8, which breaks other bytes.
const torrent = Buffer.from('a torrent for all of').toString('hex')

const udp = join(`udp://${tracker}/announce`, torrent)
const http = join(`http://${tracker}/announce`, torrent)
const ws = join(`ws://${tracker}/`, torrent)
const clients = { udp, http, ws }

const ipPeers = []
for (const client of [udp, http]) client.on('peer', peer => ipPeers.push(peer))
ws.on('peer', () => assert.fail('expected no peer for the only ws peer, found one'))

async function expect (complete, incomplete, downloaded) {
  for (const [name, client] of Object.entries(clients)) {
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
assert.deepEqual(ipPeers.map(peer => peer.split(':')[1]), ['7001', '7002'])

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
