//! The sections of the configuration.

/// What each section is about, in the order in which `config init` writes them.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("udp", "UDP trackers (BEP 15)."),
    ("http", "HTTP trackers (BEP 3)."),
    ("tls", "HTTPS, and WebTorrent over it (wss). The keys of [http] hold for it, too."),
    (
        "tls.acme",
        "Certificates from an authority, as from Let's Encrypt: obtained, and renewed in time.\n\
         docs/operating.md tells more.",
    ),
    ("tracker", "What clients are told, whatever the protocol."),
    ("access", "Which torrents are served, and to whom. Gates announces and scrapes alike."),
    (
        "limits",
        "What the tracker may take, and what clients may take of it, by prefix of their address.",
    ),
    (
        "bans",
        "For what a client's prefix ([limits]) is banned by itself; 0 is never. Exempt are those of\n\
         limits.exempt. docs/operating.md tells more.",
    ),
    ("admin", "Metrics, health and the management API: docs/api.md tells how to get in."),
    ("state", "What outlives the process: what the API has made, and counts."),
    ("process", "Who the tracker is once it has bound its ports, and how it ends."),
    ("trace", "Traces of requests to the API, for a collector. docs/operating.md tells more."),
    ("log", "What is written to standard error."),
];
