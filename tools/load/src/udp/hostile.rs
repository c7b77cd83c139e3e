//! Kinds of hostile datagrams. A tracker need not answer any of them.

use std::fmt;
use std::str::FromStr;

use super::batch::Batch;
use crate::random::Random;

/// A kind of hostile datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostileDatagram {
    /// Announces with connection ids that the tracker has not issued, as forged sources would send.
    BadIds,
    /// Random bytes, 1 to 1200 of them.
    Garbage,
    /// Announces with a valid connection id, truncated in the middle.
    Truncated,
    /// Announces with a valid connection id and 8 KiB of options.
    Oversize,
    /// Scrapes with an invalid connection id and as many torrents as fit, as used to find
    /// amplifiers.
    Scrapes,
}

const NAMES: [(&str, HostileDatagram); 5] = [
    ("bad-ids", HostileDatagram::BadIds),
    ("garbage", HostileDatagram::Garbage),
    ("truncated", HostileDatagram::Truncated),
    ("oversize", HostileDatagram::Oversize),
    ("scrapes", HostileDatagram::Scrapes),
];

const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ANNOUNCE_LEN: usize = 98;

impl HostileDatagram {
    /// Adds a datagram to a batch. All garbage datagrams of a batch have equal length, as a batch
    /// requires.
    pub(super) fn add(
        self,
        batch: &mut Batch,
        transaction_id: u32,
        connection_id: u64,
        random: &mut Random,
    ) {
        let (id, action, len) = match self {
            Self::BadIds => (random.next(), ANNOUNCE, ANNOUNCE_LEN),
            Self::Garbage if batch.count > 0 => (random.next(), random.next() as u32, batch.len),
            Self::Garbage => (random.next(), random.next() as u32, 1 + random.below(1200)),
            Self::Truncated => (connection_id, ANNOUNCE, ANNOUNCE_LEN / 2),
            Self::Oversize => (connection_id, ANNOUNCE, 8192),
            Self::Scrapes => (random.next(), SCRAPE, 16 + 20 * 59),
        };
        batch.add(|out| {
            let start = out.len();
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&action.to_be_bytes());
            out.extend_from_slice(&transaction_id.to_be_bytes());
            while out.len() < start + len {
                out.extend_from_slice(&random.next().to_be_bytes());
            }
            out.truncate(start + len);
        });
    }
}

impl FromStr for HostileDatagram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, profile)| *profile);
        found.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("unknown kind `{text}`: expected one of {names}")
        })
    }
}

impl fmt::Display for HostileDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, profile)| profile == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::udp::{DecodeError, Request, UnverifiedRequest, decode};

    #[test]
    fn kinds_have_their_properties() {
        let mut random = Random::new(1);
        for (name, profile) in NAMES {
            assert_eq!((name.parse(), profile.to_string().as_str()), (Ok(profile), name));
            let mut batch = Batch::default();
            for _ in 0..10 {
                profile.add(&mut batch, 7, 1234, &mut random);
            }
            assert_eq!(batch.bytes.len(), batch.len * 10);
            for datagram in batch.bytes.chunks(batch.len.max(1)) {
                let id = |good: u64| matches!(decode(datagram), Ok(Request::Connected { connection_id, .. }) if connection_id == good);
                match (profile, decode(datagram)) {
                    (HostileDatagram::BadIds, Ok(Request::Connected { request: call, .. })) => {
                        assert!(matches!(call, UnverifiedRequest::Announce { .. }) && !id(1234));
                    }
                    (HostileDatagram::Truncated, Ok(Request::Connected { request: call, .. })) => {
                        assert!(matches!(call, UnverifiedRequest::Malformed(_)) && id(1234));
                    }
                    (HostileDatagram::Oversize, Ok(Request::Connected { request: call, .. })) => {
                        assert!(matches!(call, UnverifiedRequest::Announce { .. }) && id(1234));
                        assert_eq!(datagram.len(), 8192);
                    }
                    (
                        HostileDatagram::Scrapes,
                        Ok(Request::Connected {
                            request: UnverifiedRequest::Scrape(hashes), ..
                        }),
                    ) => {
                        assert!(hashes.len() > 1 && !id(1234));
                    }
                    (HostileDatagram::Garbage, found) => {
                        assert!(!matches!(found, Ok(Request::Connect { .. })));
                        assert!(datagram.len() >= 16 || found == Err(DecodeError::TooShort));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!("slowloris".parse::<HostileDatagram>().unwrap_err().contains("bad-ids, garbage"));
    }
}
