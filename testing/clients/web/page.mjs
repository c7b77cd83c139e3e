// The page's script: it seeds the file of its server, or fetches the file and sends it to the server.

import WebTorrent from '/webtorrent.js'
import { clientOptions, report } from '/options.mjs'

const tell = line => fetch('/log', { method: 'POST', body: line })
addEventListener('error', event => tell(`error: ${event.message}`))
addEventListener('unhandledrejection', event => tell(`error: ${event.reason}`))

const client = new WebTorrent(clientOptions)
client.on('error', error => tell(`error: ${error.message}`))

const { isSeeder, name, ...makeup } = await (await fetch('/task')).json()
if (isSeeder) {
  const payload = await (await fetch('/payload')).blob()
  report(client.seed(new File([payload], name), makeup), tell)
} else {
  const torrentFile = await (await fetch('/torrent')).arrayBuffer()
  const torrent = client.add(new Uint8Array(torrentFile))
  report(torrent, tell)
  torrent.on('done', async () => {
    await fetch('/payload', { method: 'PUT', body: await torrent.files[0].blob() })
  })
}
