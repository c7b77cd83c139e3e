//! Code that `crash`, `restart` and `cluster` share: a tracker with a journal, and a roster of peers that announce to
//! it.
//!
//! ```text
//! roster ── announces ─▶ tracker ─▶ kill, restart ─▶ tracker
//!    └──── what was acknowledged ─▶ comparison ◀── API, scrapes ─┘
//! ```

mod comparison;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::Api;
use bench::figures::count;
use bench::session::print_line;
use clap::{Args, value_parser};
use harness::{PATIENCE, Tracker, wait_for};
use load::udp::{Roster, RosterOptions, RosterRun, RosterTask};
use load::{Counters, Usage};

pub(crate) use comparison::{SwarmComparison, compare, compare_counts, read_torrent};

/// Options of the roster of peers.
#[derive(Args, Clone, Debug)]
pub(crate) struct RosterArgs {
    /// Torrents [default: a fifth of the peers].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    torrents: Option<u32>,
    /// Of a thousand announces of present peers, those that stop or complete a download.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(0..=1000))]
    changes: u32,
}

/// Time until a request counts as unanswered: longer than any pause that a tracker may take.
const UNANSWERED_AFTER: Duration = Duration::from_secs(5);
/// The most peers of a torrent that the API lists.
const LISTED_MAX: u32 = 1000;
/// Peers of a torrent whose peers are compared one by one. A few more may be drawn.
const TORRENT_PEERS_MAX: u32 = LISTED_MAX / 10 * 9;
/// Peers of each socket: fewer sockets send larger batches.
const SOCKET_PEERS: u32 = 50_000;
const SOCKETS_MIN: u32 = 32;
/// A tracker has restored everything when its counts have not changed for this long.
const STEADY: Duration = Duration::from_secs(1);

impl RosterArgs {
    /// Returns a roster of this many peers. If there are millions of them, torrents may have more peers
    /// than the API lists.
    pub(crate) fn roster(&self, peers: u32) -> Result<Roster> {
        let torrents = self.torrents.unwrap_or(peers / 5).max(1);
        Roster::new(&RosterOptions {
            torrents,
            peers,
            torrent_peers_max: if peers > 2_000_000 { u32::MAX } else { TORRENT_PEERS_MAX },
            sockets: SOCKETS_MIN.max(peers.div_ceil(SOCKET_PEERS)),
            outstanding: if peers > 100_000 { 2048 } else { 512 },
            changes_permille: self.changes,
            want: 30,
            ..RosterOptions::default()
        })
    }
}

/// Returns a tracker's configuration: UDP, management, records and the journal in a folder, and more lines
/// of `[state]`.
pub(crate) fn configuration(folder: &Path, more: &str) -> String {
    let state = folder.join("state");
    format!(
        "[udp]\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\n[http]\nlisten = []\n\
         [admin]\nlisten = [\"127.0.0.1:0\"]\nrequests_per_s = 0\n\
         [limits]\nexempt = [\"127.0.0.0/8\", \"::1\"]\n\
         [state]\ndir = {state:?}\n{more}"
    )
}

/// Connects a roster to a tracker's UDP sockets.
pub(crate) fn connect(roster: &mut Roster, tracker: &Tracker) -> Result<()> {
    roster.connect(&[&[udp(tracker, Ipv4Addr::LOCALHOST)?, udp(tracker, Ipv6Addr::LOCALHOST)?]])
}

/// Returns the address of the tracker's UDP socket at an IP address.
fn udp(tracker: &Tracker, ip: impl Into<IpAddr>) -> Result<SocketAddr> {
    tracker.address("udp", ip.into()).context("no UDP socket")
}

/// Returns the address of the tracker's API.
pub(crate) fn api(tracker: &Tracker) -> Result<SocketAddr> {
    tracker.admin_address().context("no admin listener")
}

/// Has all absent peers start.
pub(crate) fn fill(roster: &mut Roster) -> Result<()> {
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    roster.run(&RosterRun {
        task: RosterTask::Fill,
        stop: &stop,
        // Requests that a busy tracker drops are sent again.
        timeout: Duration::from_secs(1),
        patience: UNANSWERED_AFTER,
    })?;
    let present = count(roster.present().into());
    print_line(&format!("{present} peers in {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// Has a roster announce until `act` returns. Returns the counters and what `act` returned. `patience` is for the last
/// answers.
pub(crate) fn announce_while<T>(
    roster: &mut Roster,
    task: RosterTask,
    patience: Duration,
    act: impl FnOnce() -> Result<T>,
) -> Result<(Counters, T)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let run = RosterRun { task, stop: &stop, timeout: UNANSWERED_AFTER, patience };
        let announcing = scope.spawn(move || roster.run(&run));
        let acted = act();
        stop.store(true, Ordering::Relaxed);
        let counters = announcing.join().ok().context("the roster panicked")??;
        Ok((counters, acted?))
    })
}

/// Longest wait for the last answers of a tracker that serves.
pub(crate) const PATIENT: Duration = UNANSWERED_AFTER;

/// Waits until a tracker's counts of peers stay the same.
pub(crate) fn wait_until_restored(tracker: &Tracker) -> Result<()> {
    let mut last = (f64::NAN, Instant::now());
    wait_for(PATIENCE, "the swarms to be restored", || {
        let peers = Api::open(api(tracker)?)?.metric("tidegate_peers", &[])?;
        if peers != last.0 {
            last = (peers, Instant::now());
        }
        Ok(last.1.elapsed() >= STEADY)
    })
}

/// Returns the bytes of the journal on the disk.
pub(crate) fn journal_bytes(folder: &Path) -> Result<u64> {
    let swarms = folder.join("state/swarms");
    let mut bytes = 0;
    for entry in fs::read_dir(&swarms).with_context(|| format!("no {}", swarms.display()))? {
        // A segment may be deleted meanwhile.
        bytes += entry?.metadata().map_or(0, |file| file.len());
    }
    Ok(bytes)
}

/// Returns the resident memory of the process that serves.
pub(crate) fn resident_bytes(tracker: &Tracker) -> Result<u64> {
    // A process that has taken over is a child of the launcher.
    Ok(Usage::of(tracker.pid())?.resident_bytes)
}

/// Fails unless the roster has as many peers as expected, so that a comparison means something.
pub(crate) fn check_present(roster: &Roster) -> Result<()> {
    let (present, all) = (roster.present(), roster.len());
    ensure!(present >= all / 2, "only {present} of {all} peers have started");
    Ok(())
}
