//! What the log says of a peer or of a torrent's downloads, for failures: which node said what, in which order.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use replication::block::{Block, Groups, Header, Word};
use serde_json::json;
use types::{InfoHash, PeerKey, Role};

use super::arrangement::{NAME, TestCluster};

/// Where messages of the log are delivered.
const SUBJECT: &str = "_INBOX.history";
/// Lines of a history, the last ones.
const LINES_MAX: usize = 40;

/// Returns a line for each word of the log on a peer, oldest first.
pub(super) fn of_peer(
    cluster: &TestCluster,
    info_hash: &InfoHash,
    peer: SocketAddr,
) -> Result<Vec<String>> {
    let peer = PeerKey::new(peer.ip(), peer.port());
    read(cluster, info_hash, |it, _| *it == peer)
}

/// Returns a line for each download that the log says was completed, oldest first.
pub(super) fn of_downloads(cluster: &TestCluster, info_hash: &InfoHash) -> Result<Vec<String>> {
    read(cluster, info_hash, |_, word| word.is_completed())
}

/// Returns lines for the last words on a torrent's peers that `is_wanted` wants.
fn read(
    cluster: &TestCluster,
    info_hash: &InfoHash,
    is_wanted: impl Fn(&PeerKey, Word) -> bool,
) -> Result<Vec<String>> {
    let (mut client, stream) = (cluster.nats_client()?, format!("TG_{NAME}_D"));
    let state = client.jetstream(&format!("STREAM.INFO.{stream}"), "")?;
    let mut left = state["state"]["messages"].as_u64().context("the stream has no messages")?;
    client.subscribe(SUBJECT)?;
    let config =
        json!({ "deliver_subject": SUBJECT, "ack_policy": "none", "deliver_policy": "all" });
    let request = json!({ "stream_name": stream, "config": config });
    client.jetstream(&format!("CONSUMER.CREATE.{stream}"), &request.to_string())?;
    let mut lines = Vec::new();
    let mut place = 0;
    while left > 0 {
        let message = client.next_message()?;
        (left, place) = (left - 1, place + 1);
        let Ok((block, _)) = Block::read(&message.payload) else { continue };
        let Ok(groups) = block.groups() else { continue };
        let Header { node, number, boot, kind, cut_ms, .. } = block.header;
        let at = format!(
            "message {place}: node {node} block {number} of process {boot:x}, {kind:?}, cut at {}.{:03}",
            cut_ms / 1000,
            cut_ms % 1000
        );
        let words =
            words(groups, info_hash).into_iter().filter(|(peer, word)| is_wanted(peer, *word));
        lines.extend(
            words.map(|(peer, word)| format!("{at}: {} {}", peer.socket_addr(), text(word))),
        );
    }
    let first = lines.len().saturating_sub(LINES_MAX);
    Ok(lines.split_off(first))
}

/// Returns what groups say of a torrent's peers.
fn words(groups: Groups<'_>, info_hash: &InfoHash) -> Vec<(PeerKey, Word)> {
    let mut words = Vec::new();
    for group in groups {
        if group.info_hash == *info_hash {
            words.extend(group.v4.map(|it| (PeerKey::V4(it.key), it.word)));
            words.extend(group.v6.map(|it| (PeerKey::V6(it.key), it.word)));
        }
    }
    words
}

fn text(word: Word) -> String {
    let what = match word.role() {
        _ if word.is_gone() => "gone",
        Role::Seeder => "a seeder",
        Role::PartialSeed => "a partial seed",
        Role::Leecher => "a leecher",
    };
    let has_completed = if word.is_completed() { ", completed" } else { "" };
    format!("{what}{has_completed}, {} units ago", word.age())
}
