// bittorrent-tracker's own client with promises: every call returns the tracker's response.

import { Client } from 'bittorrent-tracker'
import { once } from 'node:events'
import process from 'node:process'
import { setTimeout } from 'node:timers'

// The number of clients. They never connect to each other; only the tracker's responses matter.
let count = 0
// The last request, for the message of a timeout.
let request

/** A peer of a torrent. Peers with the same URL share a socket if they speak ws. */
export function join (url, infoHash) {
  count += 1
  const peerId = Buffer.from(`-TG0001-${String(count).padStart(12, '0')}`)
  const client = new Client({ announce: url, infoHash, peerId, port: 7000 + count })
  // The client emits warnings for responses that it cannot parse, and for refusals.
  client.on('warning', warning => fail(`${url}: ${warning.message}`))
  client.on('error', error => fail(`${url}: ${error.message}`))
  return client
}

/** Announces `start`, `update`, `complete` or `stop`. Returns the counts of the response. */
export async function announce (client, event, options) {
  request = `${event} of ${client.peerId}`
  const response = once(client, 'update')
  client[event]({ numwant: 0, ...options })
  const [{ complete, incomplete }] = await response
  return { complete, incomplete }
}

/** Scrapes this client's torrent. */
export async function scrape (client) {
  request = `scrape of ${client.peerId}`
  const response = once(client, 'scrape')
  client.scrape()
  return counts((await response)[0])
}

/** Scrapes several torrents at once, with a client of its own. */
export function scrapeAll (url, infoHashes) {
  request = `scrape of ${infoHashes}`
  return new Promise((resolve, reject) => {
    Client.scrape({ announce: url, infoHash: infoHashes }, (error, responses) => {
      if (error) reject(error)
      else resolve(infoHashes.map(infoHash => counts(responses[infoHash])))
    })
  })
}

function counts ({ complete, incomplete, downloaded }) {
  return { complete, incomplete, downloaded }
}

function fail (why) {
  console.log(why)
  process.exit(1)
}

// A missing response is a failure.
setTimeout(() => fail(`timed out waiting for the response to: ${request}`), 90_000).unref()
