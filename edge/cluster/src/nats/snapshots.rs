//! Fetches all records of another node, part by part: a question has the cursor of the part, its answer the
//! part and the cursor of the next one.
//!
//! | bytes | answer |
//! |---|---|
//! | 1 | 0 = the last part, 1 = more follow, 2 = this node cannot answer |
//! | 2 | length of the next cursor, little-endian |
//! | … | the next cursor |
//! | … | the part |

use std::time::{Duration, Instant};

use async_nats::Subscriber;
use futures_util::StreamExt;

use super::link::Link;
use super::options::NatsOptions;
use super::status::Status;
use super::streams;
use crate::host::{Position, RecordError, RecordLog, SnapshotPart};

/// How long one part may take.
const PART_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connecting may take before serving.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long heartbeats of other nodes are waited for: each sends one a second.
const HEARTBEATS: Duration = Duration::from_millis(1200);

const LAST: u8 = 0;
const MORE: u8 = 1;
const NONE: u8 = 2;

pub(super) fn encode(part: Option<SnapshotPart>) -> Vec<u8> {
    let Some(SnapshotPart { body, next }) = part else { return vec![NONE, 0, 0] };
    let flag = if next.is_some() { MORE } else { LAST };
    let cursor = next.unwrap_or_default();
    let len = u16::try_from(cursor.len()).unwrap_or(0);
    let mut answer = Vec::with_capacity(3 + cursor.len() + body.len());
    answer.push(flag);
    answer.extend_from_slice(&len.to_le_bytes());
    answer.extend_from_slice(&cursor);
    answer.extend_from_slice(&body);
    answer
}

fn decode(answer: &[u8]) -> Result<SnapshotPart, RecordError> {
    let bad = || RecordError::from("the answer does not add up");
    let (flag, rest) = answer.split_first().ok_or_else(bad)?;
    let (len, rest) = rest.split_first_chunk().ok_or_else(bad)?;
    let (cursor, body) = rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or_else(bad)?;
    let next = match *flag {
        LAST => None,
        MORE if !cursor.is_empty() => Some(cursor.to_vec()),
        NONE => return Err("the node cannot send its records now".into()),
        _ => return Err(bad()),
    };
    Ok(SnapshotPart { body: body.to_vec(), next })
}

/// Asks `node` for the part at `cursor`.
async fn ask(link: &Link, node: u8, cursor: &[u8]) -> Result<SnapshotPart, RecordError> {
    let inbox = link.client.new_inbox();
    let mut answers = link.subscribe(inbox.clone()).await.map_err(|_| "NATS is away")?;
    let question = link.subjects.question(node);
    let sent = link.publish(question, Some(inbox.into()), cursor.to_vec().into()).await;
    sent.map_err(|_| "NATS is away")?;
    let answer = tokio::time::timeout(PART_TIMEOUT, answers.next()).await;
    let answer = answer.map_err(|_| "no answer")?.ok_or("NATS is away")?;
    match link.origin_of_answer(&answer) {
        Ok(()) => decode(&answer.payload),
        Err(reason) => Err(format!("dropped an answer: {}", reason.name()).into()),
    }
}

/// Fetches all records of some other node and merges them, before this one serves. Does so if this node has
/// never had any, or what it missed is no longer in the stream. Nodes that `status` ignores are not asked. Takes a few seconds at most while NATS or the
/// other nodes are away.
///
/// Returns the node that they came from; `None` if that is not needed, or no other node is there.
///
/// # Errors
///
/// If NATS is away, or all nodes that are there fail to answer.
pub fn fetch_records(
    options: &NatsOptions,
    status: &Status,
    records: &dyn RecordLog,
) -> Result<Option<u8>, RecordError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fetched = runtime.block_on(fetch(options, status, records));
    runtime.shutdown_background();
    fetched
}

async fn fetch(
    options: &NatsOptions,
    status: &Status,
    records: &dyn RecordLog,
) -> Result<Option<u8>, RecordError> {
    let (events, _) = tokio::sync::mpsc::unbounded_channel();
    let connected =
        tokio::time::timeout(CONNECT_TIMEOUT, Link::connect_once(options, events)).await;
    let link = connected.map_err(|_| "cannot connect to NATS in time")??;
    let heartbeats = link.subscribe(link.subjects.all("h")).await.map_err(|_| "NATS is away")?;
    if !is_needed(&link, records.position()).await? {
        return Ok(None);
    }
    let mut failure = None;
    for node in nodes(&link, status, heartbeats).await {
        match fetch_from(&link, node, records).await {
            Ok(_) => return Ok(Some(node)),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Whether the stream lacks something that this node needs.
async fn is_needed(link: &Link, position: Position) -> Result<bool, RecordError> {
    if position.stream == 0 {
        return Ok(true);
    }
    let stream = link.subjects.stream("r");
    let Some(info) = streams::look_up(&link.jetstream, &stream, PART_TIMEOUT).await? else {
        return Ok(true);
    };
    let stream = streams::state(&info.info, None);
    Ok(stream.created_ns != position.stream || stream.first > position.sequence + 1)
}

/// Returns the nodes whose heartbeats come, each once, without those that are ignored.
async fn nodes(link: &Link, status: &Status, mut heartbeats: Subscriber) -> Vec<u8> {
    let deadline = tokio::time::Instant::from_std(Instant::now() + HEARTBEATS);
    let mut nodes = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout_at(deadline, heartbeats.next()).await {
        if let Ok(node) = link.origin("h", &message)
            && node != link.subjects.node()
            && !status.is_ignored(node)
            && !nodes.contains(&node)
        {
            nodes.push(node);
        }
    }
    nodes
}

/// Fetches and merges all records of `node`. Returns how many parts they had.
pub(super) async fn fetch_from(
    link: &Link,
    node: u8,
    records: &dyn RecordLog,
) -> Result<u64, RecordError> {
    let (mut cursor, mut parts) = (Vec::new(), 0);
    loop {
        let SnapshotPart { body, next } = ask(link, node, &cursor).await?;
        parts += 1;
        records.merge_snapshot(&body, next.is_none()).await?;
        match next {
            Some(next) => cursor = next,
            None => return Ok(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_they_were() {
        for next in [None, Some(vec![1, 2])] {
            let part = SnapshotPart { body: vec![9; 5], next };
            assert_eq!(decode(&encode(Some(part.clone()))).unwrap(), part);
        }
        for bad in [&[][..], &[0], &[0, 5, 0, 1], &[1, 0, 0], &[7, 0, 0], &[2, 0, 0]] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }
}
