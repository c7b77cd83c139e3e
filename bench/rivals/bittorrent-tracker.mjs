// Serves WebTorrent alone with npm's bittorrent-tracker, whose own command line wants a native WebRTC
// package. `node bittorrent-tracker.mjs NODE_MODULES HOST PORT`
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [modules, host, port] = process.argv.slice(2)
const { default: Server } = await import(pathToFileURL(resolve(modules, 'bittorrent-tracker/server.js')))
const server = new Server({ udp: false, http: false, ws: true, stats: false })
server.on('error', error => { console.error(error); process.exit(1) })
server.listen(Number(port), host)
