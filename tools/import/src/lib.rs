//! Reads what other trackers leave behind: configurations become a [`Draft`] of tidegate's; lists, users and
//! counts go to [`Records`], row by row, so that dumps may be larger than the memory.
//!
//! ```text
//!  file ─ sniff ─▶ configuration ─▶ Document: keys, values, lines ─▶ rival ─▶ Draft
//!            └──▶ SQL dump, CSV, SQLite, list, scrape ─▶ rows ─▶ rival ─▶ Records
//! ```
//!
//! It does not know tidegate's keys: the program checks and writes the configuration.
#![forbid(unsafe_code)]

mod addresses;
mod document;
mod draft;
mod error;
mod full_scrape;
mod hash_file;
mod machine;
mod mapper;
mod options;
mod records;
mod report;
mod rival;
mod rivals;
mod row;
mod source;
mod sql;
mod sqlite;
mod table_file;
mod yaml;

pub use draft::{Draft, DraftKey, DraftListener, Without};
pub use error::{ImportError, Place};
pub use full_scrape::check_full_scrape;
pub use options::{ListKind, Options};
pub use records::Records;
pub use report::{Report, Skipped};
pub use rival::{KeyRow, Rival};
pub use row::{Field, Row};
pub use source::import;
pub use sql::read as read_sql;
pub use table_file::read as read_table;
pub use yaml::check as check_yaml;
