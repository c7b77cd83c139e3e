//! Comparison of the peers that a tracker knows with what it has acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::Api;
use harness::Tracker;
use load::udp::{KnownPeer, PeerState, Roster};
use serde_json::Value;

use super::LISTED_MAX;

/// Numbers of peers, by what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SwarmComparison {
    /// Acknowledged as present, with no later announce under way that would change that.
    pub(crate) expected: u64,
    /// Of these, those that the tracker does not have.
    pub(crate) lost: u64,
    /// Of these, those with another role than for the last second.
    pub(crate) wrong_role: u64,
    /// Present, although they stopped more than a second before the end.
    pub(crate) ghosts: u64,
    /// Present, and never announced.
    pub(crate) unknown: u64,
    /// Not compared: the answer to a change was not received.
    pub(crate) uncertain: u64,
    /// Seconds before the end at which the oldest change was acknowledged that is lost.
    pub(crate) oldest_lost_s: f64,
    /// The most seconds by which a peer's age is too high.
    pub(crate) older_s: f64,
}

/// A peer that stopped this long before the end must not be present.
const RECENT: Duration = Duration::from_secs(1);

impl SwarmComparison {
    /// Adds another comparison.
    pub(crate) fn add(&mut self, other: &Self) {
        self.expected += other.expected;
        self.lost += other.lost;
        self.wrong_role += other.wrong_role;
        self.ghosts += other.ghosts;
        self.unknown += other.unknown;
        self.uncertain += other.uncertain;
        self.oldest_lost_s = self.oldest_lost_s.max(other.oldest_lost_s);
        self.older_s = self.older_s.max(other.older_s);
    }

    /// Returns the part of the peers that were kept, in percent.
    pub(crate) fn kept_percent(&self) -> f64 {
        100.0 - 100.0 * self.lost as f64 / self.expected.max(1) as f64
    }

    /// Compares a peer. `found`: its state and age by the tracker; `ended`: when the tracker ended;
    /// `read`: when its successor was asked.
    fn compare(
        &mut self,
        peer: &KnownPeer,
        found: Option<(PeerState, u32)>,
        ended: Instant,
        read: Instant,
    ) {
        let before_end = ended.saturating_duration_since(peer.changed);
        let is_recent = before_end <= RECENT;
        match (peer.state, found) {
            _ if peer.is_uncertain => self.uncertain += 1,
            (PeerState::Absent, None) => {}
            (PeerState::Absent, Some(_)) => self.ghosts += u64::from(!is_recent),
            (_, None) => {
                (self.expected, self.lost) = (self.expected + 1, self.lost + 1);
                self.oldest_lost_s = self.oldest_lost_s.max(before_end.as_secs_f64());
            }
            (state, Some((found, age_s))) => {
                self.expected += 1;
                self.wrong_role += u64::from(state != found && !is_recent);
                let age = read.saturating_duration_since(peer.heard).as_secs_f64();
                self.older_s = self.older_s.max(f64::from(age_s) - age);
            }
        }
    }
}

impl fmt::Display for SwarmComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, lost, wrong_role, ghosts, unknown, uncertain, .. } = self;
        write!(f, "of {expected} peers {lost} lost ({:.3} % kept", self.kept_percent())?;
        write!(f, ", none older than {:.2} s), {wrong_role} in another role", self.oldest_lost_s)?;
        write!(f, "; stopped and present {ghosts}, unknown {unknown}, uncertain {uncertain}")?;
        write!(f, "; ages up to {:.0} s too high", self.older_s)
    }
}

/// Compares all peers, and corrects the roster by what the tracker knows. `ended`: when the tracker that acknowledged
/// them ended.
pub(crate) fn compare(
    roster: &mut Roster,
    api: SocketAddr,
    ended: Instant,
) -> Result<SwarmComparison> {
    let mut torrents: BTreeMap<u32, Vec<KnownPeer>> = BTreeMap::new();
    for peer in roster.peers() {
        torrents.entry(peer.torrent).or_default().push(peer);
    }
    let (mut api, mut total) = (Api::open(api)?, SwarmComparison::default());
    for (torrent, peers) in torrents {
        let info_hash = roster.info_hash(torrent).to_string();
        let mut found = read_torrent(&mut api, &info_hash)?;
        let read = Instant::now();
        for peer in peers {
            let found = found.remove(&peer.address);
            total.compare(&peer, found, ended, read);
            let state = found.map_or(PeerState::Absent, |(state, _)| state);
            roster.correct(peer.number, state);
        }
        total.unknown += found.len() as u64;
    }
    Ok(total)
}

/// Returns the peers of a torrent: their states and ages in seconds.
pub(crate) fn read_torrent(
    api: &mut Api,
    info_hash: &str,
) -> Result<HashMap<SocketAddr, (PeerState, u32)>> {
    let request = format!("GET /api/v1/torrents/{info_hash}?peers={LISTED_MAX}");
    let (status, text) = api.exchange(&request, "")?;
    if status == 404 {
        return Ok(HashMap::new());
    }
    ensure!(status == 200, "{request}: status {status}: {text}");
    let torrent: Value = serde_json::from_str(&text)?;
    let peers = torrent["peers"].as_array().context("no peers")?;
    let counts = ["seeders", "leechers"].map(|role| torrent[role].as_u64().unwrap_or_default());
    let all = counts.iter().sum::<u64>();
    ensure!(peers.len() as u64 == all, "{info_hash}: {} of {all} peers listed", peers.len());
    peers.iter().map(read_peer).collect()
}

fn read_peer(peer: &Value) -> Result<(SocketAddr, (PeerState, u32))> {
    let address = peer["address"].as_str().context("no address")?;
    let state = match peer["role"].as_str() {
        Some("seeder") => PeerState::Seeder,
        _ => PeerState::Leecher,
    };
    let age_s = peer["age_s"].as_u64().context("no age")?;
    Ok((address.parse()?, (state, u32::try_from(age_s)?)))
}

/// Compares the numbers of seeders and leechers of all torrents by scrapes. Returns in how many torrents
/// they differ, and the tracker's number of peers.
pub(crate) fn compare_counts(roster: &Roster, tracker: &Tracker) -> Result<(u64, u64)> {
    let scraped = roster.scrape(super::udp(tracker, Ipv4Addr::LOCALHOST)?)?;
    let mut expected = vec![(0, 0); scraped.len()];
    let mut uncertain = vec![0; scraped.len()];
    for peer in roster.peers() {
        let torrent = peer.torrent as usize;
        match peer.state {
            _ if peer.is_uncertain => uncertain[torrent] += 1,
            PeerState::Seeder => expected[torrent].0 += 1,
            PeerState::Leecher => expected[torrent].1 += 1,
            PeerState::Absent => {}
        }
    }
    let differs = |torrent: &usize| {
        let (found, expected) = (scraped[*torrent], expected[*torrent]);
        found.seeders.abs_diff(expected.0) + found.leechers.abs_diff(expected.1)
            > uncertain[*torrent]
    };
    let different = (0..scraped.len()).filter(differs).count();
    let peers = scraped.iter().map(|stats| stats.seeders + stats.leechers).sum();
    Ok((different as u64, peers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(state: PeerState, changed_ms: u64) -> (KnownPeer, Instant) {
        let start = Instant::now();
        let changed = start + Duration::from_millis(changed_ms);
        let known = KnownPeer {
            number: 0,
            torrent: 0,
            address: "127.0.0.1:1".parse().unwrap(),
            state,
            is_uncertain: false,
            may_be_younger: false,
            heard: changed,
            changed,
        };
        (known, start + Duration::from_secs(10))
    }

    fn compared(peer: (KnownPeer, Instant), found: Option<(PeerState, u32)>) -> SwarmComparison {
        let mut comparison = SwarmComparison::default();
        comparison.compare(&peer.0, found, peer.1, peer.1 + Duration::from_secs(2));
        comparison
    }

    #[test]
    fn peers_are_kept_or_lost() {
        use PeerState::{Absent, Leecher, Seeder};
        let kept = compared(peer(Seeder, 0), Some((Seeder, 30)));
        assert_eq!((kept.lost, kept.wrong_role, kept.kept_percent()), (0, 0, 100.0));
        assert_eq!(kept.older_s, 18.0);
        let lost = compared(peer(Leecher, 9_800), None);
        assert_eq!((lost.expected, lost.lost, lost.kept_percent()), (1, 1, 0.0));
        assert!((lost.oldest_lost_s - 0.2).abs() < 1e-9);
        assert_eq!(compared(peer(Leecher, 0), Some((Seeder, 0))).wrong_role, 1);
        assert_eq!(compared(peer(Leecher, 9_500), Some((Seeder, 0))).wrong_role, 0);
        let ghost = compared(peer(Absent, 8_000), Some((Seeder, 0)));
        assert_eq!(ghost.ghosts, 1);
        assert_eq!(compared(peer(Absent, 9_500), Some((Seeder, 0))).ghosts, 0);
        assert_eq!(compared(peer(Absent, 0), None), SwarmComparison::default());
        let mut unsure = peer(Leecher, 0);
        unsure.0.is_uncertain = true;
        assert_eq!(
            compared(unsure, None),
            SwarmComparison { uncertain: 1, ..SwarmComparison::default() }
        );
    }
}
