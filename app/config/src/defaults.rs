//! Lists that several keys have by default.

/// `limits.exempt` and `http.stats_networks` by default: loopback and private networks.
pub(super) const PRIVATE_NETWORKS: [&str; 6] =
    ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1", "fc00::/7"];

/// `tracker.external_address_for` by default: the same, and link-local networks.
pub(super) const LOCAL_NETWORKS: [&str; 8] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "::1",
    "fc00::/7",
    "fe80::/10",
];
