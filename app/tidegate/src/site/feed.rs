//! The feed: batches as JSON, and their cursors.
//!
//! A cursor is `SPOOL-SEQUENCE`. The spool's number tells a feed from another one that began anew in its place, whose
//! sequences mean other batches.

use ::site::Feed;
use ::site::batch::{Batch, Record, SessionChange};
use admin::{FeedBatch, FeedError};
use serde_json::{Map, Value, json};
use types::to_hex;

use replication::AccountBatch;

/// Bytes of records in a message: NATS takes 1 MiB by default, and one record has up to some 5 KiB.
const PART_BYTES: usize = 512 << 10;

/// Returns up to `limit` batches after the one with this cursor.
pub(super) fn read(
    feed: &Feed,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<FeedBatch>, FeedError> {
    let spool = spool(feed)?;
    let mut last = after.map_or(Ok(0), |cursor| sequence(spool, cursor))?;
    let mut batches = Vec::new();
    while batches.len() < limit {
        let Some(batch) = next(feed, spool, last)? else { break };
        last = batch.sequence;
        batches.push(batch);
    }
    Ok(batches)
}

pub(super) fn next_unconfirmed(feed: &Feed) -> Result<Option<FeedBatch>, FeedError> {
    next(feed, spool(feed)?, feed.confirmed())
}

/// Returns the oldest batch that is not confirmed as messages for NATS: each has a part of its records. There are none of a batch that has only what other nodes count.
pub(super) fn next_parts(feed: &Feed) -> Result<Option<AccountBatch>, FeedError> {
    let spool = spool(feed)?;
    let next = feed.after(feed.confirmed());
    let Some(batch) = next.map_err(|error| FeedError::Failed(error.to_string()))? else {
        return Ok(None);
    };
    let head = head(spool, &batch);
    let parts = part_records(own_records(feed, &batch));
    let message = |(number, records): (usize, &Vec<Value>)| {
        let mut json = head.clone();
        json["part"] = (number + 1).into();
        json["parts"] = parts.len().into();
        json["records"] = records.as_slice().into();
        json.to_string().into_bytes()
    };
    let parts = parts.iter().enumerate().map(message).collect();
    Ok(Some(AccountBatch { cursor: cursor_of(spool, batch.sequence), parts }))
}

/// Cuts records into parts that fit into messages of NATS.
fn part_records(records: impl Iterator<Item = Value>) -> Vec<Vec<Value>> {
    let mut parts: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let len = record.to_string().len();
        match parts.last_mut().filter(|_| bytes + len <= PART_BYTES) {
            Some(part) => {
                bytes += len;
                part.push(record);
            }
            None => {
                bytes = len;
                parts.push(vec![record]);
            }
        }
    }
    parts
}

fn next(feed: &Feed, spool: u64, after: u64) -> Result<Option<FeedBatch>, FeedError> {
    let next = feed.after(after).map_err(|error| FeedError::Failed(error.to_string()))?;
    Ok(next.map(|batch| {
        let sequence = batch.sequence;
        let mut json = head(spool, &batch);
        json["records"] = own_records(feed, &batch).collect();
        FeedBatch { cursor: cursor_of(spool, sequence), sequence, json: json.to_string() }
    }))
}

pub(super) fn confirm(feed: &Feed, cursor: &str) -> Result<(), FeedError> {
    let sequence = sequence(spool(feed)?, cursor)?;
    feed.confirm(sequence).map_err(|error| FeedError::Failed(error.to_string()))
}

fn spool(feed: &Feed) -> Result<u64, FeedError> {
    feed.id().ok_or_else(|| {
        FeedError::Failed(
            "the feed is not open yet: the process that this one replaces has it".into(),
        )
    })
}

fn sequence(spool: u64, cursor: &str) -> Result<u64, FeedError> {
    let parts = cursor.split_once('-').and_then(|(id, sequence)| {
        Some((u64::from_str_radix(id, 16).ok()?, sequence.parse::<u64>().ok()?))
    });
    match parts {
        Some((id, sequence)) if id == spool => Ok(sequence),
        Some(_) => Err(FeedError::BadCursor(
            "cursor: expected one of the present feed, found one of a feed that was here before: state.dir is another \
             one, or was restored from a backup. Read without a cursor, and add what comes"
                .into(),
        )),
        None => Err(FeedError::BadCursor(format!(
            "cursor: expected the cursor of a batch, as in `{spool:x}-1`, found `{}`",
            cursor.escape_default()
        ))),
    }
}

fn cursor_of(spool: u64, sequence: u64) -> String {
    format!("{spool:x}-{sequence}")
}

fn head(spool: u64, batch: &Batch) -> Value {
    let Batch { sequence, unix_s, .. } = batch;
    let (cursor, feed) = (cursor_of(spool, *sequence), format!("{spool:x}"));
    json!({ "cursor": cursor, "feed": feed, "sequence": sequence, "time": unix_s })
}

/// Returns the records of a batch. Each node's feed has only the counts of that node, so those learned from other nodes
/// are left out.
fn own_records(feed: &Feed, batch: &Batch) -> impl Iterator<Item = Value> {
    let own = batch.records.iter().filter(|record| !record.is_learned());
    own.map(|record| record_json(feed, record))
}

fn record_json(feed: &Feed, record: &Record) -> Value {
    let info_hash = feed.info_hash(record.torrent).map(|hash| hash.to_string());
    let own = record.sessions.iter().filter(|change| !change.learned);
    let clients: Vec<_> = own.map(client_json).collect();
    let mut json = json!({
        "user": record.user,
        "info_hash": info_hash,
        "uploaded": record.uploaded,
        "downloaded": record.downloaded,
        "seeded_s": record.seeded_s,
        "announces": record.announces,
        "active": record.active,
        "event": record.event.name(),
        "clients": clients,
    });
    if record.completed_s > 0 {
        json["completed"] = record.completed_s.into();
    }
    json
}

fn client_json(change: &SessionChange) -> Value {
    let session = &change.session;
    let mut json = Map::new();
    let mut put = |name: &str, value: Value| _ = json.insert(name.into(), value);
    put("peer_id", to_hex(&session.peer_id.0).into());
    put("agent", change.agent.as_str().into());
    put("ip", session.ip.to_string().into());
    put("port", session.port.into());
    put("uploaded", session.uploaded.into());
    put("downloaded", session.downloaded.into());
    put("left", session.left.into());
    put("first_announce", session.created_s.into());
    put("last_announce", session.updated_s.into());
    put("active", session.active.into());
    put("seeder", session.seeder.into());
    Value::Object(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_fit_into_messages() {
        let records = |count: usize| {
            (0..count).map(|number| json!({ "user": number, "text": "x".repeat(4_000) }))
        };
        let parts = part_records(records(300));
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| json!(part).to_string().len() < 1 << 20));
        assert!(parts.concat().into_iter().eq(records(300)));
        assert!(part_records(records(0)).is_empty());
    }

    #[test]
    fn cursors_belong_to_a_feed() {
        assert_eq!(sequence(0xab, "ab-7"), Ok(7));
        let text = |cursor| match sequence(0xab, cursor) {
            Err(FeedError::BadCursor(text)) => text,
            other => panic!("{cursor}: {other:?}"),
        };
        assert!(text("ac-7").contains("was here before"));
        for bad in ["", "7", "ab-", "-7", "ab-x", "xy-7"] {
            assert!(text(bad).contains("as in `ab-1`"), "{bad}");
        }
    }
}
