//! The real binary, from the outside: its command line, its files, its sockets and its signals.
//! Requests are written here byte by byte; what a test waits for has a generous deadline.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

#[path = "outside/activation.rs"]
mod activation;
#[path = "outside/admin.rs"]
mod admin;
#[path = "outside/api.rs"]
mod api;
#[path = "outside/asking.rs"]
mod asking;
#[path = "outside/command_line.rs"]
mod command_line;
#[path = "outside/dist.rs"]
mod dist;
#[path = "outside/ending.rs"]
mod ending;
#[path = "outside/limits.rs"]
mod limits;
#[path = "outside/listeners.rs"]
mod listeners;
#[path = "outside/lists.rs"]
mod lists;
#[path = "outside/loading.rs"]
mod loading;
#[path = "outside/logs.rs"]
mod logs;
#[cfg(target_os = "linux")]
#[path = "outside/priority.rs"]
mod priority;
#[path = "outside/private.rs"]
mod private;
#[path = "outside/process.rs"]
mod process;
#[path = "outside/proxies.rs"]
mod proxies;
#[path = "outside/receiver.rs"]
mod receiver;
#[path = "outside/sandbox.rs"]
mod sandbox;
#[path = "outside/serving.rs"]
mod serving;
#[path = "outside/talk.rs"]
mod talk;
#[path = "outside/tls.rs"]
mod tls;
#[path = "outside/top.rs"]
mod top;
#[path = "outside/traces.rs"]
mod traces;
#[path = "outside/upgrade.rs"]
mod upgrade;
#[path = "outside/watched.rs"]
mod watched;
