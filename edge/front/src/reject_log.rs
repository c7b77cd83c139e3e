//! Tells of clients that got nothing, and why, if the log is to say so much: at level debug. What they
//! asked for is never told, since URLs have users' keys in them.

use std::io;
use std::net::IpAddr;

use tracing::debug;
use tracker::counters::DropReason;
use types::Refusal;

/// A client was told why it is not served.
#[cold]
pub(crate) fn refused(protocol: &str, ip: IpAddr, refusal: Refusal) {
    debug!("{protocol} from {ip}: {}", refusal.text());
}

/// Something was met with silence, or with the end of its connection.
#[cold]
pub(crate) fn dropped(protocol: &str, ip: IpAddr, reason: DropReason) {
    debug!("{protocol} from {ip}: dropped, {}", reason.label());
}

/// A connection broke.
#[cold]
pub(crate) fn broken(protocol: &str, ip: IpAddr, error: &io::Error) {
    debug!("{protocol} from {ip}: {error}");
}
