//! Batches: all that announces changed within a few seconds, merged by user and torrent.
//!
//! A batch is the unit of everything that follows: it is stored as one frame of the spool, written to the
//! database in one transaction, and read from the feed by one cursor. It holds differences for those who add them up,
//! and the last state of each session, from which the ledger is restored.

use std::net::IpAddr;

use arrayvec::ArrayString;
use smallvec::SmallVec;
use types::{Event, InfoHash, PeerId};

use crate::bytes::{Reader, Writer};

/// The longest agent that is kept; the columns of sites have this width.
pub const AGENT_LEN_MAX: usize = 64;

/// The name of a client's software.
pub type Agent = ArrayString<AGENT_LEN_MAX>;

/// A client of a user in a torrent, as its last announce left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id that the client gives itself.
    pub peer_id: PeerId,
    /// Its address, as others get it.
    pub ip: IpAddr,
    /// The port it listens on.
    pub port: u16,
    /// The client's own counter of bytes sent.
    pub uploaded: u64,
    /// The client's own counter of bytes received.
    pub downloaded: u64,
    /// Bytes left to download; 0 if unknown.
    pub left: u64,
    /// Its first announce, unix seconds.
    pub created_s: u32,
    /// Its last announce, unix seconds.
    pub updated_s: u32,
    /// True if it has neither stopped nor been silent for too long.
    pub active: bool,
    /// True if it has the whole torrent.
    pub seeder: bool,
    /// True if others get it; false if its user is over the download slots.
    pub visible: bool,
    /// The node that counts it.
    pub counting: Counting,
}

/// The node of a cluster that counts a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// This node counted its last announce.
    Here,
    /// Another node did.
    Elsewhere,
    /// It announces to several nodes at once, and this one counts what another one has not.
    Late,
}

/// A session that a batch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionChange {
    /// Its state at the end of the batch.
    pub session: Session,
    /// The client's software.
    pub agent: Agent,
    /// True if it did not announce, but was silent for too long.
    pub expired: bool,
    /// True if it announced at another node of the cluster, which counts it.
    pub learned: bool,
}

/// All changes of a user in a torrent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The user's number: that of the site, or of the key.
    pub user: u32,
    /// The torrent's number: that of the site, or of [`TorrentName`].
    pub torrent: u32,
    /// Bytes sent, as clients reported them.
    pub uploaded: u64,
    /// Bytes received, as clients reported them.
    pub downloaded: u64,
    /// Bytes sent that the site credits.
    pub credited_uploaded: u64,
    /// Bytes received that the site credits.
    pub credited_downloaded: u64,
    /// Bytes received for which a freeleech token was used.
    pub token_downloaded: u64,
    /// Seconds as a seeder.
    pub seeded_s: u32,
    /// Announces that were merged.
    pub announces: u32,
    /// Seconds since the announce of the client before its last one; 0 = there was none.
    pub elapsed_s: u32,
    /// When a client first completed the torrent, unix seconds; 0 = none did.
    pub completed_s: u32,
    /// The first announce of the record, unix seconds.
    pub created_s: u32,
    /// The change in the number of seeders.
    pub seeders: i32,
    /// The change in the number of leechers.
    pub leechers: i32,
    /// Downloads that became complete.
    pub completions: u32,
    /// True if a client of the user is active.
    pub active: bool,
    /// True if the site does not warn the user for leaving early.
    pub immune: bool,
    /// True if the site does not want to know the user's address.
    pub hides_address: bool,
    /// The event of the last announce.
    pub event: Event,
    /// The sessions that changed; the one that announced last is last.
    pub sessions: SmallVec<[SessionChange; 1]>,
}

/// A torrent that a user announced, and that the site does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unregistered {
    /// The user's number.
    pub user: u32,
    /// The torrent.
    pub info_hash: InfoHash,
}

/// The number of a torrent that no site numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorrentName {
    /// The number in records.
    pub torrent: u32,
    /// The torrent.
    pub info_hash: InfoHash,
}

/// Everything that changed within a flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Its number, one more than that of the last.
    pub sequence: u64,
    /// When it was cut, unix seconds.
    pub unix_s: u32,
    /// Changes by user and torrent, in this order.
    pub records: Vec<Record>,
    /// Announced torrents that the site does not have.
    pub unregistered: Vec<Unregistered>,
    /// Torrents that got a number.
    pub names: Vec<TorrentName>,
}

impl Record {
    pub(crate) fn new(user: u32, torrent: u32, now_s: u32) -> Self {
        Self { user, torrent, created_s: now_s, ..Self::default() }
    }

    /// Returns the session that announced here last, or `None` if none did.
    pub fn last(&self) -> Option<&SessionChange> {
        self.sessions.iter().rev().find(|change| !change.expired && !change.learned)
    }

    /// Returns the sessions that announced at this node, in the order of their last announces.
    pub(crate) fn announced(&self) -> impl Iterator<Item = &SessionChange> {
        self.sessions.iter().filter(|change| !change.expired && !change.learned)
    }

    /// Returns true if it has nothing but sessions that other nodes count.
    pub fn is_learned(&self) -> bool {
        self.announces == 0 && self.sessions.iter().all(|change| change.learned)
    }

    /// Replaces the state of a session, and puts it last. What this node counted of a session, and what it learned of
    /// another node, are two states: the site gets the first.
    pub(crate) fn put_session(&mut self, change: SessionChange) {
        let is_same = |other: &SessionChange| {
            (other.session.peer_id, other.learned) == (change.session.peer_id, change.learned)
        };
        match self.sessions.last_mut().filter(|last| is_same(last)) {
            Some(last) => *last = change,
            None => {
                self.sessions.retain(|other| !is_same(other));
                self.sessions.push(change);
            }
        }
    }
}

impl Batch {
    /// Returns true if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.unregistered.is_empty() && self.names.is_empty()
    }

    /// Appends the contents, without sequence and time, to `writer`.
    pub(crate) fn encode(&self, writer: &mut Writer) {
        let mut agents: Vec<Agent> = Vec::new();
        writer.varint(self.names.len() as u64);
        for name in &self.names {
            writer.varint(name.torrent.into());
            writer.bytes(&name.info_hash.0);
        }
        writer.varint(self.unregistered.len() as u64);
        for one in &self.unregistered {
            writer.varint(one.user.into());
            writer.bytes(&one.info_hash.0);
        }
        writer.varint(self.records.len() as u64);
        for record in &self.records {
            encode_record(writer, record, self.unix_s, &mut agents);
        }
    }

    /// Reads what [`Batch::encode`] wrote. Returns `None` if it is malformed.
    pub(crate) fn decode(sequence: u64, unix_s: u32, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let mut batch = Self { sequence, unix_s, ..Self::default() };
        for _ in 0..reader.varint()? {
            let torrent = reader.number()?;
            batch.names.push(TorrentName { torrent, info_hash: InfoHash(reader.array()?) });
        }
        for _ in 0..reader.varint()? {
            let user = reader.number()?;
            batch.unregistered.push(Unregistered { user, info_hash: InfoHash(reader.array()?) });
        }
        let mut agents = Vec::new();
        for _ in 0..reader.varint()? {
            batch.records.push(decode_record(&mut reader, unix_s, &mut agents)?);
        }
        reader.0.is_empty().then_some(batch)
    }
}

/// Returns whether a batch that is read from `bytes`, if there is one, is the same after it is written and read again. For
/// fuzzing.
#[doc(hidden)]
pub fn reads_batch_as_written(bytes: &[u8]) -> bool {
    let Some(batch) = Batch::decode(1, 1_800_000_000, bytes) else { return true };
    let mut writer = Writer::default();
    batch.encode(&mut writer);
    Batch::decode(1, 1_800_000_000, &writer.0).as_ref() == Some(&batch)
}

const EVENTS: [Event; 5] =
    [Event::None, Event::Started, Event::Completed, Event::Stopped, Event::Paused];

fn encode_record(writer: &mut Writer, record: &Record, unix_s: u32, agents: &mut Vec<Agent>) {
    writer.varint(record.user.into());
    writer.varint(record.torrent.into());
    let event = EVENTS.iter().position(|event| *event == record.event).unwrap_or_default() as u8;
    let bits = [record.immune, record.active, record.hides_address];
    let bits = bits.iter().rev().fold(event, |bits, bit| bits << 1 | u8::from(*bit));
    writer.bytes(&[bits]);
    for bytes in [
        record.uploaded,
        record.downloaded,
        record.credited_uploaded,
        record.credited_downloaded,
        record.token_downloaded,
    ] {
        writer.varint(bytes);
    }
    writer.varint(record.seeded_s.into());
    writer.varint(record.announces.into());
    writer.varint(record.elapsed_s.into());
    writer.varint(record.completed_s.into());
    writer.signed(i64::from(unix_s) - i64::from(record.created_s));
    writer.signed(record.seeders.into());
    writer.signed(record.leechers.into());
    writer.varint(record.completions.into());
    writer.varint(record.sessions.len() as u64);
    for change in &record.sessions {
        encode_session(writer, &change.session, unix_s);
        let known = agents.iter().position(|agent| *agent == change.agent);
        let index = known.unwrap_or(agents.len());
        let bits = u64::from(change.expired) | u64::from(change.learned) << 1;
        writer.varint((index as u64) << 2 | bits);
        if known.is_none() {
            writer.varint(change.agent.len() as u64);
            writer.bytes(change.agent.as_bytes());
            // Few agents are common. Of rare ones, the rest is written anew each time.
            if agents.len() < 256 {
                agents.push(change.agent);
            }
        }
    }
}

fn decode_record(reader: &mut Reader<'_>, unix_s: u32, agents: &mut Vec<Agent>) -> Option<Record> {
    let mut record = Record::new(reader.number()?, reader.number()?, 0);
    let [bits] = reader.array()?;
    record.event = *EVENTS.get(usize::from(bits >> 3))?;
    record.hides_address = bits & 4 != 0;
    record.active = bits & 2 != 0;
    record.immune = bits & 1 != 0;
    record.uploaded = reader.varint()?;
    record.downloaded = reader.varint()?;
    record.credited_uploaded = reader.varint()?;
    record.credited_downloaded = reader.varint()?;
    record.token_downloaded = reader.varint()?;
    record.seeded_s = reader.number()?;
    record.announces = reader.number()?;
    record.elapsed_s = reader.number()?;
    record.completed_s = reader.number()?;
    record.created_s = reader.time(unix_s)?;
    record.seeders = reader.signed()?.try_into().ok()?;
    record.leechers = reader.signed()?.try_into().ok()?;
    record.completions = reader.number()?;
    for _ in 0..reader.varint()? {
        let session = decode_session(reader, unix_s)?;
        let word = reader.varint()?;
        let index = usize::try_from(word >> 2).ok()?;
        let agent = if let Some(agent) = agents.get(index) {
            *agent
        } else {
            let len = usize::try_from(reader.varint()?).ok()?;
            let agent = Agent::from(std::str::from_utf8(reader.take(len)?).ok()?).ok()?;
            if agents.len() < 256 {
                agents.push(agent);
            }
            agent
        };
        let expired = word & 1 != 0;
        let learned = word & 2 != 0;
        record.sessions.push(SessionChange { session, agent, expired, learned });
    }
    Some(record)
}

const COUNTING: [Counting; 3] = [Counting::Here, Counting::Elsewhere, Counting::Late];

/// Appends a session; times are relative to `unix_s`.
pub(crate) fn encode_session(writer: &mut Writer, session: &Session, unix_s: u32) {
    let is_v6 = session.ip.is_ipv6();
    let bits = [session.active, session.seeder, session.visible, is_v6];
    let first = session.counting as u8;
    let bits = bits.iter().rev().fold(first, |bits, bit| bits << 1 | u8::from(*bit));
    writer.bytes(&[bits]);
    writer.bytes(&session.peer_id.0);
    match session.ip {
        IpAddr::V4(ip) => writer.bytes(&ip.octets()),
        IpAddr::V6(ip) => writer.bytes(&ip.octets()),
    }
    writer.bytes(&session.port.to_le_bytes());
    writer.varint(session.uploaded);
    writer.varint(session.downloaded);
    writer.varint(session.left);
    writer.signed(i64::from(unix_s) - i64::from(session.created_s));
    writer.signed(i64::from(unix_s) - i64::from(session.updated_s));
}

/// Reads what [`encode_session`] wrote. Returns `None` if it is malformed.
pub(crate) fn decode_session(reader: &mut Reader<'_>, unix_s: u32) -> Option<Session> {
    let [bits] = reader.array()?;
    let peer_id = PeerId(reader.array()?);
    let ip = if bits & 8 == 0 {
        IpAddr::from(reader.array::<4>()?)
    } else {
        IpAddr::from(reader.array::<16>()?)
    };
    Some(Session {
        peer_id,
        ip,
        port: u16::from_le_bytes(reader.array()?),
        uploaded: reader.varint()?,
        downloaded: reader.varint()?,
        left: reader.varint()?,
        created_s: reader.time(unix_s)?,
        updated_s: reader.time(unix_s)?,
        active: bits & 1 != 0,
        seeder: bits & 2 != 0,
        visible: bits & 4 != 0,
        counting: *COUNTING.get(usize::from(bits >> 4))?,
    })
}

/// Returns the text of an agent: printable characters, cut to the width of a column.
pub(crate) fn agent_of(bytes: &[u8]) -> Agent {
    let bytes = bytes.get(..AGENT_LEN_MAX).unwrap_or(bytes);
    let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
    let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.iter().all(is_printable));
    if let Some(agent) = text.and_then(|text| Agent::from(text).ok()) {
        return agent;
    }
    let mut agent = Agent::new();
    for byte in bytes {
        agent.push(if is_printable(byte) { char::from(*byte) } else { '?' });
    }
    agent
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch with all kinds of values.
    pub(crate) fn example() -> Batch {
        let session = Session {
            peer_id: PeerId(*b"-qB4650-abcdefghijkl"),
            ip: IpAddr::from([1, 2, 3, 4]),
            port: 6881,
            uploaded: u64::MAX,
            downloaded: 300,
            left: 0,
            created_s: 1_000,
            updated_s: 2_000,
            active: true,
            seeder: false,
            visible: true,
            counting: Counting::Late,
        };
        let v6 = Session { ip: "2001:db8::1".parse().unwrap(), updated_s: 2_100, ..session };
        let agent = agent_of(b"qBittorrent/4.6.5");
        let mut record = Record::new(7, 9, 1_990);
        record.credited_downloaded = 200;
        record.seeders = -1;
        record.event = Event::Paused;
        record.sessions.push(SessionChange { session, agent, expired: true, learned: false });
        record.sessions.push(SessionChange { session: v6, agent, expired: false, learned: true });
        let info_hash = InfoHash([5; 20]);
        Batch {
            sequence: 3,
            unix_s: 2_050,
            records: vec![record.clone(), Record { user: u32::MAX, ..record }],
            unregistered: vec![Unregistered { user: 7, info_hash }],
            names: vec![TorrentName { torrent: 9, info_hash }],
        }
    }

    #[test]
    fn batches_round_trip_and_no_prefix_is_one() {
        let batch = example();
        let mut writer = Writer::default();
        batch.encode(&mut writer);
        assert_eq!(Batch::decode(3, 2_050, &writer.0), Some(batch));
        for len in 0..writer.0.len() {
            assert_eq!(Batch::decode(3, 2_050, &writer.0[..len]), None, "{len}");
        }
    }

    #[test]
    fn agents_are_cut_and_printable() {
        assert_eq!(agent_of("a\u{e9}\n".as_bytes()).as_str(), "a???");
        assert_eq!(agent_of(&[b'x'; 100]).len(), AGENT_LEN_MAX);
    }
}
