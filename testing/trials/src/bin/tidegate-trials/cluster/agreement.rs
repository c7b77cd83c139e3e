//! Agreement of all nodes: they know the peers that any of them has acknowledged, and their downloads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench::Api;
use bench::cluster::{PATIENCE, PEER_LIFETIME, TestCluster};
use load::udp::{KnownPeer, PeerState, Roster};

use crate::swarms::read_torrent;

/// Longest time before a node is killed in which its acknowledged changes can be lost.
const UNSENT_MAX: Duration = Duration::from_secs(1);
/// The same for downloads: `state.flush_s` is 5, and nodes send no count that is not stored.
const UNSAVED_MAX: Duration = Duration::from_secs(6);
/// Peers that are nearly as old as peers become may have expired at some nodes: ages have units of 16 s.
const EXPIRY_MARGIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Differences that an error lists.
const LISTED: usize = 5;

/// Nodes that were killed, and peers that may be lost with them.
#[derive(Default)]
pub(super) struct Excuses {
    kills: Vec<Instant>,
    /// Numbers of peers that differ since a kill. They are right again when they announce next.
    peers: HashSet<u32>,
    /// All kills, whose last downloads may be lost for good.
    all_kills: Vec<Instant>,
}

/// A peer that a node knows otherwise than it should.
struct Difference {
    node: u8,
    peer: KnownPeer,
    found: PeerState,
}

/// Agreement that all nodes have reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreement {
    /// The time that it took.
    pub(super) after: Duration,
    /// Present peers that were compared.
    pub(super) peers: u64,
    /// Peers that may have expired, or were lost with killed nodes.
    pub(super) excused: u64,
    /// Downloads, which all nodes have counted alike.
    pub(super) downloads: u64,
}

impl Excuses {
    /// Notes that a node was killed now.
    pub(super) fn kill(&mut self) {
        self.kills.push(Instant::now());
        self.all_kills.push(Instant::now());
    }

    /// Returns true if the peer may be unknown: it went with a node that was killed, or is as old as peers become.
    fn has(&self, peer: &KnownPeer) -> bool {
        let has_expired = peer.heard.elapsed() > PEER_LIFETIME.saturating_sub(EXPIRY_MARGIN);
        let is_unsent = |kill: &Instant| was_unsent(*kill, UNSENT_MAX, peer.heard);
        let is_lost = self.peers.contains(&peer.number) || self.kills.iter().any(is_unsent);
        is_lost || has_expired && peer.state != PeerState::Absent
    }
}

/// Returns true if a node that was killed may not have sent what it acknowledged at a time.
fn was_unsent(kill: Instant, unsent_max: Duration, heard: Instant) -> bool {
    let since = kill.checked_sub(unsent_max).unwrap_or(kill);
    (since..kill + UNSENT_MAX / 4).contains(&heard)
}

/// Waits until all nodes that run know what the roster knows. The roster must be silent.
pub(super) fn wait(
    cluster: &TestCluster,
    roster: &Roster,
    excuses: &mut Excuses,
) -> Result<Agreement> {
    let began = Instant::now();
    loop {
        let (peers, differences) = differences(cluster, roster)?;
        let serious: Vec<_> = differences.iter().filter(|it| !excuses.has(&it.peer)).collect();
        if serious.is_empty() {
            let downloads = downloads(cluster, roster)?;
            let wrong = wrong_downloads(&downloads, &expected_downloads(roster, excuses));
            if wrong.is_empty() {
                excuses.peers = differences.iter().map(|it| it.peer.number).collect();
                excuses.kills.clear();
                let excused = excuses.peers.len() as u64;
                let counted = |counts: &Vec<u32>| u64::from(counts.first().copied().unwrap_or(0));
                let downloads = downloads.iter().map(counted).sum();
                return Ok(Agreement { after: began.elapsed(), peers, excused, downloads });
            }
            if began.elapsed() > PATIENCE {
                let some = wrong[..wrong.len().min(LISTED)].join("; ");
                bail!("downloads of {} torrents are wrong after {PATIENCE:?}: {some}", wrong.len());
            }
        } else if began.elapsed() > PATIENCE {
            let some: Vec<_> = serious.iter().take(LISTED).map(|it| it.text(began)).collect();
            let count = serious.len();
            excuses.peers.extend(serious.iter().map(|it| it.peer.number));
            bail!("{count} of {peers} peers differ after {PATIENCE:?}: {}", some.join("; "));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns the number of present peers, and what differs at any node.
fn differences(cluster: &TestCluster, roster: &Roster) -> Result<(u64, Vec<Difference>)> {
    let mut torrents: BTreeMap<u32, Vec<KnownPeer>> = BTreeMap::new();
    for peer in roster.peers() {
        torrents.entry(peer.torrent).or_default().push(peer);
    }
    let present = roster.peers().filter(|peer| peer.state != PeerState::Absent).count() as u64;
    let mut all = Vec::new();
    for node in cluster.running() {
        let mut api = Api::open(TestCluster::api(node))?;
        for (torrent, peers) in &torrents {
            let hash = roster.info_hash(*torrent).to_string();
            let found: HashMap<_, _> = read_torrent(&mut api, &hash)?;
            let state = |peer: &KnownPeer| {
                found.get(&peer.address).map_or(PeerState::Absent, |(state, _)| *state)
            };
            let differs = |peer: &&KnownPeer| !peer.is_uncertain && state(peer) != peer.state;
            let difference =
                |peer: &KnownPeer| Difference { node, peer: *peer, found: state(peer) };
            all.extend(peers.iter().filter(differs).map(difference));
        }
    }
    Ok((present, all))
}

/// Returns the downloads of each torrent, as each node has counted them.
fn downloads(cluster: &TestCluster, roster: &Roster) -> Result<Vec<Vec<u32>>> {
    let mut counts = vec![Vec::new(); roster.torrents() as usize];
    for node in cluster.running() {
        let scraped = roster.scrape(TestCluster::udp(node)[0])?;
        for (all, stats) in counts.iter_mut().zip(scraped) {
            all.push(u32::try_from(stats.downloads.unwrap_or_default())?);
        }
    }
    Ok(counts)
}

/// Returns how many downloads of each torrent all nodes must have counted. At least those that were acknowledged, but
/// for the last ones of a node that was killed. A later download of a peer counts only if the node knew that the peer had
/// begun again.
fn expected_downloads(roster: &Roster, excuses: &Excuses) -> Vec<RangeInclusive<u32>> {
    let mut expected = vec![0..=0; roster.torrents() as usize];
    for download in roster.downloads() {
        let Some(range) = expected.get_mut(download.torrent as usize) else { continue };
        let is_unsent = |kill: &Instant| was_unsent(*kill, UNSAVED_MAX, download.at);
        let is_lost = excuses.all_kills.iter().any(is_unsent);
        let is_certain = download.is_acknowledged && download.is_first && !is_lost;
        *range = range.start() + u32::from(is_certain)..=range.end() + 1;
    }
    expected
}

/// Describes the torrents whose downloads differ between nodes, or from what was announced.
fn wrong_downloads(all: &[Vec<u32>], expected: &[RangeInclusive<u32>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (torrent, (counts, expected)) in all.iter().zip(expected).enumerate() {
        let is_right = |count: &u32| expected.contains(count) && Some(count) == counts.first();
        if !counts.iter().all(is_right) {
            wrong.push(format!("torrent {torrent}: {counts:?}, expected {expected:?}"));
        }
    }
    wrong
}

impl Difference {
    fn text(&self, now: Instant) -> String {
        let Self { node, peer, found } = self;
        let ago = now.saturating_duration_since(peer.heard).as_secs_f64();
        let address = peer.address;
        format!(
            "node {node} has {address} of torrent {} as {found:?}, expected {:?}, heard {ago:.1} s ago",
            peer.torrent, peer.state
        )
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, peers, excused, downloads } = self;
        let after = after.as_secs_f64();
        write!(f, "{peers} peers and {downloads} downloads equal everywhere after {after:.1} s")?;
        match excused {
            0 => Ok(()),
            _ => write!(f, ", but {excused} that expired or went with a killed node"),
        }
    }
}
