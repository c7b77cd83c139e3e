// Load of many kinds for pictures of the dashboard: clients of several programs and networks announce over HTTP, UDP
// and WebSocket, and some of them do what is refused or dropped. It runs until it is killed.
//
//     node load.mjs HOST:PORT [ADDRESS...]
//
// UDP comes from the addresses. Over HTTP, addresses of clients are in X-Forwarded-For: the tracker should trust
// 127.0.0.1 as a proxy.

import { createSocket } from 'node:dgram'
import { createHash } from 'node:crypto'
import { Agent, get } from 'node:http'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'

const [address, ...sources] = process.argv.slice(2)
const [host, port] = [address.split(':')[0], Number(address.split(':').at(-1))]
const agent = new Agent({ keepAlive: true, maxSockets: 4 })
const TORRENTS = 3000
const CLIENTS = [['-qB5030-', 42], ['-TR4060-', 21], ['-lt20B0-', 11], ['-DE2130-', 8], ['-UT3600-', 7], ['-BI3600-', 5], ['-A21370-', 3], ['-KT5100-', 2], ['-XX0001-', 1]]
const NETWORKS = [['203.0.113', 30], ['198.51.100', 22], ['192.0.2', 14], ['2001:db8:a1', 9], ['2001:db8:b2', 8], ['2001:db8:77', 6], ['2001:db8:c3', 5], ['2001:db8:d4', 4], ['2001:db8:e5', 2]]

/** The same numbers each time. */
let seed = 7
const random = () => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed / 2147483648 }
const whole = below => Math.floor(random() * below)
function pick (weighted) {
  let left = random() * weighted.reduce((sum, [, weight]) => sum + weight, 0)
  return weighted.find(([, weight]) => (left -= weight) < 0)?.[0] ?? weighted[0][0]
}
const hash = number => createHash('sha1').update(`torrent ${number}`).digest()
const escaped = bytes => bytes.toString('hex').replace(/../g, '%$&')
/** A few torrents have most of the peers. */
const torrent = () => hash(Math.floor(TORRENTS * random() ** 4))

function announceHttp () {
  const network = pick(NETWORKS)
  const from = network.includes(':') ? `${network}::${whole(9000).toString(16)}` : `${network}.${1 + whole(254)}`
  const id = pick(CLIENTS) + String(whole(1e9)).padStart(12, '0')
  const isWrong = random() < 0.015
  const query = `info_hash=${isWrong ? 'short' : escaped(torrent())}&peer_id=${id}&port=${random() < 0.01 ? 0 : 1024 + whole(60000)}&left=${random() < 0.6 ? 0 : 1 + whole(1e9)}&event=${random() < 0.02 ? 'completed' : 'started'}&compact=1`
  return new Promise(resolve => {
    get({ host, port, agent, path: `/announce?${query}`, headers: { 'X-Forwarded-For': from } }, answer => { answer.resume(); answer.on('end', resolve) }).on('error', resolve)
  })
}

async function loopHttp () {
  for (;;) {
    // Slow waves, so that charts have a shape.
    const wave = 1 + 0.5 * Math.sin(Date.now() / 9000) + (Math.floor(Date.now() / 1000) % 47 === 0 ? 4 : 0)
    for (let times = 0; times < 6 * wave; times++) await announceHttp()
    await sleep(40)
  }
}

function loopUdp (source, number) {
  const socket = createSocket('udp4')
  let connection
  const send = bytes => socket.send(bytes, port, host)
  const connect = () => { const bytes = Buffer.alloc(16); bytes.writeBigUInt64BE(0x41727101980n); bytes.writeUInt32BE(0, 8); send(bytes) }
  function announce () {
    if (random() < 0.01) return send(Buffer.from('short'))
    const bytes = Buffer.alloc(98)
    ;(random() < 0.02 ? Buffer.alloc(8, 9) : connection).copy(bytes)
    bytes.writeUInt32BE(1, 8)
    torrent().copy(bytes, 16)
    bytes.write(pick(CLIENTS) + String(whole(1e9)).padStart(12, '0'), 36, 'latin1')
    bytes.writeBigUInt64BE(random() < 0.6 ? 0n : 1000n, 64)
    bytes.writeUInt32BE(2, 80)
    bytes.writeInt32BE(50, 92)
    bytes.writeUInt16BE(1024 + whole(60000), 96)
    send(bytes)
  }
  socket.on('message', bytes => { if (bytes.readUInt32BE(0) === 0) connection = Buffer.from(bytes.subarray(8, 16)) })
  socket.bind(0, source, async () => {
    connect()
    setInterval(connect, 50_000)
    for (;;) {
      await sleep(20)
      const wave = 1 + 0.4 * Math.sin(Date.now() / 14_000 + number)
      if (connection) for (let times = 0; times < 9 * wave; times++) announce()
    }
  })
}

for (const [number, source] of sources.entries()) loopUdp(source, number)
loopHttp()
loopHttp()
