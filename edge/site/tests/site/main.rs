//! A site with a real database: its tables are compared with a plain model, its calls made as its PHP makes them, and its
//! database killed, locked and broken.

mod bad_days;
mod calls;
mod day;
mod feed;
mod fixture;
mod gazelle;
