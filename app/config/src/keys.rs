//! Every key of the configuration, with its type, bounds, default and documentation.
//!
//! Nothing else names them: reading files, variables and the API, `config init`, `config show` and
//! the messages about mistakes all come from this table.
//!
//! A key with the flag `constant` is no longer a setting. Its default is the value, which only tests change
//! ([`super::constants`]); it has no documentation beyond this table.

use front::http::ForwardedHeader;
use net::Engine;
use net::tls::CertificateFiles;
use pages::PublicPage;
use serde_json::Value as Json;
use tracker::PrivateAddresses;
use tracker::access::Mode;
use types::limits;
use xdp::Mode as XdpMode;

use super::choices::{
    Challenge, Choice, LogFormat, ProxyProtocol, Sandboxing, SiteKind, StatsChoice, Transport,
};
use super::key::{Key, Kind, Origin, Problem, Section};
use super::schema::{default_value, kind, settings, value_type};
use super::setting::{AnySetting, Setting};
use super::source::unknown_key;
use super::swarms::ROUND_S_MIN;
use super::{constants, features};

/// `limits.exempt` and `http.stats_networks` by default: loopback and private networks.
const PRIVATE_NETWORKS: [&str; 6] =
    ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1", "fc00::/7"];

/// `tracker.external_address_for` by default: the same, and link-local networks.
const LOCAL_NETWORKS: [&str; 8] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "::1",
    "fc00::/7",
    "fe80::/10",
];

const DAY_S: u32 = 24 * 3600;
/// More than any machine can serve in a second.
const RATE_MAX: u32 = 1_000_000;
const WORKERS_MAX: u32 = limits::WORKERS_MAX as u32;
const CONNECTIONS_MAX: u32 = limits::CONNECTIONS_MAX as u32;
const PEERS_MAX: u32 = limits::PEERS_HTTP_MAX as u32;
const NETWORK_PEERS_MAX: u32 = limits::PEERS_PER_NETWORK_MAX as u32;

settings! {
    /// State that survives a restart: changes made through the API, counters, and swarms.
    ["state"] state: StateSection {
        /// Directory for the records (tidegate.db), the journal of swarms (swarms/) and certificates
        /// (acme/); created if it does not exist. "auto" = $STATE_DIRECTORY, or tidegate/ in
        /// $XDG_STATE_HOME or ~/.local/state; with process.user, /var/lib/tidegate. Empty = nothing is
        /// kept: changes made through the API and swarms are lost when the process ends.
        dir: Text, common = "auto";
        /// Seconds between writes of counters. A crash loses at most this many seconds of them.
        flush_s: Int(1, 3600), constant = 5;
        /// Keep a journal of swarms in dir, so that peers survive restarts, crashes and power
        /// failures. It contains addresses of clients and takes some 40 bytes per peer, and more where
        /// clients come and go. WebTorrent peers are connections and are not in it.
        swarms: Flag = features::JOURNAL;
        /// Seconds in which the journal writes every peer once. A restored peer looks up to a round older than it is.
        swarms_round_s: Int(ROUND_S_MIN, 3600), reloadable, constant = 600;
        /// Seconds after which the journal is forced to the disk: what a power failure loses. 0 = never.
        swarms_sync_s: Int(0, 3600), reloadable, constant = 5;
        /// Seconds that a start waits for swarms to be restored before it serves.
        swarms_restore_wait_s: Int(0, 3600), constant = 10;
    }

    /// UDP tracker (BEP 15).
    ["udp"] udp: UdpSection {
        /// Addresses to listen on. [] = off. An IPv6 address does not accept IPv4 traffic.
        listen: List, common = ["0.0.0.0:6969", "[::]:6969"];
        /// Worker threads. 0 = one per core.
        workers: Int(0, WORKERS_MAX) = 0;
        /// The engine that receives and sends datagrams: auto (mmsg on Linux), mmsg (one system call per
        /// batch), portable, shield (mmsg behind an XDP program that answers connects and drops
        /// floods) or xdp (shield, and AF_XDP sockets instead of UDP sockets). The last two need
        /// Linux and rights, and hide datagrams from firewalls: see docs/xdp.md. The name uring is
        /// reserved.
        engine: Choice(Engine) = Engine::Auto;
        /// Kernel memory for datagrams that wait to be read, per socket. 0 = the system's default.
        receive_buffer_bytes: Int(0, 1 << 30), constant = 8_388_608;
        /// Addresses and networks of the proxies that put Cloudflare's Simple Proxy header before each datagram
        /// and expect it before each reply. Datagrams from them without the header are dropped, and so are
        /// datagrams with it from any other address.
        trusted_proxies: List, per_listener = [];
    }

    /// HTTP tracker (BEP 3) and WebTorrent.
    ["http"] http: HttpSection {
        /// Addresses to listen on. [] = off.
        listen: List, common = ["0.0.0.0:6969", "[::]:6969"];
        /// Worker threads. 0 = one per core.
        workers: Int(0, WORKERS_MAX) = 0;
        /// Serve WebTorrent (WebSocket) on the same ports.
        websocket: Flag, per_listener = true;
        /// Web sites whose pages may use the tracker, e.g. ["https://example.org"]. [] = all. An
        /// empty string in the list stands for clients that are not web pages.
        websocket_origins_allow: List, per_listener_deprecated = [];
        /// Web sites whose pages may not use the tracker.
        websocket_origins_deny: List, per_listener_deprecated = [];
        /// Messages read from one connection per second; further ones wait. 0 = unlimited.
        websocket_messages_per_s: Int(0, u32::MAX), per_listener, constant = 1000;
        /// Addresses and networks of the proxies that may name the client they speak for, e.g.
        /// ["127.0.0.1", "10.0.0.0/8"].
        trusted_proxies: List, per_listener, common = [];
        /// The header in which trusted proxies name the client: x-forwarded-for, or forwarded (RFC
        /// 7239). Choose the one your proxies write: they pass on the other one as the client sent
        /// it.
        forwarded_header: Choice(ForwardedHeader), per_listener_deprecated = ForwardedHeader::XForwardedFor;
        /// v1v2: connections from trusted_proxies must begin with a PROXY header, version 1 or 2,
        /// or they are closed. From other addresses such a header is a malformed request.
        proxy_protocol: Choice(ProxyProtocol), per_listener = ProxyProtocol::Off;
        /// Maximum number of connections per worker; a further one displaces one of the network (IPv4 /24,
        /// IPv6 /48) with the most, or is closed at once. In a [[listener]]: the maximum at its addresses.
        connections_max: Int(1, CONNECTIONS_MAX), per_listener = 50_000;
        head_timeout_s: Int(1, 3600), per_listener, constant = 10;
        /// Honour compact=0, for very old clients: answer with a list of dictionaries that includes
        /// peer ids (BEP 3). Storing peer ids takes tens of bytes per peer.
        non_compact: Flag = false;
        /// The page that a browser gets at /: off, urls (a page with the announce URLs) or figures (the same, with
        /// numbers of torrents and peers, traffic of the last 24 hours and uptime of 90 days). Programs read it at
        /// /page.json.
        page: Choice(PublicPage), per_listener = PublicPage::Urls;
        /// Your own text on that page, e.g. how to reach you: at most 4096 bytes, not HTML. Empty lines divide
        /// paragraphs.
        page_text: Text = "";
        /// The name of this host in the announce URLs of that page, e.g. "tracker.example.org". Empty =
        /// the name that the request has.
        public_host: Text = "";
        /// Answer scrapes without info_hash with all torrents, sorted and streamed, with gzip if the
        /// client takes it. It lists every torrent of the tracker to anyone; not at private listeners.
        /// See docs/http.md.
        full_scrape: Flag, reloadable, per_listener = false;
        /// Statistics for monitoring tools of other trackers: off, page (bittorrent-tracker's page, and
        /// its stats.json) or opentracker (that tracker's peer counts). Both have opentracker's
        /// ?mode=... See docs/http.md.
        stats: Choice(StatsChoice), per_listener = StatsChoice::Off;
        /// Where the statistics are. JSON is at the same path with .json behind it.
        stats_path: Text, per_listener_deprecated = "/stats";
        /// Addresses and networks of the clients that may read the statistics.
        stats_networks: List, per_listener_deprecated = PRIVATE_NETWORKS;
    }

    /// The torrents and clients that are served, for announces and scrapes.
    ["access"] access: AccessSection {
        /// open: serve every torrent. allow: only those on the allow list. Torrents on the deny list are refused
        /// in every mode: deny is another word for open, and both for allow.
        mode: Choice(Mode), reloadable, per_listener, common = Mode::Open;
        /// File with the info hashes of the allow list, one per line: 40 hex digits, or 64 for a v2
        /// hash, optionally followed by a note such as the torrent's name. # starts a comment. Read
        /// again on SIGHUP and when the file changes; a file with an invalid line is reported, and
        /// the list in use stays. Or its https URL, which cannot be set through the API, if wanted with
        /// #sha256= and its digest. See docs/access.md.
        allow: Text, reloadable, per_listener, common = "";
        /// File with the info hashes of the deny list, or its URL, in the same format.
        deny: Text, reloadable, per_listener = "";
        /// Folder of .torrent files, with the folders in it: their torrents are on the allow list, v2 and
        /// hybrid ones by each of their hashes. Files that are added, changed or removed are noticed within
        /// seconds. The API and the dashboard show the names and sizes of these torrents.
        allow_torrents: Text, reloadable, per_listener_deprecated = "";
        /// Refusals that are sent as a response without peers and with a long interval, which all clients heed, e.g.
        /// ["denied", "client_refused=86400"]: the reason, and the interval in seconds. See docs/access.md.
        quiet: List, reloadable = [];
        /// Networks whose clients alone are served, e.g. ["198.51.100.0/24", "AS64500", "country:XX",
        /// "file:/etc/tidegate/good.txt"]; also an https URL. [] = all. Systems need geo.asn and countries
        /// geo.country; they are read again when that file changes. Proxies that are trusted are always served.
        networks_allow: List, reloadable = [];
        /// Networks whose clients are refused as if they were banned. With =quiet behind an entry, their announces get
        /// a response without peers; with =numwant:10, at most 10 peers. See docs/access.md.
        networks_deny: List, reloadable = [];
        /// Seconds between requests for a list at a URL, with up to a tenth more or less at random.
        lists_refresh_s: Int(60, 7 * DAY_S), reloadable = 3600;
        lists_timeout_s: Int(1, 3600), reloadable, constant = 300;
        /// PEM file of authorities to trust for the https URLs of this section, besides those that browsers trust.
        urls_ca: Text, reloadable = "";
        /// true: users need a key in their announce URL: /announce/KEY, /KEY/announce, ?passkey=KEY
        /// or ?key=KEY; for WebSocket also /KEY. UDP scrapes cannot carry a key and are refused.
        private: Flag, reloadable, per_listener, common = false;
        /// true: private listeners, those that need tokens (jwt) and open ones may serve side by side, although
        /// all listeners share the same swarms: at an open one, anyone gets the peers of a private one. false:
        /// such a configuration is refused, and so are nodes of a cluster with other listeners.
        private_and_open: Flag, reloadable = false;
        /// File with these keys, one per line, optionally followed by a note on whose key it is. A key has 16 to 64
        /// characters of A-Z a-z 0-9 _ -. # starts a comment. Read again like the lists.
        keys: Text, reloadable = "";
        /// Mbit/s that the clients of one key can plausibly send and receive, all of them and both directions
        /// together. What they report above it is not credited to the user. 0 = unlimited.
        key_mbit_per_s: Int(0, RATE_MAX), reloadable = limits::KEY_MBIT_PER_S;
        /// true: announces need a JSON Web Token for their torrent in the announce URL, /announce?jwt=TOKEN,
        /// with the claims exp and infohash. Scrapes need none. Not together with private.
        jwt: Flag, reloadable, per_listener = false;
        /// Where the public keys of these tokens are: a file with a JSON Web Key Set, or its https URL,
        /// which cannot be set through the API. Accepted are ES256, EdDSA (Ed25519) and RS256 with at
        /// least 2048 bits.
        jwt_keys: Text, reloadable = "";
        /// The issuer that tokens must name (iss). Empty = any.
        jwt_issuer: Text, reloadable = "";
        /// The audience that tokens must name (aud). Empty = any.
        jwt_audience: Text, reloadable = "";
        /// Seconds between requests for jwt_keys, if that is a URL.
        jwt_refresh_s: Int(10, DAY_S), reloadable, constant = 300;
        /// Peer id prefixes (BEP 20) of the client software to accept, e.g. ["-TR", "-qB"]. [] =
        /// all. Software can lie about its peer id.
        clients_allow: List, reloadable, per_listener_deprecated = [];
        /// Peer id prefixes of the client software to refuse, e.g. ["-XL", "-TR2"].
        clients_deny: List, reloadable, per_listener_deprecated = [];
    }

    /// HTTPS tracker, and WebTorrent over TLS (wss). The keys of [http] apply here too.
    ["tls"] tls: TlsSection {
        /// Addresses to listen on, e.g. ["0.0.0.0:443", "[::]:443"]. [] = off.
        listen: List, common = [];
        /// PEM files, e.g. [{ chain = "chain.pem", key = "key.pem" }]. The chain holds the
        /// certificate and the intermediate certificates. With several entries, clients get the one
        /// for the name they ask for, or else the first. The files are read again on SIGHUP and
        /// when they change; if one is invalid then, the certificates in use stay.
        certificates: Certificates, reloadable = [];
    }

    /// Certificates from an ACME authority such as Let's Encrypt, obtained and renewed
    /// automatically. See docs/run/tls.md.
    ["tls.acme"] acme: AcmeSection {
        /// Host names of this tracker, e.g. ["tracker.example.org"]; each gets its own certificate.
        /// [] = off. By naming one you agree to the authority's terms of service. Certificates and
        /// keys are kept in acme/ in state.dir. The authority connects to port 443, which must lead
        /// to tls.listen; or to port 80 if http.listen has that and tls.listen does not have 443.
        /// tls.certificates take precedence.
        domains: List, reloadable, common = [];
        /// Directory for the account, certificates and keys. Of several processes that share it, one renews.
        cache: Text, reloadable, constant = "";
        /// The authority's way to verify the host: tls-alpn-01 (by port 443) or http-01 (by port 80).
        challenge: Choice(Challenge), reloadable, constant = Challenge::TlsAlpn;
        /// The authority's ACME directory (RFC 8555). To experiment without Let's Encrypt's rate
        /// limits, use https://acme-staging-v02.api.letsencrypt.org/directory
        directory: Text, reloadable = "https://acme-v02.api.letsencrypt.org/directory";
        /// PEM file with additional root certificates to trust when connecting to the ACME server,
        /// for private authorities.
        ca: Text, reloadable = "";
    }

    /// Intervals, lifetimes and peer counts, for every protocol.
    ["tracker"] tracker: TrackerSection {
        /// Seconds between the announces of a client.
        interval_s: Int(1, DAY_S), reloadable, common = 1800;
        /// Seconds a client should wait at least before it announces again (sent over HTTP).
        interval_min_s: Int(1, DAY_S), reloadable = 900;
        /// true: refuse earlier announces and tell the client when to retry. Announces with an
        /// event (started, completed, stopped) or a changed role are accepted at any time.
        /// interval_min_s is shortened by 15 s, and ages are known to 16 s, so a client that is
        /// less than 47 s early may be accepted. For WebTorrent the minimum is half of
        /// websocket_interval_s.
        enforce_interval_min: Flag, reloadable = false;
        /// Maximum of the random number of seconds added to interval_s. "auto" = a twentieth of interval_s.
        interval_jitter_s: AutoInt(0, DAY_S), reloadable, constant = None;
        /// Seconds without an announce after which a peer is removed. "auto" = one and a half intervals.
        peer_lifetime_s: AutoInt(2, limits::PEER_LIFETIME_S_MAX), reloadable, constant = None;
        /// Maximum number of peers returned. A UDP response holds at most 242 over IPv4 and 79 over
        /// IPv6.
        numwant_max: Int(0, PEERS_MAX), reloadable = 200;
        /// Policy for peers with an address that is not public (private, loopback, link-local, documentation).
        /// auto: accept them only if they reached the tracker at such an address too. Multicast and unspecified addresses are
        /// never accepted. WebTorrent peers need no address.
        private_addresses: Choice(PrivateAddresses), reloadable, per_listener =
            PrivateAddresses::Auto;
        /// Public addresses of this site, at most one of each family, e.g. ["203.0.113.7"]. Peers beside
        /// the tracker, at private, loopback and link-local addresses, are given to others under it, so that
        /// they can be reached from outside: the router must forward their ports. []: only
        /// loopback and link-local addresses are replaced, by an address of this machine, unless all listeners are
        /// on loopback.
        external_address: List, reloadable, per_listener = [];
        /// Addresses and networks of the peers that external_address replaces.
        external_address_for: List, reloadable, per_listener_deprecated, constant =
            LOCAL_NETWORKS;
        /// Seconds between the announces of a WebTorrent client. It is removed after two intervals of silence.
        websocket_interval_s: Int(1, limits::PEER_LIFETIME_S_MAX / 2), reloadable = 120;
    }

    /// Reactions to load: longer intervals, and budgets of services. See docs/operate/load.md.
    ["load"] load: LoadSection {
        /// Seconds up to which intervals grow when the tracker is busy or near a budget. WebTorrent's grow in the
        /// same proportion. 0 = intervals do not grow. In a cluster, the same at all nodes.
        interval_max_s: Int(0, limits::INTERVAL_MAX_S), reloadable = 0;
        /// Percent of the processor time that workers may use, above which intervals grow.
        cpu_percent: Int(1, 100), reloadable = 70;
        /// Limits of services, e.g. ["udp4 announces_per_s=50000", "https bytes_per_day=500G"]. Services are udp,
        /// http, https and ws, each with 4 or 6; without, both families have the budget, each for itself.
        /// Announces above it get no peers and the longest interval, those of unknown torrents first. Bytes are payload,
        /// received and sent, from midnight to midnight in UTC.
        budgets: List, reloadable = [];
        step_s: Int(1, 600), reloadable, constant = 10;
    }

    /// Bounds on memory, and on what clients may use, counted by the prefix of their address.
    ["limits"] limits: LimitsSection {
        /// Memory for torrents and peers in MiB. "auto" = half of the memory of the machine or of the container;
        /// 512 where the system does not tell. 0 = unlimited. Near the limit, peers of the networks that have
        /// most are removed, then idle ones; at the limit, new peers are answered but not stored. A public
        /// IPv4 /24 or IPv6 /48 may have a sixteenth of it, unless it is in limits.exempt.
        memory_mib: AutoInt(0, u32::MAX), common = None;
        /// Maximum number of peers of one torrent at one public address: an IPv4 address or an IPv6
        /// /64. A new peer above it replaces the one that announced longest ago. 0 = unlimited.
        /// WebTorrent peers count by themselves; one WebSocket has at most 4 in a torrent. Networks
        /// in limits.exempt and addresses that are not public have no maximum.
        peers_per_address: Int(0, NETWORK_PEERS_MAX), reloadable = limits::PEERS_PER_ADDRESS as u32;
        /// The same for one public network: an IPv4 /24 or an IPv6 /48. 0 = 4096.
        peers_per_network: Int(0, NETWORK_PEERS_MAX), reloadable, constant = limits::PEERS_PER_NETWORK as u32;
        /// Announces per second from one prefix, over all protocols. 0 = unlimited. Announces over
        /// the rate are refused, or dropped over UDP. A client with 10,000 torrents needs 6, a
        /// server that hosts 50 clients with 5,000 torrents each needs 139.
        announces_per_s: Int(0, RATE_MAX), reloadable = limits::ANNOUNCES_PER_S;
        /// Announces accepted in a burst, e.g. when a client starts. 0 = a hundred times the rate.
        announces_burst: Int(0, RATE_MAX), reloadable, constant = 0;
        /// Scrapes per second from one prefix. 0 = unlimited. "auto" = as many as announces_per_s, at least 500.
        scrapes_per_s: AutoInt(0, RATE_MAX), reloadable, constant = None;
        scrapes_burst: Int(0, RATE_MAX), reloadable, constant = 0;
        /// UDP connects per second from one prefix. 0 = unlimited. "auto" = four times announces_per_s, at least 2000.
        connects_per_s: AutoInt(0, RATE_MAX), reloadable, constant = None;
        connects_burst: Int(0, RATE_MAX), reloadable, constant = 0;
        /// Requests per second that one worker drops from a prefix before the kernel blocks its UDP. 0 = never.
        kernel_block_per_s: Int(0, RATE_MAX), reloadable, constant = 10_000;
        kernel_block_s: Int(1, DAY_S), reloadable, constant = 10;
        /// Leading bits of an IPv6 address that make a prefix. A client with one address can
        /// usually use all 2^64 of its network.
        prefix_v6_bits: Int(0, 128), reloadable = 64;
        /// Addresses and networks exempt from these limits, from that of 5,000 connections per prefix, and from
        /// [bans].
        exempt: List, reloadable = PRIVATE_NETWORKS;
    }

    /// Offences per minute after which a client's prefix ([limits]) is banned automatically, for an hour. 0 =
    /// never. Networks in limits.exempt are not banned. See docs/operate/limits.md.
    ["bans"] bans: BansSection {
        /// Malformed requests: broken HTTP, WebSocket frames and messages, and malformed UDP
        /// packets with a valid connection id. The source address is verified. A page's script can have
        /// browsers speak other protocols; other requests of browsers do not count.
        malformed_per_min: Int(0, RATE_MAX), reloadable = 0;
        /// Requests with an unknown key, but of no web browser: any page can cause those. The source
        /// address is verified. Expired or missing keys do not count.
        wrong_keys_per_min: Int(0, RATE_MAX), reloadable = 0;
        duration_s: Int(1, 30 * DAY_S), reloadable, constant = 3600;
    }

    /// Dashboard, management API, metrics and health. See docs/api.md for how to sign in.
    ["admin"] admin: AdminSection {
        /// Addresses to listen on. [] = off.
        listen: List, common = ["127.0.0.1:6970"];
        /// Use HTTPS, with the certificates of [tls].
        tls: Flag = false;
        /// API requests per second and token, with bursts of twice as many. 0 = unlimited.
        requests_per_s: Int(0, RATE_MAX), constant = 100;
        /// Invalid tokens per minute from one address, after a burst of 20, and ten times as many from all together.
        wrong_tokens_per_min: Int(1, RATE_MAX), constant = 60;
        /// Host names under which clients may reach this listener, e.g. ["tracker.example.org"].
        /// Requests to others get status 421, so that no web page can pass itself off as the
        /// tracker (DNS rebinding). IP addresses, localhost and the names of the tracker's
        /// certificates are always allowed, and so are health checks. ["*"] = any name.
        hosts: List = [];
        /// Require a token with the scope stats:read for /metrics.
        metrics_token: Flag = false;
        /// Web sites whose pages may use the API with a token, e.g. ["https://example.org"].
        cors_origins: List = [];
        /// TCP ports to which webhooks may be posted, e.g. ["443"]. [] = no webhooks. The sandbox
        /// blocks connections to other ports.
        webhook_ports: List = [];
        /// Addresses and networks to which webhooks may be posted although they are not public, e.g.
        /// ["10.1.2.3"]. Others that are not (private, loopback, link-local and the like) are
        /// refused, whatever name the URL has.
        webhook_private: List = [];
    }

    /// The log, written to standard error.
    ["log"] log: LogSection {
        /// error, warn, info, debug or trace, optionally with other levels per area, e.g.
        /// "info,front=debug". Areas: serve, reload, acme, front, api, audit, webhooks, records,
        /// journal, cluster, site, traces, libraries. See docs/operate/observe.md.
        level: Text, reloadable = "info";
        /// text or json.
        format: Choice(LogFormat) = LogFormat::Text;
        rate_limit_lines: Int(0, RATE_MAX), reloadable, constant = 100;
        /// Seconds over which similar lines are counted.
        rate_limit_s: Int(1, DAY_S), reloadable, constant = 10;
    }

    /// The process: its user, its sandbox, its end.
    ["process"] process: ProcessSection {
        /// User to switch to after binding the ports, if started as root. Empty = stay root.
        user: Text = "";
        /// auto: after binding the ports, give up everything that serving does not need (Landlock
        /// and seccomp, as far as the kernel supports them). Files can then be read only in the
        /// directories where they were at startup. off: keep all rights.
        sandbox: Choice(Sandboxing) = Sandboxing::Auto;
        /// Seconds that responses in progress have to be sent when the tracker stops or is upgraded.
        shutdown_timeout_s: Int(0, 3600), constant = 5;
    }

    /// Networks and countries of peers, from MMDB files that you provide. They are looked up beside the
    /// requests, never for one.
    ["geo"] geo: GeoSection {
        /// MMDB file with the autonomous system of each network, e.g. GeoLite2-ASN.mmdb. Empty = none. Read
        /// again when it changes. For statistics, and for systems in access.networks_allow and networks_deny.
        asn: Text, reloadable = "";
        /// MMDB file with the country of each network, e.g. GeoLite2-Country.mmdb. Empty = none. For statistics,
        /// and for countries in these keys.
        country: Text, reloadable = "";
        /// Percent of a response's peers that come from the client's own zone or autonomous system (asn), if there are
        /// any, in place of others. 0 = off. Not for WebTorrent, and not with [site]. See
        /// docs/configure/by-task.md.
        near_percent: Int(0, 50), reloadable = 0;
        /// Zones for near_percent besides systems, which they come before: networks of each with spaces between them,
        /// e.g. ["10.1.0.0/16 2001:db8:1::/48", "10.2.0.0/16"].
        zones: List, reloadable = [];
        interval_s: Int(1, DAY_S), reloadable, constant = 300;
    }

    /// A cluster: several machines that are one tracker. Each holds all peers; NATS carries what one of
    /// them learns to the others. A new value of a key here applies after a restart or an upgrade
    /// (SIGUSR2). See docs/cluster.md.
    ["cluster"] cluster: ClusterSection {
        /// This node's join file, which `tidegate cluster invite` makes: the cluster's name, this node's number, its
        /// user at the NATS servers, and the secret that all nodes share. Only its owner may read it. Empty = no cluster.
        join: Text = "";
        /// Milliseconds for which changes are collected before they are sent.
        flush_ms: Int(5, 500), constant = 50;
        /// MiB of changes that wait while NATS is away.
        queue_mib: Int(1, 4096), constant = 64;
        /// Seconds after which /health/ready no longer waits for what the other nodes know.
        warm_wait_s: Int(0, 3600), constant = 30;
    }

    /// A site whose users announce with keys: what each transfers of each torrent is counted for it. Needs private
    /// listeners and state.dir. Other values than that of kind are those of the site's own settings. A new value of a
    /// key here applies after a restart or an upgrade (SIGUSR2). See docs/run/site.md.
    ["site"] site: SiteSection {
        /// off, feed (any site reads what its users transferred from the API), unit3d or gazelle (the site's
        /// own database is read and written, and its calls are answered).
        kind: Choice(SiteKind) = SiteKind::Off;
        /// The site's database, e.g. "mysql://tidegate@127.0.0.1:3306/unit3d". Of unit3d and gazelle.
        database: Text = "";
        /// File with the password of the database's user. Empty = the URL has it, or there is none.
        database_password: Text = "";
        /// PEM file with the authority that signed the certificate of the database's server, e.g.
        /// "/etc/tidegate/site/ca.pem", or "public" if it is one that browsers trust. Connections then use TLS, and the
        /// certificate must name the host in the URL. Empty = no TLS.
        database_ca: Text = "";
        /// Address on which the site's calls are answered, e.g. "127.0.0.1:6971". Only the site should reach it.
        listen: Text = "";
        /// File with TRACKER_KEY of unit3d, which the site's calls have in their paths. At least 32 characters.
        tracker_key: Text = "";
        /// File with the password of gazelle's updates (TRACKER_SECRET). At least 32 characters.
        site_password: Text = "";
        /// File with the password of gazelle's reports (TRACKER_REPORTKEY). At least 32 characters.
        report_password: Text = "";
        /// URL of gazelle, e.g. "http://127.0.0.1": its tools.php is called when a completed download has used up a
        /// freeleech token, so that the site's cache forgets it. site_password is part of these calls, and only http:// is
        /// spoken: the site must be on this machine or in a network that you trust. Empty = no calls.
        url: Text = "";
        /// Seconds within which the database has what users transferred, if it keeps up. A kill loses at most this much.
        flush_s: Int(1, 60) = 3;
        /// Maximum size in MiB of what waits on the disk while the database is away.
        spool_mib: Int(16, 1 << 20) = 4096;
        /// Percent of uploaded bytes that are credited to everyone, unless more are by another rule.
        upload_factor: Int(0, 10_000) = 100;
        /// Percent of downloaded bytes that are credited to everyone, unless fewer are by another rule.
        download_factor: Int(0, 10_000) = 100;
        /// Percent of uploaded bytes that are credited to donors. "auto" = as to their group.
        donor_upload_factor: AutoInt(0, 10_000) = None;
        /// Percent of downloaded bytes that are credited to donors. "auto" = as to their group.
        donor_download_factor: AutoInt(0, 10_000) = None;
        /// Percent of uploaded bytes that are credited to lifetime donors. "auto" = as to their group.
        lifetime_donor_upload_factor: AutoInt(0, 10_000) = None;
        /// Percent of downloaded bytes that are credited to lifetime donors. "auto" = as to their group.
        lifetime_donor_download_factor: AutoInt(0, 10_000) = None;
        /// Clients of one user in one torrent; more are refused.
        clients_per_torrent: Int(1, 1000) = 3;
        /// Lists of peers that the downloading clients of one user get within windows: "SECONDS=LISTS;…", of which all
        /// hold. Beyond them an announce succeeds without peers, against users who collect addresses. Empty = unlimited.
        /// Of unit3d.
        seed_lists: Text = "60=10;900=25;7200=125;86400=500;604800=2500";
        /// The same for the seeding clients of one user, which get downloaders only.
        leech_lists: Text = "60=20;900=50;7200=250;86400=1000;604800=5000";
        /// Addresses of this machine from which clients are probed, at most one of each family, e.g. ["203.0.113.7"]: one
        /// TCP connection to the address and port that a client announces, at most each half hour. The result is the
        /// column connectable of unit3d's peers. Clients learn these addresses, and the sandbox allows connections to
        /// any port. [] = no probes.
        connectable_from: List = [];
        /// Clients that were probed and accept no connection get no peers and are not handed out. See connectable_from.
        connectable_required: Flag = false;
    }

    /// The XDP program of the engines shield and xdp. See docs/xdp.md.
    ["xdp"] xdp: XdpSection {
        /// Network interfaces that the program is attached to, e.g. ["eth0"]. [] = those of the
        /// default routes and those that have an address of udp.listen.
        interfaces: List = [];
        /// Where the program runs: driver (before the kernel allocates anything), generic (on any
        /// interface, but slower) or auto (driver, or generic where the driver cannot).
        mode: Choice(XdpMode) = XdpMode::Auto;
        /// Frames of 4 KiB for each queue of an interface (engine xdp), a power of two.
        frames: Int(limits::XDP_FRAMES_MIN, limits::XDP_FRAMES_MAX), constant = limits::XDP_FRAMES;
        /// VLAN ids, e.g. ["100"], of tagged frames that are for this tracker. The program does not
        /// touch other tagged frames, nor do they need it: the sockets receive them.
        vlans: List = [];
        /// Where replies go in the link layer: swap (to where the request came from), gateway (to the
        /// next hop of the default route, if the client is not on the link) or a MAC address. Behind
        /// a load balancer that lets servers answer directly, swap is wrong.
        reply_mac: Text, reloadable = "swap";
        /// Let the program answer connects. If false, they go to the sockets.
        answer_connects: Flag, reloadable, constant = true;
        /// true: refuse to start if the program cannot be set up. false: warn, and serve with the engine mmsg.
        required: Flag, constant = false;
    }
}

fn list(items: &[&str]) -> Vec<String> {
    items.iter().copied().map(String::from).collect()
}

impl Sections {
    /// Returns the setting with this name.
    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut dyn AnySetting> {
        self.all_mut().into_iter().find(|setting| setting.key().name == name)
    }

    /// Sets a key. The value of a constant is ignored, with a warning, unless constants are settings.
    pub(super) fn set(
        &mut self,
        name: &str,
        value: impl FnOnce(&Key) -> Json,
        origin: Origin,
        sets_constants: bool,
        warnings: &mut Vec<Problem>,
    ) -> Result<(), String> {
        if let Some(warning) = constants::gone(name, &origin) {
            warnings.push(warning);
            return Ok(());
        }
        let setting = self.find_mut(name).ok_or_else(|| unknown_key(name))?;
        if setting.key().constant && !sets_constants {
            warnings.push(constants::warning(setting, &origin));
            return Ok(());
        }
        let value = value(setting.key());
        setting.set(&value, origin)
    }

    /// Returns the addresses that a section listens on.
    pub(super) fn listen(&self, transport: Transport) -> &Setting<Vec<String>> {
        match transport {
            Transport::Udp => &self.udp.listen,
            Transport::Http => &self.http.listen,
            Transport::Tls => &self.tls.listen,
        }
    }

    pub(super) fn listen_mut(&mut self, transport: Transport) -> &mut Setting<Vec<String>> {
        match transport {
            Transport::Udp => &mut self.udp.listen,
            Transport::Http => &mut self.http.listen,
            Transport::Tls => &mut self.tls.listen,
        }
    }
}
