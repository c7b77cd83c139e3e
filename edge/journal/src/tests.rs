//! A store, its journal on a disk in memory, and what comes back.

mod clocks;
mod cluster;
mod damage;
mod failures;
mod memory_disk;
mod power;
mod sessions;
mod stream;
mod tracker;
mod writing;
