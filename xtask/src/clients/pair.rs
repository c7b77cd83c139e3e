//! Two clients, a tracker between them, and a torrent.

use super::authority;
use super::case::wait_for;
use super::haproxy::{self, Header};
use super::peer::{Client, Peer};
use super::torrent::Torrent;
use super::tracker::{Counts, Tracker};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

/// How the clients speak to the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Udp,
    /// WebTorrent: the clients meet over WebRTC.
    Ws,
    Wss,
}

/// Over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

use Family::{V4, V6};
use Protocol::{Http, Https, Udp, Ws, Wss};

/// Seeder and leecher, and how they reach the tracker.
#[derive(Debug)]
pub(super) struct Pair(pub(super) [Client; 2], pub(super) Protocol, pub(super) Family);

/// Transmission alone waits 10 s between announce and first connection; on a busy machine more.
const TRANSFER_MAX: Duration = Duration::from_secs(120);
/// A browser needs seconds of CPU time before it says a word, and others compile meanwhile.
const START_MAX: Duration = Duration::from_secs(120);
const REPLY_MAX: Duration = Duration::from_secs(30);
/// Where the tracker listens.
const PORT: u16 = 6969;
/// The same with TLS.
const SECURE_PORT: u16 = 6443;
/// Every case has a network of its own, so all may share one content.
const PAYLOAD_SEED: u64 = 9;

/// The keys of the private tracker's users: the seeder's, the leecher's.
const KEYS: [&str; 2] = ["seeder-0123456789", "leecher_0123456789ABCDEF0123456789"];
const NO_KEYS: [Option<&str>; 2] = [None; 2];

/// Why a tracker refuses.
struct Cause {
    /// In metrics.
    label: &'static str,
    /// As clients are told.
    text: &'static str,
}

const DENIED: Cause = Cause { label: "denied", text: "this torrent is on the tracker's deny list" };
const KEYLESS: Cause = Cause { label: "key_missing", text: "this tracker is private" };

/// The actors, and where they are.
struct Stage {
    protocol: Protocol,
    family: Family,
    torrent: Torrent,
    /// By which the tracker answers a scrape.
    key: Option<&'static str>,
    tracker: Tracker,
    seeder: Peer,
    leecher: Peer,
}

impl Pair {
    /// The seeder hands over the torrent, and the tracker counts both right.
    pub(super) fn play_transfer(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?.play_transfer()
    }

    /// The tracker's certificate is of an authority that the clients do not know: they do not announce.
    pub(super) fn play_distrust(&self, folder: &Path) -> Result<()> {
        let mut stage = self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?;
        stage.seeder.authority = None;
        stage.play_distrust()
    }

    /// The same with HAProxy between clients and tracker.
    pub(super) fn play_transfer_behind(&self, header: Header, folder: &Path) -> Result<()> {
        let stage = self.set_up_at(haproxy::PORT, folder, NO_KEYS, |_| Ok(haproxy::trust()))?;
        haproxy::start(folder, header)?;
        stage.play_transfer()
    }

    /// The torrent is on the deny list.
    pub(super) fn play_refusal(&self, folder: &Path) -> Result<()> {
        let deny = |torrent: &Torrent| {
            let list = folder.join("deny.txt");
            fs::write(&list, torrent.info_hash_hex() + "\n")?;
            Ok(format!("[access]\nmode = \"deny\"\ndeny = {list:?}\n"))
        };
        self.set_up(folder, NO_KEYS, deny)?.play_refusal(&DENIED)
    }

    /// The tracker is private, and each client has a key of its own.
    pub(super) fn play_private(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, KEYS.map(Some), |_| private(folder))?.play_transfer()
    }

    /// The tracker is private, and the clients have no keys.
    pub(super) fn play_keyless(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, NO_KEYS, |_| private(folder))?.play_refusal(&KEYLESS)
    }

    fn set_up(
        &self,
        folder: &Path,
        keys: [Option<&'static str>; 2],
        configure: impl FnOnce(&Torrent) -> Result<String>,
    ) -> Result<Stage> {
        if !self.1.is_secure() {
            return self.set_up_at(PORT, folder, keys, configure);
        }
        let addresses = [V4, V6].map(|family| family.address(1).to_string());
        let secure = authority::set_up(folder, SECURE_PORT, &addresses)?;
        self.set_up_at(SECURE_PORT, folder, keys, |torrent| Ok(secure + &configure(torrent)?))
    }

    /// Clients that announce to `port`, with their keys if they have some, and a tracker that is
    /// configured for the torrent.
    fn set_up_at(
        &self,
        port: u16,
        folder: &Path,
        keys: [Option<&'static str>; 2],
        configure: impl FnOnce(&Torrent) -> Result<String>,
    ) -> Result<Stage> {
        let &Self([seeder, leecher], protocol, family) = self;
        let torrents =
            keys.map(|key| Torrent::new(&protocol.announce_url(family, port, key), PAYLOAD_SEED));
        let trusted = protocol.is_secure().then(|| authority::file(folder));
        let peer = |name: &str, client, host, torrent: &Torrent| -> Result<Peer> {
            let folder = folder.join(name);
            fs::create_dir_all(&folder)?;
            let torrent_file = folder.with_extension("torrent");
            fs::write(&torrent_file, &torrent.file)?;
            let (address, authority) = (family.address(host), trusted.clone());
            Ok(Peer { client, address, folder, torrent_file, authority })
        };
        let [torrent, of_leecher] = torrents;
        let seeder = peer("seeder", seeder, 2, &torrent)?;
        let leecher = peer("leecher", leecher, 3, &of_leecher)?;
        torrent.fill(&seeder.folder)?;
        let tracker = Tracker::start(folder, &configure(&torrent)?)?;
        let [key, _] = keys;
        Ok(Stage { protocol, family, torrent, key, tracker, seeder, leecher })
    }
}

/// What makes a tracker private.
fn private(folder: &Path) -> Result<String> {
    let keys = folder.join("keys.txt");
    fs::write(&keys, KEYS.join("\n"))?;
    Ok(format!("[access]\nprivate = true\nkeys = {keys:?}\n"))
}

impl Stage {
    fn play_transfer(self) -> Result<()> {
        self.start(&self.seeder)?;
        let downloaded = u64::from(self.seeder.client.says_completed_when_seeding());
        self.wait_for_counts(Counts { complete: 1, downloaded, incomplete: 0 })?;
        self.start(&self.leecher)?;
        wait_for(TRANSFER_MAX, "the transfer", || {
            Ok(self.torrent.is_complete(&self.leecher.folder))
        })?;
        self.wait_for_counts(Counts { complete: 2, downloaded: downloaded + 1, incomplete: 0 })?;
        self.check_announces()?;
        self.tracker.stop()
    }

    fn play_refusal(self, cause: &Cause) -> Result<()> {
        self.start(&self.seeder)?;
        self.start(&self.leecher)?;
        for peer in [&self.seeder, &self.leecher] {
            wait_for(START_MAX, "a client to say why it was refused", || {
                Ok(fs::read_to_string(peer.log())?.contains(self.protocol.refusal(cause)))
            })?;
        }
        wait_for(REPLY_MAX, "the refusals to be counted", || {
            // Who has no key becomes no WebSocket: that is refused over HTTP.
            let is_early = cause.label == KEYLESS.label && self.protocol == Ws;
            let protocol = if is_early { Http } else { self.protocol };
            let labels = [("reason", cause.label), ("protocol", protocol.label())];
            Ok(self.tracker.metric("tidegate_refusals_total", &labels)? >= 2)
        })?;
        ensure!(!self.torrent.is_complete(&self.leecher.folder), "transferred although refused");
        self.tracker.stop()
    }

    fn play_distrust(self) -> Result<()> {
        self.start(&self.seeder)?;
        // Over TLS 1.3 some look at the certificate only after the handshake: no drop to wait for.
        let connections = |name: &str| {
            self.tracker.metric(&format!("tidegate_connections_{name}"), &[("protocol", "https")])
        };
        wait_for(START_MAX, "the client to come and go", || {
            Ok(connections("total")? >= 1 && connections("open")? == 0)
        })?;
        let announces = self.tracker.metric("tidegate_requests_total", &[("kind", "announce")])?;
        ensure!(announces == 0, "announced although the tracker is not trusted");
        self.tracker.stop()
    }

    fn start(&self, peer: &Peer) -> Result<()> {
        peer.start(self.protocol == Udp)
            .with_context(|| format!("{:?} does not start; cargo xtask setup", peer.client))
    }

    fn wait_for_counts(&self, expected: Counts) -> Result<()> {
        let mut seen = None;
        let waited = wait_for(START_MAX, "the scrape", || {
            seen = Some(self.tracker.counts(&self.torrent, self.key)?);
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
        let used = (self.protocol, self.family);
        wait_for(REPLY_MAX, "three announces to be counted", || Ok(count(used.0, used.1)? >= 3))?;
        for other in [Http, Https, Udp, Ws, Wss].into_iter().flat_map(|one| [(one, V4), (one, V6)])
        {
            let announces = count(other.0, other.1)?;
            ensure!(other == used || announces == 0, "{announces} announces by {other:?}");
        }
        Ok(())
    }
}

impl Family {
    /// Address 1 is the tracker's, 2 the seeder's, 3 the leecher's; clients that take no address send
    /// from 1, too.
    pub(super) fn address(self, host: u8) -> IpAddr {
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
    fn is_secure(self) -> bool {
        matches!(self, Https | Wss)
    }

    /// Where the tracker is found, by somebody who has this key.
    fn announce_url(self, family: Family, port: u16, key: Option<&str>) -> String {
        let host = match family.address(1) {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let path = match (self, key) {
            (Ws | Wss, key) => key.unwrap_or_default().into(),
            (_, None) => "announce".into(),
            (_, Some(key)) => format!("announce/{key}"),
        };
        format!("{}://{host}:{port}/{path}", self.label())
    }

    /// What clients say when they are refused. libtorrent leaves out the text of UDP errors, and nobody
    /// sees why there was no WebSocket.
    fn refusal(self, cause: &Cause) -> &'static str {
        match self {
            Ws if cause.label == KEYLESS.label => "Error connecting to ws://",
            Http | Https | Ws | Wss => cause.text,
            Udp => "failure message \"\"",
        }
    }

    /// Its name in metrics, and the scheme of its URLs.
    fn label(self) -> &'static str {
        match self {
            Http => "http",
            Https => "https",
            Udp => "udp",
            Ws => "ws",
            Wss => "wss",
        }
    }
}
