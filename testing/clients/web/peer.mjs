// Runs a webtorrent peer in Node for the real-client tests: it seeds or fetches one torrent until it is killed.
//
//     node peer.mjs TORRENT FOLDER
//
// It seeds if FOLDER holds the data, and stores the data there if not. Messages go to standard output.

import process from 'node:process'
import WebTorrent from 'webtorrent'
import { clientOptions, report } from './options.mjs'

const [torrentFile, folder] = process.argv.slice(2)
const client = new WebTorrent(clientOptions)
report(client.add(torrentFile, { path: folder }), console.log)
client.on('error', error => {
  console.log(`error: ${error.message}`)
  process.exit(1)
})
