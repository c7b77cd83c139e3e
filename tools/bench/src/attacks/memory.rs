//! Millions of invented torrents from one address, announced again and again, beside a real torrent.
//!
//! Intervals are short, so that peers that the tracker forgets under pressure would be forgotten within
//! the attack.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::proxied::{Announce, Client, Proxy, SETTINGS, honest};
use super::{HELD, HONEST, MEMORY_MIB, Outcome, Target, report_progress};
use crate::figures::{count, percent};
use crate::lab::Api;
use crate::record::Figures;

const HONEST_PEERS: u32 = 10_000;
/// Honest peers announce at this interval, spread evenly.
const INTERVAL: Duration = Duration::from_secs(60);
const SETTINGS_OF_MEMORY: [(&str, &str); 6] = [
    ("TIDEGATE_LIMITS__MEMORY_MIB", "256"),
    // The bounds on memory are measured by themselves, without the rates of requests.
    ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", "0"),
    ("TIDEGATE_LIMITS__CONNECTS_PER_S", "0"),
    ("TIDEGATE_TRACKER__INTERVAL_S", "60"),
    ("TIDEGATE_TRACKER__INTERVAL_MIN_S", "30"),
    ("TIDEGATE_TRACKER__PEER_LIFETIME_S", "120"),
];
/// A connection id is valid for at least two minutes.
const ID_AGE_MAX: Duration = Duration::from_secs(100);
const BATCH: u32 = 64;

/// A torrent with honest peers, who announce in turn.
struct Swarm {
    info_hash: [u8; 20],
    /// The number of the first peer's address.
    first: u32,
    peers: Vec<Option<(Client, Instant)>>,
    began: Instant,
    announced: u64,
}

/// Announces for invented torrents from one address.
struct Junk {
    address: SocketAddr,
    client: (Client, Instant),
    torrents: u32,
    announced: u64,
}

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let mut settings = SETTINGS.to_vec();
    settings.extend(SETTINGS_OF_MEMORY);
    let (tracker, api) = target.start(&settings)?;
    // It would be closed as idle before the end.
    drop(api);
    let (proxy, junk_proxy) = (Proxy::new(tracker.address)?, Proxy::new(tracker.address)?);
    let mut stays = Swarm::new([0x11; 20], 0);
    stays.announce_until(&proxy, HONEST_PEERS.into())?;
    stays.began = Instant::now();
    stays.announced = 0;
    let mut joins = None;
    let mut junk = Junk::new(&junk_proxy, target.invented)?;
    // Every invented torrent twice, and two intervals at least.
    let began = Instant::now();
    while junk.announced < 2 * u64::from(junk.torrents) || began.elapsed() < 2 * INTERVAL {
        junk.step(&junk_proxy)?;
        stays.announce_when_due(&proxy)?;
        if junk.announced >= u64::from(junk.torrents) {
            joins
                .get_or_insert_with(|| Swarm::new([0x22; 20], 1 << 14))
                .announce_when_due(&proxy)?;
        }
        if junk.announced.is_multiple_of(1 << 20) {
            report_progress(&format!(
                "{} announces of invented torrents",
                count(junk.announced as f64)
            ));
        }
    }
    let mut joins = joins.unwrap_or_else(|| Swarm::new([0x22; 20], 1 << 14));
    joins.announce_until(&proxy, HONEST_PEERS.into())?;
    let memory = tracker.usage()?.resident_bytes as f64 / f64::from(1 << 20);
    // Gauges are published a few times a second.
    std::thread::sleep(Duration::from_secs(2));
    let torrents = Api::open(target.admin)?.metric("tidegate_torrents", &[])?;
    let case = |case, part: f64| {
        let figures =
            Figures::default().with(HONEST, part).with(HELD, torrents).with(MEMORY_MIB, memory);
        let held = count(torrents);
        (
            case,
            figures,
            format!("{} of the honest peers, {held} torrents, {memory:.0} MiB", percent(part)),
        )
    };
    Ok(vec![
        case("memory, peers that stay", stays.kept(&proxy)?),
        case("memory, peers that join", joins.kept(&proxy)?),
    ])
}

impl Swarm {
    fn new(info_hash: [u8; 20], first: u32) -> Self {
        let peers = vec![None; HONEST_PEERS as usize];
        Self { info_hash, first, peers, began: Instant::now(), announced: 0 }
    }

    /// Announces the peers whose time has come.
    fn announce_when_due(&mut self, proxy: &Proxy) -> Result<()> {
        let rounds = self.began.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
        self.announce_until(proxy, (rounds * f64::from(HONEST_PEERS)) as u64)
    }

    fn announce_until(&mut self, proxy: &Proxy, announced: u64) -> Result<()> {
        while self.announced < announced {
            let number = (self.announced % u64::from(HONEST_PEERS)) as u32;
            self.announced += 1;
            let address = honest(self.first + number, true);
            let peer = &mut self.peers[number as usize];
            let client = match *peer {
                Some((client, since)) if since.elapsed() < ID_AGE_MAX => client,
                _ => proxy.connect(address)?,
            };
            peer.get_or_insert((client, Instant::now())).0 = client;
            // The first one is a seeder.
            let left = u64::from(number > 0);
            proxy.announce(client, Announce { info_hash: self.info_hash, left, want: 0 })?;
        }
        Ok(())
    }

    /// Returns which part of the peers the tracker knows.
    fn kept(&self, proxy: &Proxy) -> Result<f64> {
        let asker = proxy.connect(honest(self.first + HONEST_PEERS, true))?;
        let announce = Announce { info_hash: self.info_hash, left: 1, want: 1 };
        let answer = proxy.announce(asker, announce)?;
        // The asker counts itself, if it was stored.
        let known = f64::from(answer.leechers + answer.seeders).min(f64::from(HONEST_PEERS));
        Ok(known / f64::from(HONEST_PEERS))
    }
}

impl Junk {
    fn new(proxy: &Proxy, torrents: u32) -> Result<Self> {
        let address = SocketAddr::from(([93, 184, 216, 34], 6881));
        Ok(Self {
            address,
            client: (proxy.connect(address)?, Instant::now()),
            torrents,
            announced: 0,
        })
    }

    fn step(&mut self, proxy: &Proxy) -> Result<()> {
        if self.client.1.elapsed() > ID_AGE_MAX {
            self.client = (proxy.connect(self.address)?, Instant::now());
        }
        let first = self.announced;
        let (client, torrents) = (self.client.0, u64::from(self.torrents));
        proxy.announce_all((first..first + u64::from(BATCH)).map(|number| {
            let mut info_hash = [0x33; 20];
            info_hash[..8].copy_from_slice(&(number % torrents).to_be_bytes());
            (client, Announce { info_hash, left: 1, want: 0 })
        }))?;
        self.announced += u64::from(BATCH);
        Ok(())
    }
}
