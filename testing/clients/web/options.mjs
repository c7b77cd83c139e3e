// How webtorrent is set up, in Node and in the page: only the tracker can tell one peer of the other,
// and WebRTC asks no server for its own address.

export const clientOptions = {
  dht: false,
  lsd: false,
  utPex: false,
  utp: false,
  natUpnp: false,
  natPmp: false,
  tracker: { rtcConfig: { iceServers: [] } }
}

// Tells what happens to a torrent, line by line.
export function report (torrent, tell) {
  torrent.on('warning', warning => tell(`warning: ${warning.message}`))
  torrent.on('trackerAnnounce', () => tell('the tracker answered'))
  torrent.on('wire', wire => tell(`connected to a peer by ${wire.type}`))
  torrent.on('done', () => tell('has everything'))
}
