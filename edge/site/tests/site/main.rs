//! A site with a real database: its tables are compared with a plain model, its calls made as its PHP makes them, and its
//! database killed, locked and broken.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

mod bad_days;
mod calls;
mod day;
mod feed;
mod fixture;
mod gazelle;
mod lists;
mod nodes;
mod tls;
