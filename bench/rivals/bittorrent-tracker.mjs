// Serves one protocol with npm's bittorrent-tracker, whose own command line wants a native WebRTC
// package. `node bittorrent-tracker.mjs NODE_MODULES HOST PORT [udp|http|ws]`; WebTorrent by default.
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [modules, host, port, protocol = 'ws'] = process.argv.slice(2)
const { default: Server } = await import(pathToFileURL(resolve(modules, 'bittorrent-tracker/server.js')))
const [udp, http, ws] = ['udp', 'http', 'ws'].map(name => name === protocol)
const server = new Server({ udp, http, ws, stats: false })
server.on('error', error => { console.error(error); process.exit(1) })
// What a client did wrong is its own business.
server.on('warning', () => {})
server.listen(Number(port), { http: host, udp: host, udp6: '::1' })
