//! Bencoding (BEP 3): integers `i7e`, byte strings `3:abc`, lists `l...e`, dictionaries `d...e` whose
//! keys are byte strings in the order of their raw bytes.
//!
//! [`Encoder`] appends to a buffer that is used again for every answer. [`parse`] checks a whole
//! text strictly and gives a [`Value`] that borrows from it; it serves tests and tools, and costs
//! nothing on the tracker's own path. [`parse_lenient`] takes what other trackers write, too.

mod encode;
mod read;
#[cfg(test)]
mod tests;

pub use encode::Encoder;
pub(crate) use encode::append_decimal;
pub use read::{
    BencodeError, BencodeErrorKind, DEPTH_MAX, Value, dict_entry, parse, parse_lenient,
};
