//! The client's side of the codecs: requests to bytes, and bytes to responses.
//!
//! Pure functions over buffers of the caller, for [`Session`](crate::Session), for load testers and for tests of
//! trackers. Frames of servers are read by [`wire::ws::Reader`]; the tracker's side of the codecs is `core/wire`.

pub mod bencode;
pub mod http;
pub mod udp;
pub mod webtorrent;
pub mod ws;
