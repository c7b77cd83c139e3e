//! One case from begin to end, inside its namespace.

use super::peer::{Client, Peer};
use super::torrent::Torrent;
use super::tracker::{Counts, Tracker};
use crate::command::{command, output};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How the clients speak to the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Udp,
}

/// Over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// What should come of it.
#[derive(Clone, Copy, Debug)]
enum Expect {
    /// The leecher ends with the seeder's bytes.
    Transfer,
    /// The tracker refuses the torrent, both clients say why, and nothing is transferred. It shows that
    /// the other cases can fail.
    Refusal,
}

/// Two clients of one kind, and a tracker between them.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    client: Client,
    protocol: Protocol,
    family: Family,
    expect: Expect,
}

use Client::{Aria2, Libtorrent, Transmission};
use Expect::{Refusal, Transfer};
use Family::{V4, V6};
use Protocol::{Http, Udp};

/// All of them. Transmission 3 does not connect to its peer over v6 inside a namespace, whatever the
/// tracker; libtorrent stands for v6.
#[rustfmt::skip]
pub(super) const CASES: [Case; 10] = [
    Case { name: "aria2-http", client: Aria2, protocol: Http, family: V4, expect: Transfer },
    Case { name: "aria2-udp", client: Aria2, protocol: Udp, family: V4, expect: Transfer },
    Case { name: "transmission-http", client: Transmission, protocol: Http, family: V4, expect: Transfer },
    Case { name: "transmission-udp", client: Transmission, protocol: Udp, family: V4, expect: Transfer },
    Case { name: "libtorrent-http", client: Libtorrent, protocol: Http, family: V4, expect: Transfer },
    Case { name: "libtorrent-udp", client: Libtorrent, protocol: Udp, family: V4, expect: Transfer },
    Case { name: "libtorrent-http6", client: Libtorrent, protocol: Http, family: V6, expect: Transfer },
    Case { name: "libtorrent-udp6", client: Libtorrent, protocol: Udp, family: V6, expect: Transfer },
    Case { name: "libtorrent-http-denied", client: Libtorrent, protocol: Http, family: V4, expect: Refusal },
    Case { name: "libtorrent-udp-denied", client: Libtorrent, protocol: Udp, family: V4, expect: Refusal },
];

/// Transmission alone waits 10 s between announce and first connection; on a busy machine more.
const TRANSFER_MAX: Duration = Duration::from_secs(90);
const REPLY_MAX: Duration = Duration::from_secs(30);
/// Longer than all waits of a case together. Then the process ends, and the namespaces with it.
const CASE_MAX: Duration = Duration::from_secs(240);
/// How much of a log is shown when a case fails.
const LOG_LINES: usize = 20;

/// The actors of a case, and where they are.
struct Stage<'a> {
    case: &'a Case,
    torrent: Torrent,
    torrent_file: PathBuf,
    tracker: Tracker,
    seeder: Peer,
    leecher: Peer,
}

impl Case {
    /// Plays it. Everything it starts ends with this process.
    pub(super) fn run(&self, folder: &Path) -> Result<()> {
        thread::spawn(|| {
            thread::sleep(CASE_MAX);
            eprintln!("stuck for {CASE_MAX:?}");
            std::process::exit(1);
        });
        let started = Instant::now();
        let result = self.set_up(folder).and_then(|stage| match self.expect {
            Transfer => stage.play_transfer(),
            Refusal => stage.play_refusal(),
        });
        if result.is_ok() {
            println!("{}: ok, {:.1} s", self.name, started.elapsed().as_secs_f32());
        }
        result.map_err(|error| anyhow!("{error:#}\n{}", logs(folder)))
    }

    fn set_up<'a>(&'a self, folder: &Path) -> Result<Stage<'a>> {
        output(command(&["ip", "link", "set", "lo", "up"]))?;
        for host in 1..=3 {
            for (family, prefix) in [(V4, "/24"), (V6, "/64")] {
                let address = format!("{}{prefix}", family.address(host));
                output(command(&["ip", "address", "add", &address, "dev", "lo"]))?;
            }
        }
        let torrent = Torrent::new(&self.announce_url(), self.name.len() as u64);
        let torrent_file = folder.join("payload.torrent");
        fs::write(&torrent_file, &torrent.file)?;
        let peer = |name: &str, host| -> Result<Peer> {
            let folder = folder.join(name);
            fs::create_dir_all(&folder)?;
            Ok(Peer { client: self.client, address: self.family.address(host), folder })
        };
        let (seeder, leecher) = (peer("seeder", 2)?, peer("leecher", 3)?);
        torrent.fill(&seeder.folder)?;
        let denied = matches!(self.expect, Refusal).then_some(&torrent);
        let tracker = Tracker::start(folder, denied)?;
        wait_for(REPLY_MAX, "the tracker to be ready", || Ok(tracker.is_ready()))?;
        Ok(Stage { case: self, torrent, torrent_file, tracker, seeder, leecher })
    }

    fn announce_url(&self) -> String {
        let host = match self.family.address(1) {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("{}://{host}:6969/announce", self.protocol.label())
    }
}

impl Stage<'_> {
    fn play_transfer(self) -> Result<()> {
        self.start(&self.seeder)?;
        self.wait_for_counts(Counts { complete: 1, downloaded: 0, incomplete: 0 })?;
        self.start(&self.leecher)?;
        wait_for(TRANSFER_MAX, "the transfer", || {
            Ok(self.torrent.is_complete(&self.leecher.folder))
        })?;
        self.wait_for_counts(Counts { complete: 2, downloaded: 1, incomplete: 0 })?;
        self.check_announces()?;
        self.tracker.stop()
    }

    fn play_refusal(self) -> Result<()> {
        self.start(&self.seeder)?;
        self.start(&self.leecher)?;
        for peer in [&self.seeder, &self.leecher] {
            wait_for(REPLY_MAX, "a client to say why it was refused", || {
                Ok(fs::read_to_string(peer.log())?.contains(self.case.protocol.refusal()))
            })?;
        }
        wait_for(REPLY_MAX, "the refusals to be counted", || {
            let labels = [("reason", "denied"), ("protocol", self.case.protocol.label())];
            Ok(self.tracker.metric("tidegate_refusals_total", &labels)? >= 2)
        })?;
        ensure!(!self.torrent.is_complete(&self.leecher.folder), "transferred although refused");
        self.tracker.stop()
    }

    fn start(&self, peer: &Peer) -> Result<()> {
        peer.start(&self.torrent_file, self.case.protocol == Udp)
            .with_context(|| format!("{:?} does not start; cargo xtask setup", peer.client))
    }

    fn wait_for_counts(&self, expected: Counts) -> Result<()> {
        let mut seen = None;
        let waited = wait_for(REPLY_MAX, "the scrape", || {
            seen = Some(self.tracker.counts(&self.torrent)?);
            Ok(seen == Some(expected))
        });
        waited.with_context(|| format!("a scrape should say {expected:?}; it says {seen:?}"))
    }

    /// The peers must have met by this tracker, protocol and family: one announce of the seeder and
    /// two of the leecher, and none by another way.
    fn check_announces(&self) -> Result<()> {
        let count = |protocol: Protocol, family: Family| {
            let labels =
                [("kind", "announce"), ("protocol", protocol.label()), ("family", family.label())];
            self.tracker.metric("tidegate_requests_total", &labels)
        };
        let Case { protocol, family, .. } = *self.case;
        wait_for(REPLY_MAX, "three announces to be counted", || Ok(count(protocol, family)? >= 3))?;
        for (other, by) in [(Http, V4), (Http, V6), (Udp, V4), (Udp, V6)] {
            let announces = count(other, by)?;
            let used = (other, by) == (protocol, family);
            ensure!(used || announces == 0, "{announces} announces by {other:?} {by:?}");
        }
        Ok(())
    }
}

impl Family {
    /// Address 1 is the tracker's, 2 the seeder's, 3 the leecher's.
    fn address(self, host: u8) -> IpAddr {
        match self {
            V4 => Ipv4Addr::new(10, 99, 0, host).into(),
            V6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into()).into(),
        }
    }

    /// Its name in metrics.
    fn label(self) -> &'static str {
        match self {
            V4 => "v4",
            V6 => "v6",
        }
    }
}

impl Protocol {
    /// What libtorrent says of a torrent on the deny list. It leaves out the text of UDP errors.
    fn refusal(self) -> &'static str {
        match self {
            Http => "failure message \"this torrent is on the tracker's deny list\"",
            Udp => "failure message \"\"",
        }
    }

    /// Its name in metrics, and the scheme of its URLs.
    fn label(self) -> &'static str {
        match self {
            Http => "http",
            Udp => "udp",
        }
    }
}

/// Asks again and again, until yes or too late. What goes wrong on the way may pass; at the end it
/// is told.
pub(super) fn wait_for(
    longest: Duration,
    what: &str,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let done = is_done();
        if matches!(done, Ok(true)) {
            return Ok(());
        }
        if started.elapsed() > longest {
            done.with_context(|| format!("waiting for {what}"))?;
            bail!("waited {longest:?} for {what}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The last lines of everybody's log, what is said over and over left out.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["tracker", "seeder", "leecher"] {
        let log = fs::read(folder.join(name).with_extension("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).replace('\r', "\n");
        let mut lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.dedup();
        text += &format!("-- {name}, last lines:\n");
        for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
            text += &format!("   {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends() {
        let mut calls = 0;
        let third = || {
            calls += 1;
            Ok(calls == 3)
        };
        assert!(wait_for(REPLY_MAX, "the third call", third).is_ok());
        assert!(wait_for(Duration::ZERO, "never", || Ok(false)).is_err());
        assert!(wait_for(Duration::ZERO, "an error", || bail!("no")).is_err());
    }
}
