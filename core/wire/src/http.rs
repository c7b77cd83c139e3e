//! The HTTP tracker protocol: BEP 3, 7, 21, 23, 24, 31, 48 over HTTP/1.1 and 1.0.
//!
//! [`read_head`] parses the request at the start of a buffer. [`announce_query`] and [`ScrapeQuery`]
//! parse its query. The functions of `reply` append responses to one buffer, so that the responses to
//! pipelined requests leave in one write. No request allocates.

mod forwarded;
mod head;
mod headers;
mod listing;
mod query;
mod reply;
mod stream;
#[cfg(test)]
mod tests;
mod upgrade;

pub use crate::url::Target;
pub use forwarded::ForwardedHeader;
pub use head::{Method, ParsedRequest, RequestError, RequestHead, read_head};
pub use headers::{host_of, is_loopback_host};
pub use listing::TorrentList;
pub use query::{AnnounceQuery, ScrapeQuery, ScrapedHash, announce_query, parameter};
pub use reply::{
    AnnounceReply, PeerFormat, ResponseFraming, Status, failure, forbidden_origin, request_error,
    scrape, upgrade_error,
};
pub use stream::StreamFraming;
pub use upgrade::{Upgrade, UpgradeError};
