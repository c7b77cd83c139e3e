//! The HTTP tracker protocol: BEP 3, 7, 21, 23, 24, 31, 48 over HTTP/1.1 and 1.0.
//!
//! [`read_head`] finds a request in a stream's bytes, [`announce_query`] and [`ScrapeQuery`] read
//! what it asks, and the functions of `reply` write answers behind each other into one buffer, so
//! that pipelined requests leave in one write. Nothing is allocated for a request. The other
//! direction, which clients speak, is [`client`].

pub mod client;
mod forwarded;
mod head;
mod query;
mod reply;
#[cfg(test)]
mod tests;
mod upgrade;

pub use crate::url::Target;
pub use forwarded::ForwardedHeader;
pub use head::{Method, ParsedRequest, RequestError, RequestHead, read_head};
pub use query::{AnnounceQuery, ScrapeQuery, announce_query};
pub use reply::{
    AnnounceReply, PeerFormat, ResponseFraming, Status, failure, forbidden_origin, request_error,
    scrape, upgrade_error,
};
pub use upgrade::{Upgrade, UpgradeError};
