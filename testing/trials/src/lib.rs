//! Judges tidegate from outside, for `cargo xtask`: real clients, the API's tester, pictures of the dashboard,
//! packages in fresh systems, fuzzing, and what all these need on a machine.
//!
//! A trial starts trackers as their users do and looks at what they send; it knows nothing of their code. Trials of
//! clients and pictures run in namespaces of their own, in which `cargo xtask` starts itself again.
#![forbid(unsafe_code)]
// Trials report to the terminal.
#![allow(clippy::print_stdout)]

pub mod api;
pub mod archive;
pub mod artifacts;
pub mod clients;
pub mod cluster;
pub mod command;
pub mod dashboard;
pub mod debian;
pub mod fuzz;
pub mod generated;
pub mod library;
pub mod packages;
pub mod screenshots;
pub mod setup;
mod tracker;
pub mod venv;
pub mod workspace;
