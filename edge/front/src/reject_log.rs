//! Logs requests that are refused or dropped, and connections that fail, at level debug. Never logs
//! what a client asked for: URLs contain passkeys.

use std::net::IpAddr;

use tracing::debug;
use tracker::counters::DropReason;
use types::Refusal;

use crate::connection_error::ConnectionError;

#[cold]
pub(crate) fn refused(protocol: &str, client: IpAddr, refusal: Refusal) {
    debug!(protocol, %client, reason = refusal.text(), "request refused");
}

#[cold]
pub(crate) fn dropped(protocol: &str, client: IpAddr, reason: DropReason) {
    debug!(protocol, %client, reason = reason.label(), "request dropped");
}

#[cold]
pub(crate) fn broken(protocol: &str, client: IpAddr, error: &ConnectionError) {
    debug!(protocol, %client, %error, "connection failed");
}
