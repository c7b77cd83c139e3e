//! Clients of UDP on one host of a network, a tracker with one of the engines on another.

use super::network::Family::{self, V4, V6};
use super::peer::{Client, Peer, TRANSFER_MAX};
use super::torrent::Torrent;
use crate::tracker::{self, Counts};
use anyhow::{Context, Result, ensure};
use harness::network::{self, Network, NetworkOptions};
use harness::{PATIENCE, Process, Tracker, wait_for};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The way in which the tracker receives and sends datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Mmsg,
    Shield,
    /// `xdp`, in the driver.
    XdpDriver,
    /// `xdp`, in the generic path.
    XdpGeneric,
}

/// Pairs of clients, which transfer a torrent each at the same time.
const PAIRS: [(Client, Family); 4] = [
    (Client::Libtorrent, V4),
    (Client::Libtorrent, V6),
    (Client::Aria2, V4),
    (Client::Transmission, V4),
];
const PORT: u16 = 6969;

/// Starts of the same client, one after the other.
const RESTARTS_MAX: u32 = 5;

/// A torrent, and its peers.
struct Transfer {
    torrent: Torrent,
    /// The first seeds.
    peers: [Peer; 2],
}

/// Has all pairs transfer their torrents. Does nothing without the rights to set up a network.
pub(super) fn play(engine: Engine, folder: &Path) -> Result<()> {
    if let Some(obstacle) = Network::obstacle() {
        println!("skipped {obstacle}: clients over a network with {engine:?}");
        return Ok(());
    }
    let network = Network::new(NetworkOptions::default())?;
    let _inside = network.clients.enter()?;
    let tracker = tracker::start_in(&network.tracker, folder, &engine.configuration())?;
    let transfers = (0..).zip(PAIRS);
    let transfers = transfers.map(|(number, pair)| Transfer::set_up(number, pair, folder));
    let transfers: Vec<Transfer> = transfers.collect::<Result<_>>()?;
    let mut seeders = start(&transfers, 0)?;
    let announced = Counts { complete: 1, downloaded: 0, incomplete: 0 };
    for (transfer, seeder) in transfers.iter().zip(&mut seeders) {
        transfer.wait_by(0, seeder, || transfer.has_counts(announced))?;
    }
    let mut leechers = start(&transfers, 1)?;
    for (transfer, leecher) in transfers.iter().zip(&mut leechers) {
        let folder = &transfer.peers[1].folder;
        transfer.wait_by(1, leecher, || Ok(transfer.torrent.is_complete(folder)))?;
    }
    wait_for_counts(&transfers, Counts { complete: 2, downloaded: 1, incomplete: 0 })?;
    drop((seeders, leechers));
    engine.check(&tracker)?;
    tracker.stop()
}

fn start(transfers: &[Transfer], peer: usize) -> Result<Vec<Process>> {
    transfers.iter().map(|transfer| transfer.peers[peer].start(true)).collect()
}

fn wait_for_counts(transfers: &[Transfer], expected: Counts) -> Result<()> {
    for transfer in transfers {
        wait_for(TRANSFER_MAX, "the scrape", || transfer.has_counts(expected))
            .with_context(|| format!("{:?}", transfer.peers[0].client))?;
    }
    Ok(())
}

impl Transfer {
    fn set_up(number: u8, (client, family): (Client, Family), folder: &Path) -> Result<Self> {
        let tracker: IpAddr = match family {
            V4 => network::tracker(1).into(),
            V6 => network::tracker_v6(1).into(),
        };
        let url = format!("udp://{}/announce", SocketAddr::new(tracker, PORT));
        let torrent = Torrent::with_content(&url, number.into());
        let peer = |name: &str, host: u8| {
            let address = match family {
                V4 => network::client(host).into(),
                V6 => network::client_v6(host).into(),
            };
            Peer::create(folder, &format!("{name}{number}"), client, address, &torrent)
        };
        let peers = [peer("seeder", 2 * number + 1)?, peer("leecher", 2 * number + 2)?];
        torrent.fill(&peers[0].folder)?;
        Ok(Self { torrent, peers })
    }

    fn has_counts(&self, expected: Counts) -> Result<bool> {
        let at = SocketAddr::new(network::tracker(1).into(), PORT);
        let found = tracker::scrape(at, "/scrape", &self.torrent.info_hash)?;
        ensure!(found == expected, "expected {expected:?}, found {found:?}");
        Ok(true)
    }

    /// Waits for what a client does, and starts it again if it ends. Transmission ends if it looks at its
    /// torrent before that has started.
    fn wait_by(
        &self,
        peer: usize,
        process: &mut Process,
        mut is_done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let peer = &self.peers[peer];
        let mut restarts = 0;
        let is_done = || {
            if restarts < RESTARTS_MAX && process.check().is_err() {
                *process = peer.start(true)?;
                restarts += 1;
            }
            is_done()
        };
        wait_for(TRANSFER_MAX, "the client", is_done)
            .with_context(|| format!("{:?} at {}", peer.client, peer.address))
    }
}

impl Engine {
    fn configuration(self) -> String {
        let (engine, mode) = match self {
            Self::Mmsg => ("mmsg", None),
            Self::Shield => ("shield", Some("driver")),
            Self::XdpDriver => ("xdp", Some("driver")),
            Self::XdpGeneric => ("xdp", Some("generic")),
        };
        let mode = mode.map(|mode| format!("[xdp]\nmode = \"{mode}\"\nrequired = true\n"));
        let (v4, v6) = (network::tracker(1), network::tracker_v6(1));
        let listen = format!("listen = [\"{v4}:{PORT}\", \"[{v6}]:{PORT}\"]\n");
        format!(
            "[udp]\n{listen}engine = \"{engine}\"\n[http]\n{listen}[admin]\nlisten = [\"{v4}:0\"]\n{}",
            mode.unwrap_or_default()
        )
    }

    /// Checks that the clients were answered by this engine.
    fn check(self, tracker: &Tracker) -> Result<()> {
        let frames = |result| tracker.metric("tidegate_xdp_frames_total", &[("result", result)]);
        if self == Self::Mmsg {
            return Ok(());
        }
        wait_for(PATIENCE, "the program's counts", || Ok(frames("connect")? >= 8.0))?;
        let steered = frames("steered")?;
        let is_xdp = self != Self::Shield;
        ensure!((steered > 0.0) == is_xdp, "{self:?}: {steered} frames to AF_XDP sockets");
        Ok(())
    }
}
