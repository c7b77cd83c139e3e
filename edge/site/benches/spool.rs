//! Measures the bytes of the spool for each announce while nothing takes its batches, and what an hour of 5,000 announces
//! per second takes: `cargo bench -p tidegate-site --bench spool`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::net::IpAddr;

use harness::Directory;
use primitives::Random;
use tidegate_site::batch::Batch;
use tidegate_site::credit::Factors;
use tidegate_site::ledger::{Ledger, LedgerLimits, Report, Terms};
use tidegate_site::spool::Spool;
use types::{Event, PeerId};

const PER_S: u32 = 5_000;
const FLUSH_S: u32 = 3;
/// Seconds between two announces of a client.
const INTERVAL_S: u32 = 120;
/// Seconds that are played: the first interval fills the ledger.
const SECONDS: u32 = 3 * INTERVAL_S;
const USERS: u32 = 100_000;
const TORRENTS: u32 = 50_000;
const START_S: u32 = 1_800_000_000;
const AGENTS: [&str; 5] = [
    "qBittorrent/4.6.5",
    "Transmission/4.0.5",
    "uTorrent/355(46020)",
    "Deluge/2.1.1",
    "rtorrent/0.9.8",
];

/// A client of a user in a torrent.
struct Client {
    user: u32,
    torrent: u32,
    ip: IpAddr,
    uploaded: u64,
    peer_id: PeerId,
    agent: &'static str,
    left: u64,
}

fn main() {
    let folder = Directory::new().expect("a folder for the spool");
    let mut spool =
        Spool::open(&folder.path("site"), 1, 1 << 20, &mut |_| {}).expect("a new spool");
    let ledger = Ledger::new(LedgerLimits::default());
    let mut random = Random::new(1);
    let mut clients: Vec<Client> = (0..PER_S * INTERVAL_S).map(|_| client(&mut random)).collect();
    let mut before = 0;
    for second in 0..SECONDS {
        let first = (second % INTERVAL_S * PER_S) as usize;
        for client in &mut clients[first..first + PER_S as usize] {
            announce(&ledger, client, second, &mut random);
        }
        if second % FLUSH_S == FLUSH_S - 1 {
            let mut batch = ledger.cut_into(Batch::default(), START_S + second, None);
            spool.append(&mut batch).expect("the disk has room");
        }
        if second + 1 == INTERVAL_S {
            before = spool.bytes();
        }
    }
    let increments = u64::from((SECONDS - INTERVAL_S) * PER_S);
    let bytes = (spool.bytes() - before) as f64 / increments as f64;
    let hour_mib = bytes * f64::from(PER_S) * 3_600.0 / f64::from(1 << 20);
    println!("{increments} increments in batches of {FLUSH_S} s: {bytes:.1} bytes each");
    println!("an hour at {PER_S}/s: {hour_mib:.0} MiB");
    let before = spool.bytes();
    let mut snapshot = spool.begin_snapshot(START_S + SECONDS).expect("the disk has room");
    let mut batch = ledger.cut_into(Batch::default(), START_S + SECONDS, Some(&mut snapshot));
    spool.append(&mut batch).expect("the disk has room");
    spool.finish_snapshot(snapshot).expect("the disk has room");
    let bytes = (spool.bytes() - before) as f64 / ledger.sessions() as f64;
    println!("a snapshot of {} sessions: {bytes:.1} bytes each", ledger.sessions());
}

fn client(random: &mut Random) -> Client {
    let number = random.below(AGENTS.len() as u32) as usize;
    let prefix: [&[u8; 8]; 5] = [b"-qB4650-", b"-TR4050-", b"-UT355W-", b"-DE2110-", b"-lt0D80-"];
    let mut id = [0; 20];
    id[..8].copy_from_slice(prefix[number]);
    // Letters and digits, as clients choose them.
    for byte in &mut id[8..] {
        *byte = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
            [random.below(62) as usize];
    }
    let is_seeder = random.below(10) > 0;
    Client {
        user: random.below(USERS),
        torrent: random.below(TORRENTS),
        ip: IpAddr::from((random.next() as u32).to_be_bytes()),
        uploaded: 0,
        peer_id: PeerId(id),
        agent: AGENTS[number],
        left: if is_seeder { 0 } else { 1 << 30 },
    }
}

fn announce(ledger: &Ledger, client: &mut Client, second: u32, random: &mut Random) {
    // Most seeders of a private site have no leecher at the moment.
    if random.below(4) == 0 {
        client.uploaded += u64::from(random.next() as u32 >> 4);
    }
    let report = Report {
        user: client.user,
        torrent: client.torrent,
        peer_id: client.peer_id,
        ip: client.ip,
        port: 6_881,
        event: Event::None,
        uploaded: client.uploaded,
        downloaded: 0,
        left: Some(client.left),
        agent: client.agent.as_bytes(),
        now_s: START_S + second,
    };
    let terms = Terms {
        factors: Factors::PLAIN,
        uses_token: false,
        immune: false,
        slots: None,
        clients: u16::MAX,
        visible: true,
        hides_address: false,
    };
    ledger.announce(&report, &terms).expect("there is room for all clients");
}
