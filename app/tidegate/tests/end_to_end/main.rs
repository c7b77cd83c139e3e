//! The binary as its users meet it: command line, files, sockets and signals. Requests are written byte
//! by byte, so that tidegate's codec does not check itself. Deadlines are generous. Linux only: networks are namespaces.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

mod access_lists;
mod accounting;
mod admin_command;
mod api;
mod approval;
mod backups;
mod client_commands;
mod clients;
mod cluster;
mod cluster_setup;
mod config_command;
mod endpoints;
mod engine_failures;
mod engine_rights;
mod handover;
mod limits;
mod list_server;
mod listeners;
mod lists;
mod load;
mod logs;
mod manual;
mod near;
mod packaging;
mod private_trackers;
mod process;
mod releases;
mod sandbox;
mod service_manager;
mod serving;
mod shutdown;
mod site;
mod site_databases;
mod socket_activation;
mod swarms;
mod thread_priority;
mod tls;
mod top_command;
mod udp;
mod upgrade;
mod walkthroughs;
mod wire;
mod xdp;
