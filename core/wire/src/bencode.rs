//! Bencoding (BEP 3): integers `i7e`, byte strings `3:abc`, lists `l...e`, and dictionaries `d...e`
//! whose keys are byte strings, sorted by their bytes.
//!
//! [`Encoder`] appends to a buffer that is reused for every response. [`parse`] is strict and returns
//! a [`Value`] that borrows from the input. [`parse_lenient`] also accepts what other trackers write.
//! Only tests and tools parse; the tracker itself only encodes.

mod encode;
mod read;
#[cfg(test)]
mod tests;

pub use encode::Encoder;
pub(crate) use encode::append_decimal;
pub use read::{
    BencodeError, BencodeErrorKind, DEPTH_MAX, Value, dict_entry, parse, parse_lenient,
};
