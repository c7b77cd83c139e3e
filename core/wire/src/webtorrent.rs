//! The WebTorrent tracker protocol, as bittorrent-tracker's clients speak it: JSON over WebSocket.
//!
//! [`read`] takes a client's message; the functions of `write` append answers and what is passed on
//! to other clients. Offers and answers are opaque: they go from one client to another as the text
//! they came in. Because that text ends in another client's `JSON.parse`, the whole message is held
//! to RFC 8259 first. Nothing is allocated for a message.
//!
//! Hashes and identifiers are strings of 20 characters, U+0000 to U+00FF, one for each byte. Of a
//! repeated key the last counts, as it does in `JSON.parse`; unknown keys are passed over.

pub mod client;
mod json;
mod message;
#[cfg(test)]
mod tests;
mod write;

pub use message::{
    Action, Announce, Answer, Message, MessageError, Offer, Offers, Scrape, read, read_binary,
};
pub use write::{Relay, announce_reply, failure, scrape_reply};
