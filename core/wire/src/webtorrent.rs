//! The WebTorrent tracker protocol as bittorrent-tracker's clients use it: JSON over WebSocket.
//!
//! [`read`] parses a client's message. The functions of `write` append replies and the messages that
//! are relayed to other clients. Offers and answers are opaque: their text is relayed unchanged.
//! Another client will `JSON.parse` it, so the whole message is validated against RFC 8259 first.
//! No message allocates.
//!
//! Info hashes and ids are strings of 20 characters, U+0000 to U+00FF, one for each byte. If a key
//! repeats, its last value counts, as in `JSON.parse`. Unknown keys are ignored.

mod json;
mod message;
mod write;

pub use message::{
    Action, Announce, Answer, Message, MessageError, Offer, Offers, Scrape, read, read_binary,
};
pub use write::{Relay, announce_reply, append_binary_string, failure, scrape_reply};
