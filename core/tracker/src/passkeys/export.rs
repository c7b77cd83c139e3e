//! Sessions as bytes, for the journal, an upgrade and the other nodes of a cluster.
//!
//! All numbers are little-endian. A body begins with 8 bytes that name the secret of sessions, without which
//! another process cannot find them, and 4 of flags: 1 = nothing was reported afterwards, 2 = changes
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

use super::import::ImportTime;
use super::session::{ENDPOINT_BITS, Reported, Session};
use super::sessions::{QuotaPlace, SessionRecord};
use super::shard::shard_of;
use super::{KeyHash, PasskeyStore, SessionTag};

/// The progress of an export of sessions.
pub struct SessionWalk {
    /// Flags of its bodies.
    flags: u32,
    /// The shard that is copied next.
    shard: usize,
    /// The sessions of the last copied shard that are not exported yet.
    copied: Vec<SessionRecord>,
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
const LONG_LEN: usize = SHORT_LEN + 24;

impl SessionWalk {
    /// Begins an export of all sessions. `is_last` says that nothing is reported any more: then progress counts
    /// from the exported reports. Otherwise, what follows may have been counted already.
    pub fn new(is_last: bool) -> Self {
        Self { flags: if is_last { IS_LAST } else { 0 }, shard: 0, copied: Vec::new() }
    }

    /// Begins an export of the sessions that have changed since they were last exported so. See
    /// [`PasskeyStore::keep_session_changes`].
    pub fn of_changes() -> Self {
        Self { flags: ARE_CHANGES, shard: 0, copied: Vec::new() }
    }
}

impl PasskeyStore {
    /// Appends a body of the next sessions of a walk to `body`, which should be empty: up to `bytes_max`
    /// of them. Returns false, and appends nothing, if there are no more; the next call begins anew.
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
                let sessions = &mut shard.lock().sessions;
                match walk.flags {
                    ARE_CHANGES => sessions.take_changes(&mut walk.copied),
                    _ => sessions.copy(&mut walk.copied),
                }
                walk.shard += 1;
                continue;
            };
            if body.len() == start {
                body.extend(self.secret_name());
                body.extend(walk.flags.to_le_bytes());
            }
            session.encode(now, body);
        }
        let has_more = body.len() > start;
        if !has_more {
            walk.shard = 0;
        }
        has_more
    }

    /// Reads a body. Returns its flags, and the sessions whose lifetime has not passed, with the times of their
    /// last reports; none if another secret made their tags.
    ///
    /// # Errors
    ///
    /// If `body` does not consist of whole sessions.
    pub(super) fn read_sessions(
        &self,
        time: ImportTime,
        mut body: &[u8],
    ) -> Result<(u32, Vec<SessionRecord>), BadSessions> {
        let is_own = take(&mut body)? == self.secret_name();
        let flags = u32::from_le_bytes(take(&mut body)?);
        let mut sessions = Vec::new();
        while !body.is_empty() {
            sessions.extend(SessionRecord::decode(time, &mut body)?.filter(|_| is_own));
        }
        Ok((flags, sessions))
    }

    /// Returns a hash that another secret would not have. The text changes with the tags of sessions.
    fn secret_name(&self) -> [u8; 8] {
        siphash::<2, 4>(&self.secret, b"sessions with the shard of their key").to_le_bytes()
    }
}

impl SessionRecord {
    fn encode(&self, now: Tick, body: &mut Vec<u8>) {
        let Session { tag, last } = self.session;
        let mut flags = if last.is_seeder { IS_SEEDER } else { 0 };
        flags |= if self.place.is_some() { HAS_QUOTA } else { 0 };
        flags |= if self.has_ended { HAS_ENDED } else { 0 };
        body.extend(tag.client.to_le_bytes());
        // The flags lie above the endpoint's 6 bytes.
        body.extend((tag.endpoint | u64::from(flags) << ENDPOINT_BITS).to_le_bytes());
        body.extend(now.since(last.at).to_le_bytes());
        body.extend(last.uploaded.to_le_bytes());
        body.extend(last.downloaded.to_le_bytes());
        if let Some(QuotaPlace { key: KeyHash([first, second]), torrent, address }) = self.place {
            body.extend(first.to_le_bytes());
            body.extend(second.to_le_bytes());
            body.extend(torrent.to_le_bytes());
            body.extend(address.to_le_bytes());
        }
    }

    /// Takes a session from the beginning of `body`. Returns `None` if no session can have these values, or its
    /// lifetime has passed.
    ///
    /// # Errors
    ///
    /// If `body` has fewer bytes than a session.
    fn decode(time: ImportTime, body: &mut &[u8]) -> Result<Option<Self>, BadSessions> {
        let client = u64::from_le_bytes(take(body)?);
        let endpoint_and_flags = u64::from_le_bytes(take(body)?);
        let endpoint = endpoint_and_flags & ((1 << ENDPOINT_BITS) - 1);
        let flags = (endpoint_and_flags >> ENDPOINT_BITS) as u16;
        let age_s = u32::from_le_bytes(take(body)?).saturating_add(time.cut_ago_s);
        let last = Reported {
            uploaded: u64::from_le_bytes(take(body)?),
            downloaded: u64::from_le_bytes(take(body)?),
            at: Tick(time.now.0.saturating_sub(age_s)),
            is_seeder: flags & IS_SEEDER != 0,
            is_web: false,
        };
        let mut is_valid = flags & !(IS_SEEDER | HAS_QUOTA | HAS_ENDED) == 0;
        let mut place = None;
        if flags & HAS_QUOTA != 0 {
            let first = u64::from_le_bytes(take(body)?);
            let second = u64::from_le_bytes(take(body)?);
            let torrent = u32::from_le_bytes(take(body)?);
            let address = u32::from_le_bytes(take(body)?);
            place = Some(QuotaPlace { key: KeyHash([first, second]), torrent, address });
            is_valid &= shard_of(first) == shard_of(client);
        }
        let session = Session { tag: SessionTag { client, endpoint }, last };
        let record = Self { session, place, has_ended: flags & HAS_ENDED != 0 };
        Ok((is_valid && age_s <= time.lifetime_s).then_some(record))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadSessions> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(BadSessions)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: ImportTime = ImportTime { now: Tick(2000), cut_ago_s: 1000, lifetime_s: 1234 };

    fn read(mut body: &[u8]) -> Result<Vec<Option<SessionRecord>>, BadSessions> {
        let mut sessions = Vec::new();
        while !body.is_empty() {
            sessions.push(SessionRecord::decode(TIME, &mut body)?);
        }
        Ok(sessions)
    }

    #[test]
    fn bodies_hold_sessions() {
        let tag = SessionTag { client: 7, endpoint: (1 << ENDPOINT_BITS) - 1 };
        let last = Reported {
            uploaded: u64::MAX,
            downloaded: 5,
            at: Tick(900),
            is_seeder: true,
            is_web: false,
        };
        let short = SessionRecord { session: Session { tag, last }, place: None, has_ended: false };
        let key = KeyHash([u64::MAX - 1, 2]);
        let long = SessionRecord {
            session: Session {
                tag: SessionTag { client: u64::MAX, endpoint: 0 },
                last: Reported { is_seeder: false, at: Tick(766), ..last },
            },
            place: Some(QuotaPlace { key, torrent: 3, address: 4 }),
            has_ended: true,
        };
        let mut body = Vec::new();
        short.encode(Tick(1000), &mut body);
        assert_eq!(body.len(), SHORT_LEN);
        long.encode(Tick(1000), &mut body);
        assert_eq!(body.len(), SHORT_LEN + LONG_LEN);
        assert_eq!(read(&body), Ok(vec![Some(short), Some(long)]));
        // Cut anywhere else, it is no body.
        for len in (0..body.len()).filter(|len| ![0, SHORT_LEN].contains(len)) {
            assert_eq!(read(&body[..len]), Err(BadSessions), "{len}");
        }
        // Flags that no session has, a second too old, and a key of another shard.
        for (at, wrong, expected) in [
            (14, 8, [None, Some(long)]),
            (15, 1, [None, Some(long)]),
            (SHORT_LEN + 16, 235, [Some(short), None]),
            (2 * SHORT_LEN + 5, 0, [Some(short), None]),
        ] {
            let mut body = body.clone();
            body[at] = wrong;
            assert_eq!(read(&body), Ok(expected.to_vec()), "{at}");
        }
    }
}
