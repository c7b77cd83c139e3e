//! WebTorrent, and what is the same over TLS.

mod access;
mod desktop;
mod hostile;
mod letters;
mod lifetime;
mod memory;
mod signalling;

use std::time::Duration;

use client::codec::ws as frames;
use client::{ScrapeEntry, ScrapeStats};
use front::http::{HttpOptions, MemoryLimits};
use front::webtorrent::{WebOptions, WorkerLink};
use tracker::counters::{Counters, DropReason, Protocol};
use types::{Event, InfoHash, Refusal};
use wire::webtorrent::{Action, Announce};
use wire::ws::CloseCode;

use crate::testing::*;

/// A connection that asks for a WebSocket for a client at `ip`, behind a proxy.
fn upgrade_from(server: &HttpServer, ip: &str) -> Client {
    let mut client = server.client();
    client.send(get("/", &format!("{UPGRADE}X-Forwarded-For: {ip}\r\n")));
    client
}

/// A WebSocket of a client at `ip`, behind a proxy.
fn web_client_at(server: &HttpServer, ip: &str) -> WebClient {
    WebClient::expect_upgrade(upgrade_from(server, ip))
}

/// Options of a server behind a proxy, whose clients may send any number of messages and offers.
fn unlimited_behind_proxy() -> HttpOptions {
    let web = WebOptions { messages_per_s: 0, offer_bytes_per_s: 0, ..WebOptions::default() };
    let web = Some(web);
    HttpOptions { web, ..behind_proxy() }
}

/// The refusal of an announce.
fn failure(refusal: Refusal) -> Received {
    let (action, info_hash) = (Some(Action::Announce), Some(HASH));
    Received::Message(Message::Failure { action, info_hash, reason: refusal.text().into() })
}
