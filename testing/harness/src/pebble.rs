//! Where pebble is, the ACME server that Let's Encrypt provides for tests of clients.

use std::path::PathBuf;

use crate::nats;

/// The argument of `go install`; NAME is one of [`NAMES`]. The version pins its dependencies as well: Go takes the
/// versions of its `go.mod`, never newer ones.
pub const MODULE: &str = "github.com/letsencrypt/pebble/v2/cmd/NAME@v2.10.1";
/// The server, and the DNS server by which it finds the tracker.
pub const NAMES: [&str; 2] = ["pebble", "pebble-challtestsrv"];

/// Returns the folder that the programs are installed to, by version.
pub fn folder() -> PathBuf {
    let version = MODULE.rsplit('@').next().unwrap_or_default();
    nats::folder().with_file_name(format!("pebble-{version}"))
}

/// Returns the programs, whether or not they are installed.
pub fn programs() -> Vec<PathBuf> {
    NAMES.iter().map(|name| folder().join(name)).collect()
}
