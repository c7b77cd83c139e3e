//! What a client says when it announces, whatever the protocol.

use crate::{InfoHash, PeerId};

/// Why the client announces now (BEP 3, BEP 15, BEP 21). Anything else a client sends is `None`.
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
    /// A partial seed: it has all it wants, and wants no more (BEP 21).
    Paused,
}

/// What the peer is to its swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has everything.
    Seeder,
    /// It is missing something and fetching it.
    Leecher,
    /// It is missing something that it does not want (BEP 21): counted as incomplete, but not
    /// among the downloaders.
    PartialSeed,
}

/// How many peers the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NumWant {
    /// It left that to the tracker: absent, negative or unreadable.
    #[default]
    Default,
    /// So many; 0 means none.
    Peers(u16),
}

/// Which families' peers an answer may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// Only the asker's own (BEP 15: the packet's family decides).
    Own,
    /// Both, in proportion (BEP 7 answers over HTTP).
    Both,
}

/// An announce, without where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// What the client calls itself.
    pub peer_id: PeerId,
    /// The port it says it listens on; 0 is refused by the tracker.
    pub port: u16,
    /// Why it announces.
    pub event: Event,
    /// Bytes it still misses; `None` when it does not know (UDP 2^64-1, absent, JSON null).
    pub left: Option<u64>,
    /// Bytes it has sent since it started, by its own account.
    pub uploaded: u64,
    /// Bytes it has received since it started, by its own account.
    pub downloaded: u64,
    /// How many peers it asks for.
    pub want: NumWant,
}

impl Role {
    /// The role that an announce claims. `completed` makes a seeder whatever `left` says, because
    /// clients in the field send it with a stale or unknown `left`; an unknown `left` alone never does.
    pub fn claimed(event: Event, left: Option<u64>) -> Self {
        match (event, left) {
            (Event::Completed, _) | (_, Some(0)) => Self::Seeder,
            (Event::Paused, _) => Self::PartialSeed,
            _ => Self::Leecher,
        }
    }
}

impl Announce {
    /// The role that the announce claims.
    pub fn role(&self) -> Role {
        Role::claimed(self.event, self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(event: Event, left: Option<u64>) -> Role {
        Announce {
            info_hash: InfoHash::default(),
            peer_id: PeerId::default(),
            port: 1,
            event,
            left,
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Default,
        }
        .role()
    }

    #[test]
    fn completed_or_nothing_left_seeds() {
        assert_eq!(role(Event::Completed, Some(16384)), Role::Seeder);
        assert_eq!(role(Event::Completed, None), Role::Seeder);
        assert_eq!(role(Event::None, Some(0)), Role::Seeder);
        assert_eq!(role(Event::Paused, Some(0)), Role::Seeder);
    }

    #[test]
    fn unknown_left_never_seeds() {
        assert_eq!(role(Event::Started, None), Role::Leecher);
        assert_eq!(role(Event::Paused, Some(1)), Role::PartialSeed);
    }
}
