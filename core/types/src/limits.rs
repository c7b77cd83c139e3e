//! Every bound in one place, with its reason. Configuration can lower some of them, and raise none
//! above what is here.

/// UDP payload that fits one unfragmented Ethernet frame over IPv4: 1500 - 20 - 8.
pub const UDP_PAYLOAD_V4_MAX: usize = 1472;
/// The same over IPv6: 1500 - 40 - 8.
pub const UDP_PAYLOAD_V6_MAX: usize = 1452;
/// The largest datagram looked at. A scrape of [`SCRAPE_HASHES_UDP_MAX`] takes 2456 bytes and an
/// announce URL of a few hundred bytes rides behind an announce (BEP 41).
pub const UDP_REQUEST_MAX: usize = 2560;
/// Hashes answered in one UDP scrape: the answers that fit [`UDP_PAYLOAD_V4_MAX`]. BEP 15 speaks of
/// about 74; longer requests are cut, not refused.
pub const SCRAPE_HASHES_UDP_MAX: usize = (UDP_PAYLOAD_V4_MAX - 8) / 12;
/// Datagrams that go through the kernel and the store together. Past 64 nothing is gained, and
/// latency grows.
pub const BATCH_MAX: usize = 64;
/// Bytes of path and query that BEP 41 options may carry in all; the rest is dropped.
pub const URL_DATA_MAX: usize = 1024;

/// Peers in one answer over UDP/IPv4, whatever is asked: what fits the datagram after 20 bytes.
pub const PEERS_UDP_V4_MAX: u16 = ((UDP_PAYLOAD_V4_MAX - 20) / 6) as u16;
/// Peers in one answer over UDP/IPv6.
pub const PEERS_UDP_V6_MAX: u16 = ((UDP_PAYLOAD_V6_MAX - 20) / 18) as u16;
/// Peers in one answer over TCP; `numwant_max` may not be set above.
pub const PEERS_HTTP_MAX: u16 = 1000;

/// Request line and headers of an HTTP request, together. A scrape of 60 hashes takes 4.3 KB.
pub const HTTP_HEAD_MAX: usize = 16 * 1024;
/// Headers of one HTTP request.
pub const HTTP_HEADERS_MAX: usize = 64;
/// Hashes answered in one HTTP scrape: more do not fit [`HTTP_HEAD_MAX`] by much.
pub const SCRAPE_HASHES_HTTP_MAX: usize = 256;

/// Bytes of a PROXY header. Addresses take 36 at most; what a proxy knows of the client's TLS may
/// take hundreds, with its certificate thousands.
pub const PROXY_HEADER_MAX: usize = 4096;

/// `[[listener]]` tables: each has some room in every worker, and is looked through at each reload.
pub const LISTENERS_MAX: usize = 1000;

/// Workers that one protocol has.
pub const WORKERS_MAX: usize = 1024;
/// Connections that one worker holds.
pub const CONNECTIONS_MAX: usize = 10_000_000;

/// Prefixes whose requests are remembered, for each kind of request: 128 MiB. The tables' lines are
/// found by 21 bits of a hash, and their tags by 20 others.
pub const BUCKETS_MAX: u32 = 1 << 24;

/// Prefixes that one UDP worker has the kernel shut out at a time: each of its datagrams is compared
/// with all of them.
pub const SOURCE_FILTER_MAX: usize = 32;

/// Bytes of one WebSocket message, whatever is configured. Offers from a host with many addresses
/// make 24 KB; 64 KiB must pass.
pub const WS_MESSAGE_MAX: usize = 128 * 1024;
/// Frames that one WebSocket message may come in: a message of [`WS_MESSAGE_MAX`] in pieces of 32
/// bytes. Frames may be empty, so that the bytes alone bound nothing.
pub const WS_FRAGMENTS_MAX: u32 = 4096;

/// Offers taken of one WebTorrent announce; more are cut. Clients send 5 to 10.
pub const WEB_OFFERS_MAX: usize = 64;
/// Seconds in which an offer must be answered. Clients give up after 50.
pub const OFFER_LIFETIME_S: u32 = 60;
/// Offers that one connection may answer; of more, the oldest are forgotten.
pub const OFFERS_OUTSTANDING_MAX: usize = 1024;
/// Hashes answered in one WebTorrent scrape; more are cut. Repeats are looked for one by one.
pub const SCRAPE_HASHES_WEB_MAX: usize = 128;
/// Objects and arrays within each other in one JSON message. A real one has four.
pub const JSON_DEPTH_MAX: u32 = 32;

/// Bytes on their way from all workers to another one that is too busy to take them.
pub const EXCHANGE_BYTES_MAX: usize = 64 << 20;

/// Hosts whose certificates are obtained: one order each, of which Let's Encrypt takes 300 from an
/// account in three hours.
pub const ACME_DOMAINS_MAX: usize = 100;

/// Peers of one torrent that are looked at together: their ids are found one by one, under a lock.
pub const INSPECT_PEERS_MAX: usize = 1000;
/// Events that wait for whoever listens, about.
pub const EVENTS_MAX: usize = 4096;
/// Frozen torrents: the set is copied whenever it changes.
pub const FROZEN_MAX: usize = 4096;

/// Entries of one access list. 20 bytes each: 2 GB at the most.
pub const ACCESS_ENTRIES_MAX: usize = 100_000_000;
/// Characters that a user's key has at least: 16 of 64 are 96 bits, which nobody guesses.
pub const USER_KEY_LEN_MIN: usize = 16;
/// Characters that it has at most: what hex makes of 32 bytes.
pub const USER_KEY_LEN_MAX: usize = 64;
/// Users' keys: some 200 bytes each.
pub const USER_KEYS_MAX: usize = 10_000_000;
/// Announces of key holders' peers that are remembered, each until its peer's lifetime ends; 43
/// to 86 bytes each. What comes above is served, and not counted for its user.
pub const KEY_SESSIONS_MAX: usize = 1 << 24;
/// The most that a user's peer can be believed to move, bytes each second: 100 Gbit/s. A client that
/// claims more, by a fault or to boast, is counted with that.
pub const KEY_BYTES_PER_S_MAX: u64 = 100_000_000_000 / 8;
/// Networks that are banned at a time; some 100 bytes each, and all are put in order at a change.
pub const BANS_MAX: usize = 1_000_000;
/// Those of them that were banned by no person.
pub const BANS_AUTOMATIC_MAX: usize = 65_536;
/// Peer-id prefixes of one list.
pub const CLIENT_PREFIXES_MAX: usize = 1000;
/// Torrents whose downloads are counted for good; some 40 bytes each. Those of more are counted as
/// long as the torrent is there.
pub const DOWNLOADS_MAX: usize = 1 << 25;
/// The longest peer lifetime, seconds: the store keeps ages in 14 bits of 16-second units and must
/// tell old from new across the wrap, so it stays below half of it.
pub const PEER_LIFETIME_S_MAX: u32 = 24 * 3600;

const _: () = assert!(16 + 20 * SCRAPE_HASHES_UDP_MAX <= UDP_REQUEST_MAX);
const _: () = assert!(20 + 6 * PEERS_UDP_V4_MAX as usize <= UDP_PAYLOAD_V4_MAX);
const _: () = assert!(20 + 18 * PEERS_UDP_V6_MAX as usize <= UDP_PAYLOAD_V6_MAX);
