//! WebSocket frames and the handshake that leads to them: RFC 6455, without extensions and
//! subprotocols.
//!
//! [`Reader`] takes what has come on a connection and gives one event at a time; a message that came
//! as one frame is unmasked where it lies and lent from there. An idle connection's reader is two
//! words, without heap. The functions of `write` append frames to one buffer, so that all that a
//! turn brings leaves in one write. [`crate::http::read_head`] reads the request for an upgrade;
//! the other side of it all, for tests and tools, is [`client`].

pub mod client;
mod close;
mod frame;
mod handshake;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use close::{CloseCode, ProtocolError};
pub use handshake::{accept_key, switching_protocols};
pub use read::{Event, ReadEvent, Reader};
pub use write::{close, ping, pong, text, text_with};
