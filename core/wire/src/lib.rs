//! The tracker's side of the codecs: requests to types, and replies to bytes, for UDP, HTTP, WebSocket and
//! WebTorrent. The client's side is `client::codec`.
//!
//! Codecs are pure functions over buffers that the caller owns. They do not allocate per request and
//! never panic on input. Input is split, never indexed; missing bytes are an error value. Decisions
//! that need the store, a clock or a key belong to `tracker`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

mod bencode;
pub mod http;
pub mod proxy;
pub mod udp;
pub mod url;
pub mod webtorrent;
pub mod ws;
