// Options of webtorrent, in Node and in the page: peers learn of each other only by the tracker, and WebRTC
// asks no STUN server for addresses.

export const clientOptions = {
  dht: false,
  lsd: false,
  utPex: false,
  utp: false,
  natUpnp: false,
  natPmp: false,
  tracker: { rtcConfig: { iceServers: [] } }
}

// Reports the events of a torrent, one line each.
export function report (torrent, tell) {
  torrent.on('warning', warning => tell(`warning: ${warning.message}`))
  torrent.on('trackerAnnounce', () => tell('the tracker answered'))
  torrent.on('wire', wire => tell(`connected to a peer by ${wire.type}`))
  torrent.on('done', () => tell('has everything'))
}
