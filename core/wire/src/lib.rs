//! Bytes to types and back: what goes over the wire, and nothing of what it means.
//!
//! Codecs are pure functions over buffers that the caller owns. They allocate nothing per request,
//! never panic on what comes in, and never index it: bytes are split, and what is missing is an
//! error value. They decide nothing that needs the store, a clock or a key; that is `tracker`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod bencode;
pub mod http;
pub mod proxy;
pub mod udp;
pub mod url;
pub mod webtorrent;
pub mod ws;
