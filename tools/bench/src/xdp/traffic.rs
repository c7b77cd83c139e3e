//! The loads' frames. Connection ids come from the tracker under test, by ordinary sockets at the
//! clients' addresses; so any tracker can be loaded.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use primitives::Random;

use super::frames::{client as client_address, frame};
use super::generator::Slot;
use super::maps::{CLASS_SHIFT, SLOTS};
use super::network::{ADDRESS, Network};
use crate::datagrams::{self, ANNOUNCED, CONNECT};

/// Classes of frames.
pub(super) const CONNECTS: u8 = 1;
pub(super) const ANNOUNCES: u8 = 2;
pub(super) const HOSTILE: u8 = 3;
/// Announces among hostile ones.
pub(super) const HONEST: u8 = 4;

/// Every client is a peer of one of these torrents: 32 in each.
const TORRENTS: u32 = 512;
/// Peers that an announce asks for.
pub(super) const WANT: u32 = 30;
/// Ports of a class: from here on, this many.
const FIRST_PORT: u16 = 1024;
const PORTS: u16 = 1024;
/// Time for the witness' reply after the load.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two announces of the witness.
const WITNESS_EVERY: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadKind {
    Connects,
    Announces,
    /// As many connects as announces, in turn.
    Pairs,
    /// Announces with bad connection ids, and one honest one in 512 that shows how many are lost.
    BadIds,
}

impl LoadKind {
    pub(super) const ALL: [Self; 4] = [Self::Announces, Self::Connects, Self::Pairs, Self::BadIds];

    /// Returns its name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Announces => "announces",
            Self::Connects => "connects",
            Self::Pairs => "connects and announces, 1:1",
            Self::BadIds => "bad connection ids",
        }
    }
}

/// Clients with their connection ids.
pub(super) struct Clients {
    ids: Vec<u64>,
}

impl Clients {
    /// Has every client connect.
    pub(super) fn connect(network: &Network) -> Result<Self> {
        let clients = (0..SLOTS as u32).map(client_address);
        let ids = network.generator.run(|| clients.map(connect).collect::<Result<_>>())?;
        Ok(Self { ids })
    }

    /// Returns the frames of a load.
    pub(super) fn load(&self, load: LoadKind) -> Vec<Slot> {
        let slot = |client: usize| match load {
            LoadKind::Announces => self.announce(client, ANNOUNCES),
            LoadKind::Connects => self.connect_of(client, CONNECTS),
            LoadKind::Pairs if client.is_multiple_of(2) => self.connect_of(client, CONNECTS),
            LoadKind::Pairs => self.announce(client, ANNOUNCES),
            LoadKind::BadIds if client.is_multiple_of(512) => self.announce(client, HONEST),
            LoadKind::BadIds => self.bad_id(client),
        };
        (0..SLOTS).map(slot).collect()
    }

    fn announce(&self, client: usize, class: u8) -> Slot {
        self.slot(class, client, &announce(self.ids[client], client as u32))
    }

    fn connect_of(&self, client: usize, class: u8) -> Slot {
        self.slot(class, client, &CONNECT)
    }

    fn bad_id(&self, client: usize) -> Slot {
        let id = Random::new(client as u64 + 1).next();
        self.slot(HOSTILE, client, &announce(id, client as u32))
    }

    fn slot(&self, class: u8, client: usize, payload: &[u8]) -> Slot {
        let port = (u16::from(class) << CLASS_SHIFT) + FIRST_PORT + client as u16 % PORTS;
        let from = SocketAddrV4::new(client_address(client as u32), port);
        Slot { class, frame: frame(from, ADDRESS, payload) }
    }
}

pub(super) fn info_hash(client: u32) -> [u8; 20] {
    let mut random = Random::new(u64::from(client % TORRENTS) + 1);
    let mut hash = [0; 20];
    hash.fill_with(|| random.next() as u8);
    hash
}

/// Returns the info hashes of all torrents, in hex, one on each line.
pub(super) fn info_hashes() -> String {
    let hex = |torrent| info_hash(torrent).map(|byte| format!("{byte:02x}")).concat() + "\n";
    (0..TORRENTS).map(hex).collect()
}

/// Writes the announce of a leecher.
pub(super) fn announce(id: u64, client: u32) -> Vec<u8> {
    let mut packet = datagrams::announce(id, 0, info_hash(client));
    packet[36..56].copy_from_slice(format!("-TG0001-{client:012}").as_bytes());
    packet[92..96].copy_from_slice(&WANT.to_be_bytes());
    packet
}

fn socket(from: Ipv4Addr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0)).with_context(|| format!("cannot use {from}"))?;
    socket.connect(ADDRESS)?;
    Ok(socket)
}

/// Asks for the connection id of an address.
fn connect(from: Ipv4Addr) -> Result<u64> {
    datagrams::connect(&socket(from)?)
        .with_context(|| format!("the tracker does not answer at {ADDRESS}"))
}

/// Ordinary sockets that announce a few times a second beside the generator and check whole replies, so
/// that what is counted is known to be replies. The kernel has verified their checksums.
pub(super) struct Witness {
    sockets: Vec<(UdpSocket, u64)>,
    number: u32,
    /// Replies that were right.
    pub(super) verified: u64,
}

impl Witness {
    /// Connects. Must be called, as the rest, in the generator's namespace.
    pub(super) fn new() -> Result<Self> {
        // Other addresses than those of the generator's frames.
        let clients = (SLOTS as u32..).map(client_address).take(4);
        let open = |client| -> Result<_> {
            let (id, socket) = (connect(client)?, socket(client)?);
            socket.set_read_timeout(Some(WITNESS_EVERY))?;
            Ok((socket, id))
        };
        Ok(Self { sockets: clients.map(open).collect::<Result<_>>()?, number: 0, verified: 0 })
    }

    /// Announces, and checks the replies that arrive within [`WITNESS_EVERY`]. Fails if one is wrong.
    pub(super) fn ask(&mut self) -> Result<()> {
        self.number += 1;
        let (socket, id) = &self.sockets[self.number as usize % self.sockets.len()];
        let mut packet = announce(*id, self.number);
        packet[12..16].copy_from_slice(&self.number.to_be_bytes());
        // It will be asked again.
        let _ = socket.send(&packet);
        let (end, mut reply) = (Instant::now() + WITNESS_EVERY, [0; 2048]);
        while Instant::now() < end {
            let Ok(len) = socket.recv(&mut reply) else { continue };
            check(&reply[..len], self.number).context("the tracker sent a bad reply")?;
            self.verified += 1;
        }
        Ok(())
    }

    /// Announces until a reply has come. Fails if none does.
    pub(super) fn confirm(&mut self) -> Result<()> {
        let (before, end) = (self.verified, Instant::now() + PATIENCE);
        while self.verified == before {
            ensure!(Instant::now() < end, "the tracker does not answer after the load");
            self.ask()?;
        }
        Ok(())
    }
}

/// Checks the reply to one of the first `asked` announces.
fn check(reply: &[u8], asked: u32) -> Result<()> {
    let word = |at: usize| {
        let bytes = reply.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).context("it is too short")
    };
    if word(0)?.to_be_bytes() != ANNOUNCED {
        bail!("expected an announce's reply, found action {}", word(0)?);
    }
    ensure!((1..=asked).contains(&word(4)?), "unknown transaction id {}", word(4)?);
    let (interval, leechers, seeders) = (word(8)?, word(12)?, word(16)?);
    ensure!(interval > 0, "it has no interval");
    let all = reply.len() - 20;
    ensure!(all.is_multiple_of(6), "{all} bytes are no whole peers");
    let peers = all / 6;
    ensure!(peers as u32 <= WANT, "{peers} peers, and {WANT} were asked for");
    ensure!(peers as u32 <= leechers + seeders, "{peers} peers of {}", leechers + seeders);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        Clients { ids: (0..SLOTS as u64).collect() }
    }

    #[test]
    fn loads_have_the_frames_that_their_names_say() {
        let clients = clients();
        let count = |slots: &[Slot], class| slots.iter().filter(|slot| slot.class == class).count();
        for (load, class, of_it) in [
            (LoadKind::Connects, CONNECTS, SLOTS),
            (LoadKind::Announces, ANNOUNCES, SLOTS),
            (LoadKind::Pairs, CONNECTS, SLOTS / 2),
            (LoadKind::Pairs, ANNOUNCES, SLOTS / 2),
            (LoadKind::BadIds, HOSTILE, SLOTS - 32),
            (LoadKind::BadIds, HONEST, 32),
        ] {
            assert_eq!(count(&clients.load(load), class), of_it, "{load:?}");
        }
        let pair = &clients.load(LoadKind::Pairs)[..2];
        assert_eq!((pair[0].frame.len(), pair[1].frame.len()), (58, 140));
        // Source ports tell classes apart.
        assert!(pair.iter().all(|slot| slot.frame[34] >> 3 == slot.class));
    }

    #[test]
    fn replies_are_checked() {
        let reply = |words: [u32; 5], peers: usize| {
            let mut reply = words.map(u32::to_be_bytes).as_flattened().to_vec();
            reply.extend(vec![1; 6 * peers]);
            reply
        };
        check(&reply([1, 7, 1800, 30, 2], 30), 7).unwrap();
        for (bad, why) in [
            (reply([3, 7, 1800, 30, 2], 30), "found action 3"),
            (reply([1, 8, 1800, 30, 2], 30), "unknown transaction id 8"),
            (reply([1, 7, 0, 30, 2], 30), "no interval"),
            (reply([1, 7, 1800, 1, 1], 3), "3 peers of 2"),
            (vec![0, 0, 0, 1, 0, 0, 0, 1], "too short"),
        ] {
            let error = format!("{:#}", check(&bad, 7).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }
}
