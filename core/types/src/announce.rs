//! The contents of an announce, over any protocol.

use crate::{InfoHash, PeerId};

/// Why the client announces now (BEP 3, BEP 15, BEP 21). Unknown events are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Event {
    /// A regular update.
    #[default]
    None,
    /// The first announce of a session.
    Started,
    /// The download has just ended.
    Completed,
    /// The client leaves the swarm.
    Stopped,
    /// The client is a partial seed: it has all it wants and downloads no more (BEP 21).
    Paused,
}

impl Event {
    /// Returns the event as it is written in announces; `none` for a regular update, which has no event.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        }
    }
}

/// The role of a peer in its swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the whole torrent.
    Seeder,
    /// It lacks a part of the torrent and downloads it.
    Leecher,
    /// It lacks a part that it does not want (BEP 21). Counted as incomplete, but not as a
    /// downloader.
    PartialSeed,
}

/// The number of peers that the client wants (`numwant`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NumWant {
    /// The tracker decides: `numwant` is absent, negative or unreadable.
    #[default]
    Default,
    /// This many; 0 means none.
    Peers(u16),
}

/// The address families that the peers of an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// The announcing peer's own (BEP 15: the packet's family decides).
    Own,
    /// Both, in proportion to the peers there are (BEP 7 answers over HTTP).
    Both,
}

/// An announce, without the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The id that the client gives itself.
    pub peer_id: PeerId,
    /// The port it listens on. The tracker refuses 0.
    pub port: u16,
    /// Why it announces.
    pub event: Event,
    /// Bytes left to download; `None` if unknown (UDP 2^64-1, absent, JSON null).
    pub left: Option<u64>,
    /// Bytes uploaded since the client started, as the client reports them.
    pub uploaded: u64,
    /// Bytes downloaded since the client started, as the client reports them.
    pub downloaded: u64,
    /// The number of peers it wants.
    pub want: NumWant,
}

impl Role {
    /// Returns the role that an announce claims. `completed` always makes a seeder, because clients
    /// in the field send it with a stale or unknown `left`. An unknown `left` alone never does.
    pub fn claimed(event: Event, left: Option<u64>) -> Self {
        match (event, left) {
            (Event::Completed, _) | (_, Some(0)) => Self::Seeder,
            (Event::Paused, _) => Self::PartialSeed,
            _ => Self::Leecher,
        }
    }
}

impl Announce {
    /// Returns a regular announce that reports no transfer and wants the default number of peers. How much is left is
    /// unknown.
    pub const fn new(info_hash: InfoHash, peer_id: PeerId, port: u16) -> Self {
        Self {
            info_hash,
            peer_id,
            port,
            event: Event::None,
            left: None,
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Default,
        }
    }

    /// Returns the role that the announce claims.
    pub fn role(&self) -> Role {
        Role::claimed(self.event, self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_or_nothing_left_seeds_and_an_unknown_rest_never_does() {
        for (event, left, role) in [
            (Event::Completed, Some(16384), Role::Seeder),
            (Event::Completed, None, Role::Seeder),
            (Event::None, Some(0), Role::Seeder),
            (Event::Paused, Some(0), Role::Seeder),
            (Event::Paused, Some(1), Role::PartialSeed),
            (Event::Started, None, Role::Leecher),
        ] {
            assert_eq!(Role::claimed(event, left), role, "{event:?} with {left:?} left");
        }
    }
}
