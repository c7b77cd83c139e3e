//! Sessions as bytes: they outlive the process, in the journal and over an upgrade.
//!
//! All numbers are little-endian. A body begins with 8 bytes that name the secret of sessions, which says
//! whether another process can find them, and 4 of flags: 1 = nothing was reported afterwards, 2 = changes
//! for the other nodes of a cluster. Sessions follow:
//!
//! | bytes | session |
//! |---|---|
//! | 8 | client: keyed hash of key, torrent and peer id, with ten bits of the key's |
//! | 6 | endpoint: keyed hash of the peer's address and port |
//! | 2 | flags: 1 = seeder, 2 = counts against the key's quota, 4 = has ended (changes only); others are 0 |
//! | 4 | age: seconds since the peer's last announce |
//! | 8 + 8 | bytes uploaded and downloaded, as last reported |
//! | 16 + 4 + 4 | with flag 2: keyed hashes of key, torrent and the address's prefix |
//!
//! WebTorrent peers are left out: their connections end with the process, and so do their sessions.

use primitives::siphash::siphash;
use types::Tick;

use super::session::{ENDPOINT_BITS, Reported};
use super::sessions::{PlacedSession, QuotaPlace};
use super::shard::shard_of;
use super::{KeyHash, PasskeyStore, SessionTag};

/// The progress of an export of all sessions.
pub struct SessionWalk {
    /// Flags of its bodies.
    flags: u32,
    /// The shard that is copied next.
    shard: usize,
    /// The sessions of the last copied shard that are not exported yet.
    copied: Vec<PlacedSession>,
}

/// An imported session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionRecord {
    pub(super) tag: SessionTag,
    pub(super) is_seeder: bool,
    /// True if the peer has stopped.
    pub(super) has_ended: bool,
    /// Seconds since the last announce.
    pub(super) age_s: u32,
    pub(super) uploaded: u64,
    pub(super) downloaded: u64,
    /// Present if it counts against a quota.
    pub(super) place: Option<QuotaPlace>,
}

/// A body does not consist of whole sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSessions;

/// Flags of a body.
pub(super) const IS_LAST: u32 = 1;
pub(super) const ARE_CHANGES: u32 = 2;
/// Flags of a session.
const IS_SEEDER: u16 = 1;
const HAS_QUOTA: u16 = 2;
const HAS_ENDED: u16 = 4;
/// Bytes of a session, and of what a quota adds.
const SHORT_LEN: usize = 36;
pub(super) const LONG_LEN: usize = SHORT_LEN + 24;

impl SessionWalk {
    /// Begins an export. `is_last` says that nothing is reported any more: then progress counts from the
    /// exported reports. Otherwise, what follows may have been counted already.
    pub fn new(is_last: bool) -> Self {
        Self { flags: if is_last { IS_LAST } else { 0 }, shard: 0, copied: Vec::new() }
    }
}

impl PasskeyStore {
    /// Appends a body of the next sessions of a walk to `body`, which should be empty: up to `bytes_max`
    /// of them. Returns false, and appends nothing, if there are no more.
    ///
    /// Locks one of many shards at a time, for as long as copying it takes. Sessions that are there from
    /// the beginning of the walk to its end are exported once.
    pub fn export_sessions(
        &self,
        now: Tick,
        walk: &mut SessionWalk,
        bytes_max: usize,
        body: &mut Vec<u8>,
    ) -> bool {
        let start = body.len();
        while body.len() - start + LONG_LEN <= bytes_max {
            let Some(session) = walk.copied.pop() else {
                let Some(shard) = self.shards.get(walk.shard) else { break };
                shard.lock().sessions.copy(&mut walk.copied);
                walk.shard += 1;
                continue;
            };
            if body.len() == start {
                self.begin_body(walk.flags, body);
            }
            SessionRecord::new(now, &session).encode(body);
        }
        body.len() > start
    }

    /// Writes what a body begins with.
    pub(super) fn begin_body(&self, flags: u32, body: &mut Vec<u8>) {
        body.extend(self.secret_name());
        body.extend(flags.to_le_bytes());
    }

    /// Returns a hash that another secret would not have. The text changes with the tags of sessions.
    pub(super) fn secret_name(&self) -> [u8; 8] {
        siphash::<2, 4>(&self.secret, b"sessions with the shard of their key").to_le_bytes()
    }
}

impl SessionRecord {
    pub(super) fn new(now: Tick, placed: &PlacedSession) -> Self {
        let PlacedSession { session, place } = *placed;
        Self {
            tag: session.tag,
            is_seeder: session.last.is_seeder,
            has_ended: false,
            age_s: now.since(session.last.at),
            uploaded: session.last.uploaded,
            downloaded: session.last.downloaded,
            place,
        }
    }

    /// Returns what the peer reported, at `at`.
    pub(super) fn reported(&self, at: Tick) -> Reported {
        let Self { is_seeder, uploaded, downloaded, .. } = *self;
        Reported { uploaded, downloaded, at, is_seeder, is_web: false }
    }

    /// Returns the same session for a peer whose next report is to count nothing: it may have reported, and
    /// been counted, after this was exported.
    pub(super) fn without_report(self) -> Self {
        Self { is_seeder: false, uploaded: u64::MAX, downloaded: u64::MAX, ..self }
    }

    pub(super) fn encode(&self, body: &mut Vec<u8>) {
        let mut flags = if self.is_seeder { IS_SEEDER } else { 0 };
        flags |= if self.place.is_some() { HAS_QUOTA } else { 0 };
        flags |= if self.has_ended { HAS_ENDED } else { 0 };
        body.extend(self.tag.client.to_le_bytes());
        // The flags lie above the endpoint's 6 bytes.
        body.extend((self.tag.endpoint | u64::from(flags) << ENDPOINT_BITS).to_le_bytes());
        body.extend(self.age_s.to_le_bytes());
        body.extend(self.uploaded.to_le_bytes());
        body.extend(self.downloaded.to_le_bytes());
        if let Some(QuotaPlace { key: KeyHash([first, second]), torrent, address }) = self.place {
            body.extend(first.to_le_bytes());
            body.extend(second.to_le_bytes());
            body.extend(torrent.to_le_bytes());
            body.extend(address.to_le_bytes());
        }
    }

    /// Reads the session at the beginning of `bytes`. Returns it, or `None` if no session can have these
    /// values, and the rest.
    ///
    /// # Errors
    ///
    /// If `bytes` are fewer than a session has.
    fn decode(bytes: &[u8]) -> Result<(Option<Self>, &[u8]), BadSessions> {
        let mut rest = bytes;
        let client = u64::from_le_bytes(take(&mut rest)?);
        let endpoint_and_flags = u64::from_le_bytes(take(&mut rest)?);
        let endpoint = endpoint_and_flags & ((1 << ENDPOINT_BITS) - 1);
        let flags = (endpoint_and_flags >> ENDPOINT_BITS) as u16;
        let mut record = Self {
            tag: SessionTag { client, endpoint },
            is_seeder: flags & IS_SEEDER != 0,
            has_ended: flags & HAS_ENDED != 0,
            age_s: u32::from_le_bytes(take(&mut rest)?),
            uploaded: u64::from_le_bytes(take(&mut rest)?),
            downloaded: u64::from_le_bytes(take(&mut rest)?),
            place: None,
        };
        let mut is_valid = flags & !(IS_SEEDER | HAS_QUOTA | HAS_ENDED) == 0;
        if flags & HAS_QUOTA != 0 {
            let first = u64::from_le_bytes(take(&mut rest)?);
            let second = u64::from_le_bytes(take(&mut rest)?);
            let torrent = u32::from_le_bytes(take(&mut rest)?);
            let address = u32::from_le_bytes(take(&mut rest)?);
            record.place = Some(QuotaPlace { key: KeyHash([first, second]), torrent, address });
            is_valid &= shard_of(first) == shard_of(client);
        }
        Ok((is_valid.then_some(record), rest))
    }
}

/// Returns the sessions of a body behind its first 12 bytes, `None` for those that cannot be.
///
/// # Errors
///
/// If the bytes are not whole sessions. None is returned then.
pub(super) fn records(
    body: &[u8],
) -> Result<impl Iterator<Item = Option<SessionRecord>>, BadSessions> {
    let mut rest = body;
    while !rest.is_empty() {
        (_, rest) = SessionRecord::decode(rest)?;
    }
    let mut rest = body;
    Ok(std::iter::from_fn(move || {
        let (record, behind) = SessionRecord::decode(rest).ok()?;
        rest = behind;
        Some(record)
    }))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadSessions> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(BadSessions)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_hold_sessions() {
        let short = SessionRecord {
            tag: SessionTag { client: 7, endpoint: (1 << ENDPOINT_BITS) - 1 },
            is_seeder: true,
            has_ended: false,
            age_s: 1234,
            uploaded: u64::MAX,
            downloaded: 5,
            place: None,
        };
        let key = KeyHash([u64::MAX - 1, 2]);
        let long = SessionRecord {
            tag: SessionTag { client: u64::MAX, endpoint: 0 },
            is_seeder: false,
            has_ended: true,
            place: Some(QuotaPlace { key, torrent: 3, address: 4 }),
            ..short
        };
        let mut body = Vec::new();
        short.encode(&mut body);
        assert_eq!(body.len(), SHORT_LEN);
        long.encode(&mut body);
        assert_eq!(body.len(), SHORT_LEN + LONG_LEN);
        let read: Vec<_> = records(&body).unwrap().collect();
        assert_eq!(read, [Some(short), Some(long)]);
        // Cut anywhere else, it is no body.
        for len in (0..body.len()).filter(|len| ![0, SHORT_LEN].contains(len)) {
            assert_eq!(records(&body[..len]).err(), Some(BadSessions), "{len}");
        }
        // Flags that no session has, and a key of another shard.
        for (at, wrong, expected) in [
            (14, 8, [None, Some(long)]),
            (15, 1, [None, Some(long)]),
            (2 * SHORT_LEN + 5, 0, [Some(short), None]),
        ] {
            let mut body = body.clone();
            body[at] = wrong;
            assert_eq!(records(&body).unwrap().collect::<Vec<_>>(), expected, "{at}");
        }
    }
}
