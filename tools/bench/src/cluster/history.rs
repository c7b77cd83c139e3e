//! What the log says of a peer, for failures: which node said what of it, in which order.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::json;
use swarm::block::{Block, Groups, Word};
use types::{InfoHash, PeerKey, Role};

use super::arrangement::{NAME, TestCluster};

/// Where messages of the log are delivered.
const SUBJECT: &str = "_INBOX.history";
/// Lines of a history, the last ones.
const LINES_MAX: usize = 40;

/// Returns a line for each message of the log that speaks of a peer, oldest first.
pub(super) fn of(
    cluster: &TestCluster,
    info_hash: &InfoHash,
    peer: SocketAddr,
) -> Result<Vec<String>> {
    let (mut client, stream) = (cluster.nats_client()?, format!("TG_{NAME}_D"));
    let state = client.jetstream(&format!("STREAM.INFO.{stream}"), "")?;
    let mut left = state["state"]["messages"].as_u64().context("the stream has no messages")?;
    client.subscribe(SUBJECT)?;
    let config =
        json!({ "deliver_subject": SUBJECT, "ack_policy": "none", "deliver_policy": "all" });
    let request = json!({ "stream_name": stream, "config": config });
    client.jetstream(&format!("CONSUMER.CREATE.{stream}"), &request.to_string())?;
    let peer = PeerKey::new(peer.ip(), peer.port());
    let mut lines = Vec::new();
    let mut place = 0;
    while left > 0 {
        let message = client.next_message()?;
        (left, place) = (left - 1, place + 1);
        let Ok((block, _)) = Block::read(&message.payload) else { continue };
        let Ok(groups) = block.groups() else { continue };
        let header = &block.header;
        for word in words(groups, info_hash, &peer) {
            lines.push(format!(
                "message {place}: node {} block {} of process {:x}, {:?}, cut at {}.{:03}: {}",
                header.node,
                header.number,
                header.boot,
                header.kind,
                header.cut_ms / 1000,
                header.cut_ms % 1000,
                text(word)
            ));
        }
    }
    let first = lines.len().saturating_sub(LINES_MAX);
    Ok(lines.split_off(first))
}

/// Returns what groups say of a peer.
fn words(groups: Groups<'_>, info_hash: &InfoHash, peer: &PeerKey) -> Vec<Word> {
    let mut words = Vec::new();
    for group in groups {
        if group.info_hash == *info_hash {
            let v4 = group.v4.filter(|it| PeerKey::V4(it.key) == *peer).map(|it| it.word);
            let v6 = group.v6.filter(|it| PeerKey::V6(it.key) == *peer).map(|it| it.word);
            words.extend(v4.chain(v6));
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
