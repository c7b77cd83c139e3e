// bittorrent-tracker's own client, with promises: every call gives the tracker's answer to it.

import { Client } from 'bittorrent-tracker'
import { once } from 'node:events'
import process from 'node:process'
import { setTimeout } from 'node:timers'

// Peers that connect to nobody: only what the tracker says of them is of interest.
let count = 0
// What was asked last, for when no answer comes.
let asked

/** A peer of a torrent. Peers with the same URL share a socket if they speak ws. */
export function join (url, infoHash) {
  count += 1
  const peerId = Buffer.from(`-TG0001-${String(count).padStart(12, '0')}`)
  const client = new Client({ announce: url, infoHash, peerId, port: 7000 + count })
  // The client warns of what it cannot make sense of, refusals too.
  client.on('warning', warning => fail(`${url}: ${warning.message}`))
  client.on('error', error => fail(`${url}: ${error.message}`))
  return client
}

/** Announces: `start`, `update`, `complete`, `stop`. Gives the counts of the answer. */
export async function announce (client, event, options) {
  asked = `${event} of ${client.peerId}`
  const answer = once(client, 'update')
  client[event]({ numwant: 0, ...options })
  const [{ complete, incomplete }] = await answer
  return { complete, incomplete }
}

/** Scrapes this client's torrent. */
export async function scrape (client) {
  asked = `scrape of ${client.peerId}`
  const answer = once(client, 'scrape')
  client.scrape()
  return counts((await answer)[0])
}

/** Scrapes several torrents at once, with a client of its own. */
export function scrapeAll (url, infoHashes) {
  asked = `scrape of ${infoHashes}`
  return new Promise((resolve, reject) => {
    Client.scrape({ announce: url, infoHash: infoHashes }, (error, answers) => {
      if (error) reject(error)
      else resolve(infoHashes.map(infoHash => counts(answers[infoHash])))
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

// An answer that does not come is a wrong one.
setTimeout(() => fail(`no answer to ${asked}`), 90_000).unref()
