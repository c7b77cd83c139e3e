// Runs webtorrent in a page of headless Chromium for the real-client tests: it seeds or fetches one
// torrent until it is killed.
//
//     node browser.mjs TORRENT FOLDER
//
// The page seeds if FOLDER holds the data, and stores the data there if not. This process serves the page on
// loopback, which browsers treat as a secure context, and writes the data that the page sends. Messages of
// the page go to standard output.

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import parseTorrent from 'parse-torrent'

const [torrentFile, folder] = process.argv.slice(2)
const torrent = await parseTorrent(await readFile(torrentFile))
const payload = join(folder, torrent.name)
const isSeeder = existsSync(payload)

const files = {
  '/': ['text/html', new URL('page.html', import.meta.url)],
  '/page.mjs': ['text/javascript', new URL('page.mjs', import.meta.url)],
  '/options.mjs': ['text/javascript', new URL('options.mjs', import.meta.url)],
  '/webtorrent.js': ['text/javascript', new URL(import.meta.resolve('webtorrent/dist/webtorrent.min.js'))],
  '/torrent': ['application/x-bittorrent', torrentFile],
  '/payload': ['application/octet-stream', payload]
}

const server = createServer(async (request, response) => {
  const { method, url } = request
  if (method === 'POST' && url === '/log') {
    console.log(await text(request))
    response.end()
  } else if (method === 'PUT' && url === '/payload') {
    // Renamed when it is complete, so that no reader sees half a file.
    await writeFile(`${payload}.part`, request)
    await rename(`${payload}.part`, payload)
    response.end()
  } else if (url === '/task') {
    const { name, pieceLength, announce } = torrent
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify({ isSeeder, name, pieceLength, announce, private: torrent.private }))
  } else if (url in files) {
    const [type, path] = files[url]
    response.setHeader('Content-Type', type)
    response.end(await readFile(path))
  } else {
    response.writeHead(404).end()
  }
})

server.listen(0, '127.0.0.1', () => {
  const chromium = spawn('chromium', [
    // It runs as root in its namespace, where its sandbox does not work.
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-dev-shm-usage',
    // It must contact only the page's server and the tracker.
    '--no-first-run', '--no-default-browser-check', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-extensions',
    // Without a desktop it would fill the log with warnings.
    '--log-level=3',
    // Peers must get IP addresses, not mDNS names.
    '--disable-features=WebRtcHideLocalIpsWithMdns',
    `--user-data-dir=${folder}.profile`,
    `http://127.0.0.1:${server.address().port}/`
  ], { stdio: ['ignore', 'ignore', 'inherit'] })
  chromium.on('error', error => fail(`chromium does not start: ${error.message}`))
  chromium.on('exit', code => fail(`chromium ended with ${code}`))
})

function fail (why) {
  console.log(why)
  process.exit(1)
}
