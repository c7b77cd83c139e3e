//! Whether all nodes know the same peers: those that any of them has acknowledged.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use ::load::udp::{KnownPeer, PeerState, Roster};
use anyhow::{Result, bail};

use super::arrangement::TestCluster;
use super::history;
use crate::lab::Api;
use crate::swarms::read_torrent;

/// What a node has acknowledged in the last moments before it was killed can be lost.
const UNSENT_MAX: Duration = Duration::from_secs(1);
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
    /// Downloads by which nodes differ since a kill.
    downloads: u64,
}

/// A peer that a node knows otherwise than it should.
struct Difference {
    node: u8,
    peer: KnownPeer,
    found: PeerState,
}

/// How all nodes came to agree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreement {
    /// The time that it took.
    pub(super) after: Duration,
    /// Present peers that were compared.
    pub(super) peers: u64,
    /// Peers that were lost with killed nodes.
    pub(super) excused: u64,
    /// Downloads, by the node that has counted the most of each torrent.
    pub(super) downloads: u64,
}

impl Excuses {
    /// Notes that a node was killed now.
    pub(super) fn kill(&mut self) {
        self.kills.push(Instant::now());
    }

    fn has(&self, peer: &KnownPeer) -> bool {
        let is_unsent = |kill: &Instant| {
            let since = kill.checked_sub(UNSENT_MAX).unwrap_or(*kill);
            (since..*kill + UNSENT_MAX / 4).contains(&peer.heard)
        };
        self.peers.contains(&peer.number) || self.kills.iter().any(is_unsent)
    }
}

/// Waits until all nodes that run know what the roster knows. The roster must be silent.
pub(super) fn wait(
    cluster: &TestCluster,
    roster: &Roster,
    excuses: &mut Excuses,
    patience: Duration,
) -> Result<Agreement> {
    let began = Instant::now();
    loop {
        let (peers, differences) = differences(cluster, roster)?;
        let serious: Vec<_> = differences.iter().filter(|it| !excuses.has(&it.peer)).collect();
        if serious.is_empty() {
            let counts = downloads(cluster, roster)?;
            let most = |counts: &Vec<u32>| u64::from(counts.iter().copied().max().unwrap_or(0));
            let downloads = counts.iter().map(most).sum();
            let different = counts.iter().map(|it| spread(it)).sum();
            let is_late = began.elapsed() > patience;
            if different <= excuses.downloads || !excuses.kills.is_empty() {
                excuses.peers = differences.iter().map(|it| it.peer.number).collect();
                excuses.downloads = different;
                excuses.kills.clear();
                let excused = excuses.peers.len() as u64;
                return Ok(Agreement { after: began.elapsed(), peers, excused, downloads });
            }
            if is_late {
                // The next step begins with these.
                excuses.downloads = different;
                bail!(
                    "nodes differ by {different} of {downloads} downloads after {patience:?}: {}",
                    different_downloads(cluster, roster, &counts)
                );
            }
        } else if began.elapsed() > patience {
            let some: Vec<_> = serious.iter().take(LISTED).map(|it| it.text(began)).collect();
            let kinds = kinds(&serious);
            let history = serious.first().map(|it| history(cluster, roster, &it.peer));
            excuses.peers.extend(serious.iter().map(|it| it.peer.number));
            bail!(
                "of {peers} peers differ after {patience:?}: {kinds}. {}\n{}",
                some.join("; "),
                history.unwrap_or_default()
            );
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
        let scraped = roster.scrape_at(TestCluster::udp(node)[0])?;
        counts.iter_mut().zip(scraped).for_each(|(all, [_, count, _])| all.push(count));
    }
    Ok(counts)
}

/// Returns by how many nodes differ of a torrent's downloads.
fn spread(counts: &[u32]) -> u64 {
    let (low, high) = (counts.iter().min(), counts.iter().max());
    high.zip(low).map_or(0, |(high, low)| u64::from(high - low))
}

/// Returns what nodes have counted of torrents by which they differ, and what the log says of the first one.
fn different_downloads(cluster: &TestCluster, roster: &Roster, counts: &[Vec<u32>]) -> String {
    let different = || (0..).zip(counts).filter(|(_, counts)| spread(counts) > 0);
    let some: Vec<String> = different()
        .take(LISTED)
        .map(|(torrent, counts): (u32, _)| format!("torrent {torrent}: {counts:?}"))
        .collect();
    let Some((torrent, _)) = different().next() else { return String::new() };
    let lines = history::of_downloads(cluster, &roster.info_hash(torrent));
    format!("{}\nWhat the log says of torrent {torrent}:\n{}", some.join("; "), joined(lines))
}

/// Returns what the log says of a peer.
fn history(cluster: &TestCluster, roster: &Roster, peer: &KnownPeer) -> String {
    let lines = history::of_peer(cluster, &roster.info_hash(peer.torrent), peer.address);
    format!("What the log says of {}:\n{}", peer.address, joined(lines))
}

fn joined(lines: Result<Vec<String>>) -> String {
    lines.map_or_else(|error| format!("cannot read the log: {error:#}"), |it| it.join("\n"))
}

/// Counts differences by node, and by what was found in place of what.
fn kinds(differences: &[&Difference]) -> String {
    let mut counts = BTreeMap::new();
    for Difference { node, peer, found } in differences {
        let kind = format!("at node {node} {found:?} for {:?}", peer.state);
        *counts.entry(kind).or_insert(0) += 1;
    }
    let counts = counts.into_iter().map(|(kind, count)| format!("{count} {kind}"));
    counts.collect::<Vec<String>>().join(", ")
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
            _ => write!(f, ", but {excused} that went with a killed node"),
        }
    }
}
