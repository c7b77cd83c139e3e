//! Repairs: a node compares digests of rows with another node, and fetches the ranges of rows that differ.
//!
//! | bytes of a question | |
//! |---|---|
//! | 1 | 0 = the digests of all ranges, 1 = rows |
//! | 1 | kind |
//! | 2 | for rows: number of ranges, little-endian |
//! | 2 each | for rows: the ranges |
//! | … | for rows: the cursor of the part; none for the first |
//!
//! | bytes of an answer | |
//! |---|---|
//! | 1 | 0 = the last part, 1 = more follow, 2 = this node cannot answer |
//! | 2 | length of the next cursor, little-endian |
//! | … | the next cursor |
//! | … | the digests, 8 bytes each, little-endian; or the rows |

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::link::Link;
use crate::host::{Rows, RowsError, RowsPart};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const DIGESTS: u8 = 0;
const ROWS: u8 = 1;

const LAST: u8 = 0;
const MORE: u8 = 1;
const NONE: u8 = 2;

pub(super) struct Neighbour<'a> {
    pub(super) link: &'a Link,
    pub(super) node: u8,
    /// Changes that are on their way arrive within this time.
    pub(super) pause: Duration,
}

impl Neighbour<'_> {
    /// Sends a question for [`answer`], and returns the answer.
    async fn ask(&self, question: Vec<u8>) -> Result<Vec<u8>, RowsError> {
        let link = self.link;
        let inbox = link.client.new_inbox();
        let mut answers = link.subscribe(inbox.clone()).await.map_err(|_| "NATS is away")?;
        let subject = link.subjects.question(self.node);
        let sent = link.publish(subject, Some(inbox.into()), question.into()).await;
        sent.map_err(|_| "NATS is away")?;
        let answer = timeout(ANSWER_TIMEOUT, answers.next()).await;
        let answer = answer.map_err(|_| "no answer")?.ok_or("NATS is away")?;
        match link.origin_of_answer(&answer) {
            Ok(()) => Ok(answer.payload.into()),
            Err(reason) => Err(format!("dropped an answer: {}", reason.label()).into()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repaired {
    pub(super) ranges: usize,
    pub(super) bytes: usize,
}

/// Fetches and merges the rows of these kinds that differ from those of `neighbour`.
///
/// A range also differs while a change of it is on its way. So digests are compared twice: what differs for good
/// differs by the same sum both times.
///
/// # Errors
///
/// If the other node does not answer, or rows cannot be merged.
pub(super) async fn repair(
    rows: &dyn Rows,
    kinds: &[u8],
    neighbour: &Neighbour<'_>,
) -> Result<Repaired, RowsError> {
    let mut before = Vec::new();
    for kind in kinds {
        before.push(differences(rows, *kind, neighbour).await?);
    }
    if before.iter().flatten().any(|difference| *difference != 0) {
        sleep(neighbour.pause).await;
    }
    let mut repaired = Repaired::default();
    for (kind, before) in kinds.iter().zip(before) {
        if before.iter().all(|difference| *difference == 0) {
            continue;
        }
        let after = differences(rows, *kind, neighbour).await?;
        let both = before.iter().zip(&after);
        let lasts = both.map(|(before, after)| *after != 0 && before == after);
        let ranges: Vec<u16> = (0..).zip(lasts).filter(|it| it.1).map(|it| it.0).collect();
        if !ranges.is_empty() {
            repaired.ranges += ranges.len();
            repaired.bytes += fetch(rows, *kind, &ranges, neighbour).await?;
        }
    }
    Ok(repaired)
}

/// Returns the other node's digest of each range of a kind, minus this node's. Nothing, if one of them does not know
/// the kind.
async fn differences(
    rows: &dyn Rows,
    kind: u8,
    neighbour: &Neighbour<'_>,
) -> Result<Vec<u64>, RowsError> {
    let part = decode(&neighbour.ask(vec![DIGESTS, kind]).await?)?;
    let (theirs, rest) = part.body.as_chunks();
    let own = rows.range_digests(kind);
    if own.is_empty() || theirs.is_empty() {
        return Ok(Vec::new());
    }
    if theirs.len() != own.len() || !rest.is_empty() {
        let text =
            format!("expected {} digests of ranges, found {}", own.len(), part.body.len() / 8);
        return Err(text.into());
    }
    let theirs = theirs.iter().map(|digest| u64::from_le_bytes(*digest));
    Ok(theirs.zip(own).map(|(theirs, own)| theirs.wrapping_sub(own)).collect())
}

/// Fetches and merges ranges. Returns the bytes that were merged.
async fn fetch(
    rows: &dyn Rows,
    kind: u8,
    ranges: &[u16],
    neighbour: &Neighbour<'_>,
) -> Result<usize, RowsError> {
    let mut question = vec![ROWS, kind];
    question.extend_from_slice(&u16::try_from(ranges.len())?.to_le_bytes());
    question.extend(ranges.iter().flat_map(|range| range.to_le_bytes()));
    let (mut cursor, mut bytes) = (Vec::new(), 0);
    loop {
        let part = decode(&neighbour.ask([&question[..], &cursor].concat()).await?)?;
        bytes += part.body.len();
        rows.merge(neighbour.node, part.body).await?;
        match part.next {
            Some(next) => cursor = next,
            None => return Ok(bytes),
        }
    }
}

/// Answers a question of another node's [`repair`].
///
/// # Errors
///
/// If the question is of another version, or rows cannot be read.
pub(super) async fn answer(rows: &dyn Rows, question: &[u8]) -> Result<Vec<u8>, RowsError> {
    let bad = || RowsError::from("expected a question of this version");
    let (header, rest) = question.split_first_chunk().ok_or_else(bad)?;
    let part = match *header {
        [DIGESTS, kind] => {
            let digests = rows.range_digests(kind);
            let body = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
            RowsPart { body, next: None }
        }
        [ROWS, kind] => {
            let (count, rest) = rest.split_first_chunk().ok_or_else(bad)?;
            let bytes = 2 * usize::from(u16::from_le_bytes(*count));
            let (ranges, cursor) = rest.split_at_checked(bytes).ok_or_else(bad)?;
            let ranges = ranges.as_chunks().0.iter().map(|range| u16::from_le_bytes(*range));
            rows.read_ranges(kind, ranges.collect(), cursor.to_vec()).await?
        }
        _ => return Err(bad()),
    };
    Ok(encode(&part))
}

/// Returns the answer of a node that cannot answer.
pub(super) fn refusal() -> Vec<u8> {
    vec![NONE, 0, 0]
}

fn encode(part: &RowsPart) -> Vec<u8> {
    let flag = if part.next.is_some() { MORE } else { LAST };
    let cursor = part.next.as_deref().unwrap_or_default();
    let len = u16::try_from(cursor.len()).unwrap_or(0);
    let mut answer = Vec::with_capacity(3 + cursor.len() + part.body.len());
    answer.push(flag);
    answer.extend_from_slice(&len.to_le_bytes());
    answer.extend_from_slice(cursor);
    answer.extend_from_slice(&part.body);
    answer
}

fn decode(answer: &[u8]) -> Result<RowsPart, RowsError> {
    let bad = || RowsError::from("the answer is damaged");
    let (flag, rest) = answer.split_first().ok_or_else(bad)?;
    let (len, rest) = rest.split_first_chunk().ok_or_else(bad)?;
    let (cursor, body) = rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or_else(bad)?;
    let next = match *flag {
        LAST => None,
        MORE if !cursor.is_empty() => Some(cursor.to_vec()),
        NONE => return Err("the node cannot send its rows now".into()),
        _ => return Err(bad()),
    };
    Ok(RowsPart { body: body.to_vec(), next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_decoded_as_they_were_encoded() {
        for next in [None, Some(vec![1, 2])] {
            let part = RowsPart { body: vec![9; 5], next };
            assert_eq!(decode(&encode(&part)).unwrap(), part);
        }
        for bad in [&[][..], &[0], &[0, 5, 0, 1], &[1, 0, 0], &[7, 0, 0], &refusal()] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }
}
