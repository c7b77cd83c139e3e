//! Every key there is. The one place that names them all: reading, `config init`, `config show` and
//! the messages about mistakes come from this table.

use types::limits;

use super::key::{Key, Kind, key, live, own};
use super::listeners::Transport;

/// What a `[[listener]]` must have.
pub(crate) const PROTOCOL: Key = key(
    "protocol",
    Kind::Choice(&Transport::LABELS),
    r#""http""#,
    "udp, http (with WebSocket) or tls (https and wss)",
);
/// Where it listens.
pub(crate) const LISTEN: Key =
    key("listen", Kind::List, r#"["127.0.0.1:8080"]"#, "addresses, as in [\"127.0.0.1:8080\"]");

const DAY_S: u32 = 24 * 3600;
/// More than any machine can serve in a second.
const RATE_MAX: u32 = 1_000_000;
/// More than the counters behind it can hold.
const BAN_RATE_MAX: u32 = 1_000_000;

/// All keys, section by section.
pub(crate) const KEYS: &[Key] = &[
    key(
        "udp.listen",
        Kind::List,
        r#"["0.0.0.0:6969", "[::]:6969"]"#,
        "Where to listen; [] is off. A v6 address takes no v4 traffic.",
    ),
    key(
        "udp.workers",
        Kind::Int(0, limits::WORKERS_MAX as u32),
        "0",
        "Threads; 0 is one for each core.",
    ),
    key(
        "udp.engine",
        Kind::Choice(&["auto", "mmsg", "portable", "uring", "xdp"]),
        r#""auto""#,
        "How datagrams move: auto, mmsg (Linux, a system call for a batch) or portable.\n\
         uring and xdp are reserved.",
    ),
    key(
        "udp.receive_buffer_bytes",
        Kind::Int(0, 1 << 30),
        "8388608",
        "Kernel memory for datagrams that wait, for each socket; 0 is the system's default.\n\
         The start says what was granted: net.core.rmem_max may limit it.",
    ),
    own(key(
        "udp.simple_proxy",
        Kind::Flag,
        "false",
        "Whether udp.trusted_proxies put Cloudflare's Simple Proxy header before each datagram, and\n\
         want it before each reply. From them nothing else is taken, from others no such header.",
    )),
    own(key("udp.trusted_proxies", Kind::List, "[]", "Addresses and networks of those proxies.")),
    key("udp.pin_cores", Kind::Flag, "false", "Keep each UDP worker on a core of its own."),
    key(
        "http.listen",
        Kind::List,
        r#"["0.0.0.0:6969", "[::]:6969"]"#,
        "Where to listen; [] is off.",
    ),
    key(
        "http.workers",
        Kind::Int(0, limits::WORKERS_MAX as u32),
        "0",
        "Threads; 0 is one for each core.",
    ),
    own(key("http.websocket", Kind::Flag, "true", "WebTorrent on the same ports.")),
    own(key(
        "http.websocket_paths",
        Kind::List,
        "[]",
        "Paths on which WebSockets are made, as in [\"/\", \"/announce\"]; [] is all paths that\n\
         mean nothing in HTTP.",
    )),
    own(key(
        "http.websocket_origins_allow",
        Kind::List,
        "[]",
        "Sites whose pages may use the tracker, as in [\"https://example.org\"]; [] is all. An\n\
         empty text stands for clients that are no web pages.",
    )),
    own(key("http.websocket_origins_deny", Kind::List, "[]", "Sites whose pages may not.")),
    own(key(
        "http.websocket_message_bytes",
        Kind::Int(1024, limits::WS_MESSAGE_MAX as u32),
        "131072",
        "The longest message taken. A browser on a host with many addresses sends 24 kB.",
    )),
    own(key(
        "http.websocket_messages_per_s",
        Kind::Int(0, u32::MAX),
        "1000",
        "Messages taken from one connection in a second, the others wait; 0 is no limit.",
    )),
    own(key(
        "http.websocket_torrents_max",
        Kind::Int(1, 10_000_000),
        "10000",
        "Torrents that one connection may be in.",
    )),
    own(key(
        "http.websocket_unread_bytes",
        Kind::Int(64 * 1024, 1 << 30),
        "262144",
        "Bytes kept for a client that does not read; more close it. http.write_timeout_s holds\n\
         too.",
    )),
    own(key(
        "http.websocket_ping_s",
        Kind::Int(1, DAY_S),
        "45",
        "Seconds of silence after which a client is pinged, which keeps proxies content, too.",
    )),
    own(key(
        "http.websocket_idle_timeout_s",
        Kind::Int(1, DAY_S),
        "110",
        "Seconds of silence after which a client is gone.",
    )),
    own(key(
        "http.trusted_proxies",
        Kind::List,
        "[]",
        "Addresses and networks of proxies that are believed when they say for whom they speak, as\n\
         in [\"127.0.0.1\", \"10.0.0.0/8\"].",
    )),
    own(key(
        "http.forwarded_header",
        Kind::Choice(&["x-forwarded-for", "forwarded"]),
        r#""x-forwarded-for""#,
        "The header in which they do: x-forwarded-for, or forwarded (RFC 7239). Only the one that\n\
         your proxies write can be believed; the other one they pass on as the client sent it.",
    )),
    own(key(
        "http.proxy_protocol",
        Kind::Choice(&["off", "v1v2"]),
        r#""off""#,
        "v1v2: each connection from trusted_proxies begins with a PROXY header, of version 1 or 2,\n\
         and is closed if it does not. From others such a header is bad HTTP.",
    )),
    own(key(
        "http.connections_max",
        Kind::Int(1, limits::CONNECTIONS_MAX as u32),
        "50000",
        "Connections that each worker holds; more are closed as they come. In a [[listener]]: those\n\
         that it holds there.",
    )),
    live(
        "http.connections_per_prefix_max",
        Kind::Int(0, limits::CONNECTIONS_MAX as u32),
        "5000",
        "Connections that the clients of one prefix may hold, at all workers together; more are\n\
         closed as they come. 0 is no limit. [limits] says what a prefix is, and who is exempt.",
    ),
    own(key(
        "http.head_timeout_s",
        Kind::Int(1, 3600),
        "10",
        "Seconds that a request may take to come.",
    )),
    own(key(
        "http.idle_timeout_s",
        Kind::Int(1, 3600),
        "60",
        "Seconds that a connection may be silent between requests.",
    )),
    own(key(
        "http.write_timeout_s",
        Kind::Int(1, 3600),
        "20",
        "Seconds that an answer may take to leave.",
    )),
    key(
        "http.non_compact",
        Kind::Flag,
        "false",
        "Honour compact=0 with lists of dictionaries and peer ids (BEP 3), for very old\n\
         clients. Peer ids are stored then, which takes tens of bytes for each peer.",
    ),
    key(
        "tls.listen",
        Kind::List,
        "[]",
        "Where to listen, as in [\"0.0.0.0:443\", \"[::]:443\"]; [] is off.",
    ),
    live(
        "tls.certificates",
        Kind::Tables(&["chain", "key"]),
        "[]",
        "PEM files, as in [{ chain = \"chain.pem\", key = \"key.pem\" }]: the certificate with those\n\
         of the authorities between it and the root, and its key. Of several, clients get the one\n\
         for the name they ask for, or else the first. Read again on SIGHUP and when a file\n\
         changes; if something is wrong then, the certificates in force stay.",
    ),
    live(
        "tls.acme.domains",
        Kind::List,
        "[]",
        "Host names of this tracker, as in [\"tracker.example.org\"], each of which gets a\n\
         certificate; [] is off. tls.certificates go before them.",
    ),
    live(
        "tls.acme.terms_of_service_agreed",
        Kind::Flag,
        "false",
        "true says that you agree to the authority's terms of service. There are no certificates\n\
         without that.",
    ),
    live(
        "tls.acme.contact",
        Kind::List,
        "[]",
        "Mail addresses, as in [\"you@example.org\"], to which the authority may write.",
    ),
    live(
        "tls.acme.cache",
        Kind::Text,
        r#""""#,
        "A folder for the account, certificates and keys, which must outlive restarts. It is made\n\
         if it is not there; tidegate must be able to write to it. Several processes may share it:\n\
         one of them renews.",
    ),
    live(
        "tls.acme.challenge",
        Kind::Choice(&["tls-alpn-01", "http-01"]),
        r#""tls-alpn-01""#,
        "How the authority sees that a host is this one: tls-alpn-01 (it connects to port 443, which\n\
         must lead to tls.listen) or http-01 (it connects to port 80, which must lead to\n\
         http.listen).",
    ),
    live(
        "tls.acme.directory",
        Kind::Text,
        r#""https://acme-v02.api.letsencrypt.org/directory""#,
        "Where the authority's ACME server is (RFC 8555). To try things out without meeting limits:\n\
         https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
    live(
        "tls.acme.ca",
        Kind::Text,
        r#""""#,
        "A PEM file with root certificates by which the ACME server itself is believed, beside the\n\
         usual ones: for authorities of one's own.",
    ),
    live(
        "tracker.interval_s",
        Kind::Int(1, DAY_S),
        "1800",
        "Seconds between a client's announces.",
    ),
    live(
        "tracker.interval_min_s",
        Kind::Int(1, DAY_S),
        "900",
        "Seconds before which a client should not announce again (HTTP tells it).",
    ),
    live(
        "tracker.enforce_interval_min",
        Kind::Flag,
        "false",
        "true: an announce that comes sooner is refused, and the client told when to come back,\n\
         unless it has an event (started, completed, stopped) or its peer's role has changed.\n\
         interval_min_s is taken 15 s shorter, and ages are known to 16 s: who is early by less\n\
         than 47 s may get through. WebTorrent: half of websocket_interval_s.",
    ),
    live(
        "tracker.interval_jitter_s",
        Kind::Int(0, DAY_S),
        "0",
        "Up to so many seconds are added to interval_s by chance, to spread clients that\n\
         came together.",
    ),
    live(
        "tracker.peer_lifetime_s",
        Kind::Int(2, limits::PEER_LIFETIME_S_MAX),
        "2700",
        "Seconds without an announce after which a peer is forgotten.",
    ),
    live(
        "tracker.numwant_default",
        Kind::Int(0, limits::PEERS_HTTP_MAX as u32),
        "50",
        "Peers for a client that does not say how many it wants.",
    ),
    live(
        "tracker.numwant_max",
        Kind::Int(0, limits::PEERS_HTTP_MAX as u32),
        "200",
        "Peers for any client. A UDP answer holds 242 over IPv4 and 79 over IPv6 at most.",
    ),
    live(
        "tracker.connection_id_lifetime_s",
        Kind::Int(1, DAY_S),
        "120",
        "Seconds for which a UDP connection id is good at least; twice that at most.",
    ),
    own(live(
        "tracker.private_addresses",
        Kind::Choice(&["auto", "allow", "deny"]),
        r#""auto""#,
        "Peers whose address is not public (private, loopback, link-local, documentation). auto:\n\
         taken if the address at which they reach the tracker is not public either. Multicast and\n\
         unspecified addresses are never taken. WebTorrent peers need no address.",
    )),
    live(
        "tracker.websocket_interval_s",
        Kind::Int(1, limits::PEER_LIFETIME_S_MAX / 2),
        "120",
        "Seconds between a WebTorrent client's announces. One that is silent for two intervals\n\
         is forgotten.",
    ),
    own(live(
        "access.mode",
        Kind::Choice(&["open", "allow", "deny", "both"]),
        r#""open""#,
        "open: every torrent. allow: those on the allow list. deny: all but those on the deny\n\
         list. both: those on the allow list that are not on the deny list.",
    )),
    own(live(
        "access.allow",
        Kind::Text,
        r#""""#,
        "Files of info hashes, one on a line: 40 hex digits, or 64 of a v2 hash. # begins a\n\
         comment. Read again on SIGHUP and when the file changes; a file with a bad line is\n\
         reported, and the list in force stays.",
    )),
    own(live("access.deny", Kind::Text, r#""""#, "")),
    own(live(
        "access.private",
        Kind::Flag,
        "false",
        "true: users need a key, which stands in their announce URL: /announce/KEY, /KEY/announce,\n\
         ?passkey=KEY or ?key=KEY; WebSocket: /KEY, too. Scrapes over UDP have no URL, and are refused.",
    )),
    live(
        "access.keys",
        Kind::Text,
        r#""""#,
        "A file of such keys, one on a line, and behind it whatever tells you whose it is. A key has 16\n\
         to 64 characters of A-Z a-z 0-9 _ -. # begins a comment. Read again as the lists are.",
    ),
    own(live(
        "access.clients_allow",
        Kind::List,
        "[]",
        "Beginnings of peer ids (BEP 20), as in [\"-TR\", \"-qB\"]: other client software is refused; []\n\
         is all. Software can lie about its peer id.",
    )),
    own(live(
        "access.clients_deny",
        Kind::List,
        "[]",
        "Beginnings of peer ids whose software is refused, as in [\"-XL\", \"-TR2\"].",
    )),
    key(
        "limits.memory_mib",
        Kind::Int(0, u32::MAX),
        "0",
        "Memory for torrents and peers, MiB; 0 is no limit. Near it idle peers are forgotten\n\
         early, at it new ones are answered but not stored.",
    ),
    live(
        "limits.announces_per_s",
        Kind::Int(0, RATE_MAX),
        "0",
        "Announces in a second from one prefix, over all protocols together; 0 is no limit. More\n\
         are refused, over UDP in silence. A client with 10,000 torrents needs 6; a mobile\n\
         operator's shared address needs hundreds.",
    ),
    live(
        "limits.announces_burst",
        Kind::Int(0, RATE_MAX),
        "0",
        "Announces that may come at once, as when a client starts; 0 is ten seconds' worth.",
    ),
    live("limits.scrapes_per_s", Kind::Int(0, RATE_MAX), "0", "The same for scrapes."),
    live("limits.scrapes_burst", Kind::Int(0, RATE_MAX), "0", "The same for scrapes."),
    live(
        "limits.connects_per_s",
        Kind::Int(0, RATE_MAX),
        "0",
        "The same for UDP connects, which come before a client's address is verified: who forges\n\
         another's address can use these up for it. Few clients connect more than once a minute.",
    ),
    live("limits.connects_burst", Kind::Int(0, RATE_MAX), "0", "The same for UDP connects."),
    live(
        "limits.kernel_block_per_s",
        Kind::Int(0, RATE_MAX),
        "10000",
        "A prefix of which a worker drops more announces and scrapes than that in a second is shut\n\
         out: the kernel drops all of its UDP, before it costs anybody else's. 0 is never. Linux.",
    ),
    live("limits.kernel_block_s", Kind::Int(1, DAY_S), "10", "For how many seconds."),
    live(
        "limits.prefix_v4_bits",
        Kind::Int(0, 32),
        "32",
        "Bits of an IPv4 address that make a prefix, whose clients are taken for one.",
    ),
    live(
        "limits.prefix_v6_bits",
        Kind::Int(0, 128),
        "64",
        "The same of an IPv6 address. Who has one address has the other 2^64 of its network, too.",
    ),
    live(
        "limits.exempt",
        Kind::List,
        r#"["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1", "fc00::/7"]"#,
        "Addresses and networks for which neither these limits hold nor that of connections.",
    ),
    key(
        "limits.buckets",
        Kind::Int(1, limits::BUCKETS_MAX),
        "65536",
        "Prefixes remembered for each of the three rates, 8 bytes each. Who asks most is\n\
         remembered longest; too small a table limits less, and harms nobody.",
    ),
    live(
        "bans.malformed_per_min",
        Kind::Int(0, BAN_RATE_MAX),
        "0",
        "More than so many things in a minute that are no requests: broken HTTP, WebSocket frames and\n\
         messages, and malformed UDP packets with a good connection id. The address is no forgery.",
    ),
    live(
        "bans.wrong_keys_per_min",
        Kind::Int(0, BAN_RATE_MAX),
        "0",
        "The same for requests with keys that nobody has. The address is no forgery; an expired key,\n\
         or none, does not count.",
    ),
    live(
        "bans.bad_connection_ids_per_min",
        Kind::Int(0, BAN_RATE_MAX),
        "0",
        "The same for UDP packets without a good connection id. Beware: anybody can send these in the\n\
         name of anybody else, and so have whom he likes banned.",
    ),
    live("bans.time_s", Kind::Int(1, 30 * DAY_S), "3600", "Seconds for which they are banned."),
    key("admin.listen", Kind::List, r#"["127.0.0.1:6970"]"#, "Where to listen; [] is off."),
    key("admin.tls", Kind::Flag, "false", "Whether it speaks HTTPS, by the certificates of [tls]."),
    key(
        "admin.requests_per_s",
        Kind::Int(0, RATE_MAX),
        "100",
        "API requests that one token may make in a second, twice as many at once; 0 is no limit.",
    ),
    key(
        "admin.wrong_tokens_per_min",
        Kind::Int(1, RATE_MAX),
        "60",
        "Wrong tokens that may come from one address, beyond 20 at once, before nothing from there is looked at.",
    ),
    key(
        "admin.cors_origins",
        Kind::List,
        "[]",
        "Web sites whose pages may use the API, with tokens: as \"https://example.org\".",
    ),
    key(
        "admin.webhook_ports",
        Kind::List,
        "[]",
        "TCP ports of other machines that webhooks may be posted to, as \"443\"; [] is no webhooks.\n\
         The sandbox lets no other connections be made.",
    ),
    key(
        "state.dir",
        Kind::Text,
        r#""""#,
        "The folder of the records, tidegate.db, made if it is not there. Without one they are in\n\
         memory, and what the API has changed ends with the process.",
    ),
    key(
        "state.flush_s",
        Kind::Int(1, 3600),
        "5",
        "Seconds between writes of counts: downloads of torrents, totals of keys. So much of them a\n\
         crash can cost; of what the API has acknowledged, nothing.",
    ),
    key(
        "process.user",
        Kind::Text,
        r#""""#,
        "When started as root: the user to become once the ports are bound; empty stays root.",
    ),
    key("process.group", Kind::Text, r#""""#, "The group to go with it; empty is the user's own."),
    key(
        "process.sandbox",
        Kind::Choice(&["auto", "off"]),
        r#""auto""#,
        "auto: give up, once the ports are bound, what serving does not need (Landlock and\n\
         seccomp, as far as the kernel has them): files can then be read only in the folders\n\
         where they are at the start. off: do not.",
    ),
    key(
        "process.shutdown_timeout_s",
        Kind::Int(0, 3600),
        "5",
        "Seconds that answers may take to leave when the tracker stops or is upgraded.",
    ),
    key(
        "trace.endpoint",
        Kind::Text,
        r#""""#,
        "The URL of a collector that takes OTLP over HTTP, as \"http://127.0.0.1:4318/v1/traces\"; empty\n\
         is off.",
    ),
    key(
        "trace.sample_per_million",
        Kind::Int(0, 1_000_000),
        "100000",
        "Requests to the API that are traced, of a million that belong to no trace yet.",
    ),
    live(
        "log.level",
        Kind::Text,
        r#""info""#,
        "error, warn, info, debug or trace; and others for some areas, as in \"info,front=debug\". Areas:\n\
         serve, reload, acme, front, api, audit, webhooks, records, traces, libraries: docs/operating.md.",
    ),
    key("log.format", Kind::Choice(&["text", "json"]), r#""text""#, "text or json."),
    live(
        "log.rate_limit_lines",
        Kind::Int(0, RATE_MAX),
        "100",
        "Lines of the same kind in rate_limit_s; of more, one line tells how many were left out. 0 is no bound.",
    ),
    live(
        "log.rate_limit_s",
        Kind::Int(1, DAY_S),
        "10",
        "For how long lines of the same kind count.",
    ),
];

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}
