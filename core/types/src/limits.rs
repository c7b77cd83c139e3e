//! Every limit in one place, with its reason. Configuration can lower some of them and raise none.

/// UDP payload that fits one unfragmented Ethernet frame over IPv4: 1500 - 20 - 8.
pub const UDP_PAYLOAD_V4_MAX: usize = 1472;
/// The same over IPv6: 1500 - 40 - 8.
pub const UDP_PAYLOAD_V6_MAX: usize = 1452;
/// Bytes of the longest datagram that is read. A scrape of [`SCRAPE_HASHES_UDP_MAX`] hashes takes
/// 2456 bytes; an announce is followed by a URL of a few hundred bytes (BEP 41).
pub const UDP_REQUEST_MAX: usize = 2560;
/// Hashes answered in one UDP scrape: as many as fit [`UDP_PAYLOAD_V4_MAX`]. BEP 15 says about 74.
/// Further hashes are ignored; the scrape is not refused.
pub const SCRAPE_HASHES_UDP_MAX: usize = (UDP_PAYLOAD_V4_MAX - 8) / 12;
/// Datagrams that go through kernel and store together. More gain no throughput and add latency.
pub const BATCH_MAX: usize = 64;
/// Bytes of path and query that all BEP 41 options of a packet may carry; the rest is dropped.
pub const URL_DATA_MAX: usize = 1024;

/// Peers in one answer over UDP/IPv4, whatever the client asks for: what fits the datagram after 20
/// bytes.
pub const PEERS_UDP_V4_MAX: u16 = ((UDP_PAYLOAD_V4_MAX - 20) / 6) as u16;
/// Peers in one answer over UDP/IPv6.
pub const PEERS_UDP_V6_MAX: u16 = ((UDP_PAYLOAD_V6_MAX - 20) / 18) as u16;
/// Peers in one answer over TCP; the upper bound of `numwant_max`.
pub const PEERS_HTTP_MAX: u16 = 1000;

/// Bytes of an HTTP request's line and headers. A scrape of 60 hashes takes 4.3 KB.
pub const HTTP_HEAD_MAX: usize = 16 * 1024;
/// Headers of one HTTP request.
pub const HTTP_HEADERS_MAX: usize = 64;
/// Pipelined requests of a connection that are answered before other connections have their turn. With
/// 50 connections that always have more, a turn of some 100 µs makes others wait for 5 ms at most.
pub const HTTP_TURN_REQUESTS_MAX: u32 = 32;
/// Bytes of responses after which a turn ends, too: writing them takes as long as making them.
pub const HTTP_TURN_BYTES_MAX: usize = 16 * 1024;
/// Full scrapes that are sent at a time. Each has a thread, and a page and chunks in memory: 15 MB.
pub const FULL_SCRAPES_AT_ONCE: usize = 2;
/// Torrents of a page of a full scrape. The list is sorted, and each page is a pass over all torrents: 4
/// million make 31 passes, 2.3 s in all (`bench/record/2026-11-23-full-scrape.md`).
pub const FULL_SCRAPE_PAGE: usize = 1 << 17;
/// Full scrapes that are remembered, to limit the next: 32 bytes each. As many as an hour may have.
pub const FULL_SCRAPES_REMEMBERED: usize = 3600;
/// Bytes per second that the client of a full scrape must read on average. A slower one would keep
/// others from theirs for hours.
pub const FULL_SCRAPE_BYTES_PER_S_MIN: u64 = 64 * 1024;
/// Seconds that the thread of a full scrape may need for its next chunk: its priority is low.
pub const FULL_SCRAPE_CHUNK_S: u32 = 300;

/// Client software with a line of its own in statistics; the rest is of no interest.
pub const STATS_CLIENTS_MAX: usize = 64;

/// Bytes of the operator's own text on the public page, which is sent with each page.
pub const PAGE_TEXT_BYTES_MAX: usize = 4096;

/// Hashes answered in one HTTP scrape. [`HTTP_HEAD_MAX`] holds hardly more.
pub const SCRAPE_HASHES_HTTP_MAX: usize = 256;

/// Bytes of a PROXY header. Addresses take 36 at most; what a proxy reports of the client's TLS can
/// take hundreds, and with the certificate thousands.
pub const PROXY_HEADER_MAX: usize = 4096;

/// `[[listener]]` tables. Every worker keeps some state for each, and a reload visits all.
pub const LISTENERS_MAX: usize = 1000;

/// Workers of one protocol.
pub const WORKERS_MAX: usize = 1024;
/// Connections of one worker.
pub const CONNECTIONS_MAX: usize = 10_000_000;
/// Bits of a network whose prefixes may belong to one customer, for the share of connections: RFC 6177
/// has sites get up to a /48, which holds 65,536 of the /64s that count as prefixes.
pub const NETWORK_BITS_V6: u8 = 48;
/// The same for IPv4: a /24 is the smallest network that is routed, and what hosts rent out.
pub const NETWORK_BITS_V4: u8 = 24;
/// Percentage of all connections that one such network may hold by default. A number would not do: a
/// carrier's pool of shared IPv4 addresses is a /24 with some hundred thousand subscribers, who are few
/// of a tracker's connections all the same. With a fifth, no single network takes the seats of others.
pub const CONNECTIONS_PER_NETWORK_PERCENT: u64 = 20;

/// Announces per second of one prefix by default, over all protocols.
///
/// An honest prefix stays far below. At an interval of 30 minutes:
///
/// | prefix | torrents and peers | announces per second |
/// |---|---|---|
/// | a seedbox with 10,000 torrents | 10,000 | 5.6 |
/// | a server that hosts 50 seedboxes of 5,000 torrents each | 250,000 | 139 |
/// | a VPN's exit with 3,000 users of 50 torrents each | 150,000 | 83 |
/// | a carrier's shared address with 10,000 subscribers, of whom one in ten has 20 torrents | 20,000 | 11 |
///
/// So 500 is 3.6 times the largest. One prefix can keep 500 * 2700 = 1.35 million peers alive with it,
/// and takes 0.1 % of a core.
pub const ANNOUNCES_PER_S: u32 = 500;
/// Scrapes per second of one prefix by default. Clients scrape at most as often as they announce. An
/// index of torrents can scrape 37,000 a second, in requests of [`SCRAPE_HASHES_UDP_MAX`] and more.
pub const SCRAPES_PER_S: u32 = 500;
/// HTTP requests per second of one prefix that are neither announces nor scrapes, or that are refused; more
/// if it may send more announces. A client that is refused every announce, because a list does not have its
/// torrents, sends as many as one that is served, with the same bursts ([`BURST_S`]). A page takes some
/// microseconds: 500 a second are less than 1 % of a core.
pub const OTHERS_PER_S: u32 = ANNOUNCES_PER_S;
/// UDP connects per second of one prefix by default. A client that keeps no connection id connects once
/// for each announce, so [`ANNOUNCES_PER_S`] would do. It is four times that because sources of connects
/// can be forged: who wants to keep an address from new connection ids has to send more than this, all
/// the time. Clients that have an id are not affected.
pub const CONNECTS_PER_S: u32 = 2000;
/// TCP connections per second that one prefix may open, at [`ANNOUNCES_PER_S`]; [`BURST_S`] times as many at
/// once. Clients that close each connection open one for each announce and each scrape. Where more announces
/// are allowed, more connections are, in proportion.
pub const CONNECTIONS_PER_S: u32 = ANNOUNCES_PER_S + SCRAPES_PER_S;
/// TLS handshakes per second that one prefix may begin, at [`ANNOUNCES_PER_S`]. Clients that close each
/// connection make one for each announce, so this is 1.4 times what the largest honest prefix above needs
/// (139). A handshake takes 0.4 to 1 ms with RSA 2048 and 0.15 ms with P-256: one prefix takes 8 to 20 %
/// of a core, or 3 %. Where more announces are allowed, more handshakes are, in proportion.
pub const HANDSHAKES_PER_S: u32 = 200;
/// TLS handshakes that one prefix may begin at once. After a restart of the tracker, thousands of clients
/// behind a carrier's address come back within seconds; a seedbox with 10,000 torrents that starts takes
/// 5000 now and 5000 in the next 25 seconds. They take 2 to 5 s of a core with RSA 2048, once. Other
/// networks do not wait for that: the handshakes of each have turns of their own.
pub const HANDSHAKES_BURST: u32 = 5000;
/// Unfinished TLS handshakes of one prefix. Each holds some 16 KiB, and waits for its client for two round
/// trips: if 500 clients behind one address come back in a second, as after a restart, and are 0.25 s
/// away, 250 are unfinished. One that never continues leaves after ten seconds.
pub const HANDSHAKES_UNFINISHED_MAX: u32 = 256;
/// Seconds' worth of requests that may come at once, unless a burst is configured. A seedbox with
/// 10,000 torrents announces all when it starts: libtorrent and rTorrent as fast as they can, others
/// tens per second. Hybrid torrents have two info hashes, and announces without an answer are repeated
/// after 15 seconds (BEP 15): 40,000 in all. A hundred seconds at [`ANNOUNCES_PER_S`] are 50,000.
pub const BURST_S: u32 = 100;
/// Prefixes whose requests are remembered by default, for each kind: 512 KiB. Most have one request and
/// are forgotten after a second, and among eight prefixes of a set the one with the fewest makes room:
/// so this also does at a million requests a second from as many addresses.
pub const BUCKETS: u32 = 1 << 16;
/// Prefixes whose requests are counted, for each kind of request: 128 MiB. The tables use 21 bits
/// of a hash to find a line and 20 others as a tag.
pub const BUCKETS_MAX: u32 = 1 << 24;

/// Prefixes that one UDP worker blocks in the kernel at a time. Each datagram is compared with all
/// of them.
pub const SOURCE_FILTER_MAX: usize = 32;

/// Listeners that the XDP program knows. Its counts have a place for each, on every queue.
pub const XDP_LISTENERS_MAX: usize = 16;

/// Frames of 4 KiB for each queue of an interface. A million datagrams a second fill them in 2 ms, and the ring of
/// received frames holds no more. A worker with 4,096 is not faster (`bench/record/2026-11-27-amd.md`).
pub const XDP_FRAMES: u32 = XDP_FRAMES_MIN;

/// As many as a queue's ring of received frames holds.
pub const XDP_FRAMES_MIN: u32 = 2048;

/// 256 MiB for each queue, locked.
pub const XDP_FRAMES_MAX: u32 = 1 << 16;

/// Bytes of one WebSocket message, whatever is configured. Offers of a host with many addresses
/// make 24 KB; 64 KiB must pass.
pub const WS_MESSAGE_MAX: usize = 128 * 1024;
/// Frames of one WebSocket message: a message of [`WS_MESSAGE_MAX`] in frames of 32 bytes. A limit
/// on bytes alone would let empty frames pass without end.
pub const WS_FRAGMENTS_MAX: u32 = 4096;

/// Seconds that a WebSocket message may take by default, from its first byte to its last: the longest
/// message at 52 kbit/s, a browser's usual one of 10 KB at 4 kbit/s.
pub const WS_MESSAGE_TIMEOUT_S: u32 = 20;

/// MiB of one worker for unfinished requests and messages, by default. After a restart 5,000 browsers
/// may come back in a second; with messages of 10 KB of which a third is on the way for 0.2 s, they
/// take 4 MiB. 64 clients that hold the longest message fill it, for [`WS_MESSAGE_TIMEOUT_S`] at most.
pub const READ_MEMORY_MIB: u32 = 8;
/// MiB of one worker for output that clients do not read, by default. The kernel holds what readers on
/// slow lines have not got yet; here is only what does not fit there. 128 clients that read nothing
/// fill it, if each may leave the default of 256 KiB.
pub const UNSENT_MEMORY_MIB: u32 = 32;

/// Bytes of one worker for the torrents that WebSockets have announced, so that their peers are removed when a client
/// leaves: 21 each if the client has one peer id, 33 if its ids begin alike, 41 at most. 10,000 desktop clients with
/// 1,500 torrents each fit into that of two workers. 640 with the maximum of 10,000 may fill one.
pub const WS_TORRENTS_MEMORY_MAX: usize = 256 << 20;

/// Peers of one torrent on one WebSocket, whose peer ids differ. A page has one connection and one peer
/// id, unless it runs several clients at once. Clients behind a proxy that is not trusted seem to have
/// its address, to which no other cap applies, so that this is all that limits each of them.
pub const WEB_PEERS_PER_CONNECTION: usize = 4;

/// Offers read from one WebTorrent announce; the rest is ignored. Clients send 5 to 10.
pub const WEB_OFFERS_MAX: usize = 64;
/// Seconds in which an offer must be answered. Clients give up after 50.
pub const OFFER_LIFETIME_S: u32 = 60;
/// Offers that one connection may still answer: it gets about as many as it sends, 5 to 10 in two minutes.
/// Above this the oldest of the networks that sent the most are dropped, so that a host with k networks
/// drops none of a network with fewer than 896 / k.
pub const OFFERS_OUTSTANDING_MAX: usize = 1024;
/// Offers per second of one prefix that are relayed while announces have a rate. A browser sends 10 every
/// two minutes at most, and so does libtorrent: this is enough for 12,000 of them behind one address. It
/// bounds what a host can make the tracker send beyond what it sends itself: at most 450 bytes for each
/// offer, which are the names of the message, and an info hash and two ids whose bytes may all be escaped.
pub const OFFERS_PER_S: u32 = 1000;
/// Offers of one prefix that may come at once: 2,000 browsers that come back when the tracker restarts.
pub const OFFERS_BURST: u32 = 20_000;
/// Bytes per second of one connection's announces: its interval is so long that they are not more, and offers above
/// them are not relayed. 700 torrents with ten offers of 750 bytes each fit into the usual interval of 120 seconds.
pub const WEB_OFFER_BYTES_PER_S: u32 = 64 * 1024;
/// Seconds of that rate which a connection may use at once: it announces all of its torrents when it opens.
pub const WEB_OFFER_BURST_S: u32 = 120;
/// The longest interval in seconds that a connection gets for its many torrents. Desktop clients do not say when they
/// leave a torrent (libtorrent 2.1), so its peer gets offers for as long.
pub const WEB_INTERVAL_MAX_S: u32 = 720;
/// Bytes of offers and answers that may wait for a client; further ones are dropped until it has read. Others
/// decide what it gets, so they must not fill what its own responses may take: a browser's next offers are
/// better than these when it reads again.
pub const RELAYED_UNREAD_MAX: usize = 64 * 1024;
/// Seconds without reading after which a client with such messages is closed while those of all clients
/// take a quarter of the memory for output. One that reads at all takes some within a second or two.
pub const RELAYED_UNREAD_S: u32 = 5;
/// Seconds between two checks that the client of a WebSocket is not banned and its key or token still
/// good. 100,000 connections with keys take 0.3 % of a core then.
pub const WEB_RECHECK_S: usize = 4;
/// Hashes answered in one WebTorrent scrape; the rest is ignored. Repeats are found by a linear
/// search.
pub const SCRAPE_HASHES_WEB_MAX: usize = 128;
/// Nesting of objects and arrays in one JSON message. Real messages nest four deep.
pub const JSON_DEPTH_MAX: u32 = 32;

/// Bytes in flight from all workers to one that is too busy to read them.
pub const EXCHANGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of WebTorrent messages for other nodes of a cluster that wait to be published: half a second of the
/// rate at which they are published. Later ones would be late.
pub const LETTERS_BYTES_MAX: usize = 16 << 20;
/// Bytes of such messages that are published together: a fraction of what NATS takes at once, 1 MiB.
pub const LETTERS_BODY_MAX: usize = 64 << 10;
/// Bytes per second of these messages that one node sends to others.
pub const LETTERS_BYTES_PER_S: u32 = 32 << 20;
/// Bytes of one such message: one of [`WS_MESSAGE_MAX`], with what the tracker adds to it.
pub const LETTER_TEXT_MAX: usize = 2 * WS_MESSAGE_MAX;

/// Hosts that certificates are obtained for. Each takes one order, and Let's Encrypt accepts 300 of
/// an account in three hours.
pub const ACME_DOMAINS_MAX: usize = 100;

/// Peers of one torrent returned at once. Their ids are looked up one by one under a lock.
pub const INSPECT_PEERS_MAX: usize = 1000;
/// Changes of peers kept until the journal takes them: 44 MB. It does so several times a second, so they
/// last for ten seconds of a disk that does not write, at 100,000 changes a second.
pub const CHANGES_MAX: usize = 1 << 20;
/// Torrent events kept until they are read, approximately.
pub const EVENTS_MAX: usize = 4096;
/// Frozen torrents. The set is copied at every change.
pub const FROZEN_MAX: usize = 4096;

/// One in this many bytes of the machine's memory is for torrents and peers by default. The other half
/// is for connections, whose buffers may take gigabytes, for sessions of keys and their records, and
/// for the page cache and other processes; and a new version runs beside the old one at an upgrade,
/// with a store that fills again while the old one's is still there.
pub const MEMORY_SHARE: u64 = 2;

/// MiB for torrents and peers by default where the system does not tell how much memory there is: half of
/// what the smallest machines have that are rented as servers. Unlimited, junk could fill the memory.
pub const MEMORY_UNKNOWN_MIB: u64 = 512;

/// Bytes of the journal of swarms, by default, for each byte of the memory for torrents and peers. A walk
/// over a full store writes less than the store has in memory: 8 bytes of an IPv4 peer that takes 9, 20 of an
/// IPv6 peer that takes more, 28 of a torrent that takes 64. The journal has up to two rounds, each a walk
/// and the changes of its time, up to 32 bytes an announce. Honest clients announce once in three rounds, so
/// their changes are about as many bytes as a walk: two of both are four times the store. Junk that comes and
/// goes takes more; rounds are shorter then.
pub const JOURNAL_SHARE: u64 = 4;

/// The least bound of the journal of swarms by default. A round that hurries takes up to twenty seconds. In that
/// time, announces of new hashes as one core serves them, 270,000 a second, write 170 MB: less than the 45 % of
/// this from which on a round hurries, so that two rounds have room.
pub const JOURNAL_LEAST: u64 = 512 << 20;

/// Peers of one torrent at one public address by default: a v4 address, or the /64 of a v6 address,
/// which is one host's or one household's. A household rarely has more than two or three clients in
/// one torrent. Of a carrier's shared address with more, each client is still answered; only the
/// latest eight are given to others, and few of them could be reached from outside anyway.
pub const PEERS_PER_ADDRESS: u16 = 8;
/// Peers of one torrent in one public network by default: a v4 /24, or a v6 /48, of which a customer
/// can have 65,536 /64s. The most popular torrents have some ten peers in the same /24 of a large
/// access network; eight full addresses make 64.
pub const PEERS_PER_NETWORK: u16 = 64;
/// The highest cap for a network, which holds without a cap and for exempt networks, too. All peers
/// of a public network in a torrent are in one page of the store, which every announce of theirs
/// scans: 4096 take 32 KiB, some microseconds.
pub const PEERS_PER_NETWORK_MAX: u16 = 4096;

/// Entries of one access list: 24 to 48 bytes each, 2.8 GB for this many on average.
pub const ACCESS_ENTRIES_MAX: usize = 100_000_000;
/// Fewest characters of a user's key: 16 of 64 kinds make 96 bits, which cannot be guessed.
pub const USER_KEY_LEN_MIN: usize = 16;
/// Most characters of a user's key: 32 bytes in hex.
pub const USER_KEY_LEN_MAX: usize = 64;
/// Users' keys: some 170 bytes each.
pub const USER_KEYS_MAX: usize = 10_000_000;
/// Sessions of key holders' peers, each kept until its peer's lifetime ends; 47 to 94 bytes each, and
/// some 130 more if the key has bounds. Above the limit, new peers of keys with bounds are refused;
/// those of other keys are served, but not counted for the user.
pub const KEY_SESSIONS_MAX: usize = 1 << 24;
/// Sessions of one key, so that no key fills the table: 1/128 of it. A client with 10,000 torrents that
/// announces each from four addresses has 40,000, and twice as many when it comes back elsewhere
/// after a crash. A session counts until two lifetimes after its last announce at most.
pub const KEY_SESSIONS_OF_ONE_MAX: u32 = 1 << 17;
/// Sessions of one key with the same peer id in one torrent: a client's addresses. They share a place
/// in the table, and each of its announces visits all. A host has an address of each family and
/// provider, and some more as IPv6 privacy addresses change.
pub const KEY_SESSIONS_OF_CLIENT_MAX: usize = 16;
/// Other peers of a user that an answer leaves out. Few have more clients in one torrent.
pub const SITE_OWN_PEERS_MAX: usize = 8;
/// Windows of a limit of lists of peers: from a minute to a week. Each takes 4 bytes of each user.
pub const SITE_LIST_WINDOWS_MAX: usize = 6;
/// Connections to peers, to see whether they accept any, that are begun in a second: 100,000 peers in 17 minutes, with one
/// packet each.
pub const SITE_PROBES_PER_S: u32 = 100;
/// Of these, at one address within [`SITE_PROBE_VALID_S`]: as many ports as a machine has that many users share.
pub const SITE_PROBES_PER_ADDRESS: u32 = 16;
/// Of these, in one network (/24 or /48) within the same time: the address of a client is verified, but not that its
/// network wants to hear of us.
pub const SITE_PROBES_PER_NETWORK: u32 = 512;
/// Seconds for which the result of a probe is valid: an announce interval.
pub const SITE_PROBE_VALID_S: u32 = 1800;
/// The lowest port that is probed. Lower ones belong to services: a probe of them could look like a scan.
pub const SITE_PROBE_PORT_MIN: u16 = 1024;
/// Probes that wait or have a result: 48 bytes each.
pub const SITE_PROBES_REMEMBERED: usize = 1 << 20;
/// Texts for refusals and warnings, which are kept until the end of the process, at some 150 bytes each. A site has some
/// ten, and reasons of torrents can all differ.
pub const NOTICES_MAX: usize = 1 << 20;
/// Bytes of such a text: more would not fit a line of a client's list.
pub const NOTICE_LEN_MAX: usize = 200;
/// Torrents that are refused with a reason of their own: some 100 bytes each.
pub const TORRENT_REASONS_MAX: usize = 1 << 20;
/// Sessions of key holders' peers that changed since the other nodes of a cluster were told, a second or so
/// ago: 16 bytes each, and 80 for each that ended. Further ones are not told: what such a peer transferred
/// since it was told last counts twice if it announces at another node next.
pub const KEY_SESSION_CHANGES_MAX: usize = 1 << 20;
/// Clients of key holders whose first report is kept while sessions of an earlier process are imported,
/// for some seconds: some 150 bytes each. Of further ones, what they transferred since their last report
/// to that process is not counted.
pub const KEY_FIRST_REPORTS_MAX: usize = 1 << 18;
/// Mbit/s above which what the peers of a key report is implausible by default, both directions together. Higher
/// reports, faulty or forged, are counted as this. No user has a faster line; few have a tenth of it.
pub const KEY_MBIT_PER_S: u32 = 100_000;
/// Bytes of a token: more than [`URL_DATA_MAX`] lets pass over UDP. One signed by RSA of 4096 bits takes
/// some 1000.
pub const TOKEN_LEN_MAX: usize = 4096;
/// Keys that tokens are verified with. A signer has one, and two while it changes.
pub const TOKEN_KEYS_MAX: usize = 64;
/// Bytes of a file or response with such keys: [`TOKEN_KEYS_MAX`] keys with a chain of certificates each.
pub const TOKEN_KEY_SET_MAX: usize = 1 << 20;
/// Ranges of addresses that `access.networks_allow` and `networks_deny` may come to, and that a list of networks may
/// have: 21 MiB of IPv4, 67 MiB of IPv6. The whole routing table of the internet has a million prefixes of IPv4 and a
/// quarter of that of IPv6.
pub const NETWORK_RANGES_MAX: usize = 2_000_000;
/// Bytes of a list at a URL, as it is sent and kept on the disk: twelve million info hashes.
pub const LIST_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a deflated list when it is inflated: as many entries as a list may have, with a note each. Deflated lines
/// of comments could go on for days.
pub const LIST_TEXT_MAX: u64 = 16 << 30;
/// Bytes of an MMDB file: ten times the largest that are in use.
pub const GEO_FILE_MAX: u64 = 1 << 30;
/// Networks in an MMDB file that are looked at: four times as many as the largest have. The file's tree is
/// a graph, and a damaged one can have more paths than could ever be followed.
pub const GEO_NETWORKS_MAX: usize = 32 << 20;
/// Torrent files in a folder: some 200 bytes each, and each is looked at every few seconds.
pub const TORRENT_FILES_MAX: usize = 1_000_000;
/// Bytes of a torrent file. Those of terabytes in small pieces take 10 MB.
pub const TORRENT_FILE_MAX: u64 = 32 << 20;
/// Levels of folders that are followed below `access.allow_torrents`.
pub const TORRENT_FOLDER_DEPTH_MAX: usize = 8;
/// Bans in force at a time: some 100 bytes each, and every change sorts all.
pub const BANS_MAX: usize = 1_000_000;
/// Automatic bans in force at a time, as a part of [`BANS_MAX`].
pub const BANS_AUTOMATIC_MAX: usize = 65_536;
/// Peer-id prefixes in one list.
pub const CLIENT_PREFIXES_MAX: usize = 1000;
/// Torrents with durable download counts: some 40 bytes each. Above the limit, a torrent with few
/// downloads makes room for the next; in a cluster, the next one gets no count.
pub const DOWNLOADS_MAX: usize = 1 << 25;
/// Prefixes from which a torrent that is on no allow list must be downloaded before its count is
/// durable: anyone can invent info hashes. A host has two, of IPv4 and IPv6.
pub const DOWNLOAD_PREFIXES_MIN: usize = 3;
/// Bits of such a prefix of public IPv4 addresses: the longest that is routed between networks.
pub const DOWNLOAD_PREFIX_V4: u8 = 24;
/// Bits of such a prefix of public IPv6 addresses: the most that one customer is given.
pub const DOWNLOAD_PREFIX_V6: u8 = 48;
/// Torrents that have been downloaded from fewer prefixes and are remembered for that: 24 bytes each.
/// A share of the torrents that a tracker with 10 million sees in the days that a rare one waits.
pub const DOWNLOAD_CANDIDATES_MAX: usize = 1 << 20;
/// Longest peer lifetime, in seconds. The store keeps ages in 14 bits of 16-second units and must
/// tell old from new across the wrap, so the lifetime stays below half of that range.
pub const PEER_LIFETIME_S_MAX: u32 = 24 * 3600;
/// The longest interval under load, in seconds. A client may miss one announce because of a budget, so its peer lives for
/// three of them.
pub const INTERVAL_MAX_S: u32 = PEER_LIFETIME_S_MAX / 3;
/// One in this many seconds of the announce interval is the most that is added to it at random. Clients that started
/// together are spread within a day, and a peer that waits longest still lives for half an interval more.
pub const JITTER_SHARE: u32 = 20;

const _: () = assert!(16 + 20 * SCRAPE_HASHES_UDP_MAX <= UDP_REQUEST_MAX);
const _: () = assert!(20 + 6 * PEERS_UDP_V4_MAX as usize <= UDP_PAYLOAD_V4_MAX);
const _: () = assert!(20 + 18 * PEERS_UDP_V6_MAX as usize <= UDP_PAYLOAD_V6_MAX);
