//! The torrents whose history is kept. There are at most a hundred: those that operators looked at last, and while
//! there is room the largest ones of a list that they looked at.

use serde_json::{Map, Value, json};
use tracker::Tracker;
use types::{InfoHash, Tick};

/// Torrents with a history. Their samples take at most 4 MB of memory and 8 MB of the records.
const FOLLOWED_MAX: usize = 100;

/// The names of the values in a row of a torrent's history.
pub(super) const TORRENT_FIELDS: [&str; 4] = ["time", "seeders", "leechers", "downloads"];

/// The counts of a torrent at the end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TorrentSample {
    pub(super) info_hash: InfoHash,
    pub(super) seeders: u32,
    pub(super) leechers: u32,
    pub(super) downloads: u32,
}

/// The torrents that are followed, the last ones that were looked at first.
#[derive(Default)]
pub(super) struct FollowedTorrents(Vec<InfoHash>);

impl FollowedTorrents {
    /// Follows a torrent that an operator looks at, in place of the one that was not looked at for the longest time.
    pub(super) fn open(&mut self, info_hash: InfoHash) {
        self.0.retain(|known| *known != info_hash);
        self.0.insert(0, info_hash);
        self.0.truncate(FOLLOWED_MAX);
    }

    pub(super) fn add(&mut self, info_hash: InfoHash) {
        if self.0.len() < FOLLOWED_MAX && !self.0.contains(&info_hash) {
            self.0.push(info_hash);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the present counts of all that the tracker knows.
    pub(super) fn sample(&self, tracker: &Tracker, now: Tick) -> Vec<TorrentSample> {
        let sample = |info_hash: &InfoHash| {
            let counts = tracker.torrent(now, info_hash, 0)?.stats.counts;
            Some(TorrentSample {
                info_hash: *info_hash,
                seeders: counts.seeders(),
                leechers: counts.leechers(),
                downloads: counts.downloads,
            })
        };
        self.0.iter().filter_map(sample).collect()
    }
}

/// Returns samples as the records have them.
pub(super) fn to_stored(samples: &[TorrentSample]) -> Value {
    let stored = |one: &TorrentSample| {
        (one.info_hash.to_string(), json!([one.seeders, one.leechers, one.downloads]))
    };
    Value::Object(samples.iter().map(stored).collect())
}

/// Reads what [`to_stored`] wrote. Entries of another form are left out.
pub(super) fn from_stored(stored: Option<&Value>) -> Vec<TorrentSample> {
    let stored: Option<&Map<String, Value>> = stored.and_then(Value::as_object);
    let sample = |(hash, counts): (&String, &Value)| {
        let count = |at| u32::try_from(counts.get(at)?.as_u64()?).ok();
        Some(TorrentSample {
            info_hash: hash.parse().ok()?,
            seeders: count(0)?,
            leechers: count(1)?,
            downloads: count(2)?,
        })
    };
    stored.into_iter().flatten().filter_map(sample).take(FOLLOWED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> InfoHash {
        InfoHash([number.to_be_bytes(); 5].as_flattened().try_into().unwrap())
    }

    #[test]
    fn torrents_that_were_looked_at_last_are_followed() {
        let mut followed = FollowedTorrents::default();
        (0..150).for_each(|number| followed.open(hash(number)));
        assert_eq!((followed.0.len(), followed.0[0], followed.0[99]), (100, hash(149), hash(50)));
        followed.open(hash(50));
        assert_eq!((followed.0[0], followed.0.len()), (hash(50), 100));
        followed.add(hash(7));
        assert!(!followed.0.contains(&hash(7)), "a list displaces nothing");
        followed.0.truncate(1);
        followed.add(hash(7));
        followed.add(hash(7));
        assert_eq!(followed.0, [hash(50), hash(7)]);
    }
}
