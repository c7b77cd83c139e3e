//! WebSocket frames and the server's handshake: RFC 6455, without extensions and subprotocols.
//!
//! [`Reader`] turns received bytes into events, one at a time. A message in a single frame is unmasked
//! in place and borrowed from the input. The reader of an idle connection is two words, without heap.
//! The functions of `write` append frames to one buffer, so that all frames of a loop iteration leave
//! in one write. [`crate::http::read_head`] parses the upgrade request. Clients need [`frame_header`] and
//! [`mask`] for their own frames, and a [`Reader`] for those of the server.

mod close;
mod frame;
mod handshake;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use close::{CloseCode, ProtocolError};
pub use frame::{Opcode, frame_header, mask};
pub use handshake::{accept_key, switching_protocols};
pub use read::{Event, ReadEvent, Reader};
pub use write::{close, ping, pong, text, text_with};
