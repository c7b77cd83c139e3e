//! Lists that refresh: the last good [`copy`] of each list at a URL, and the state of all lists.
//!
//! Knows no tracker, no form of a list and no network: the application fetches, parses and applies.
#![forbid(unsafe_code)]

pub mod copy;
mod status;

pub use status::{Fetch, FetchFault, FileList, ListStatus, ListsStatus, Place, ReadList, Registry};
