//! WebTorrent without TLS.

mod closing;
mod hostile;
mod letters;
mod limits;
mod memory;
mod private;
mod signalling;
mod upgrades;

use std::time::Duration;

use front::http::{HttpOptions, MemoryLimits, PublicPage};
use front::webtorrent::WebOptions;
use tracker::counters::{Counters, DropReason, Protocol};
use tracker::{ListenerPolicy, Networks, PeerCaps, Policy, RequestKind};
use types::{Event, InfoHash, OfferId, PeerId, Refusal};
use wire::webtorrent::client::{self, WebScrapeEntry};
use wire::webtorrent::{Announce, Offer};
use wire::ws::{self, CloseCode};

use crate::testing::*;
