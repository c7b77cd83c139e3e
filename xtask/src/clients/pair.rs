//! A tracker, and two clients that share a torrent.

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

/// The protocol between clients and tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Udp,
    /// WebTorrent: the clients connect over WebRTC.
    Ws,
    Wss,
}

/// The address family between clients and tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

use Family::{V4, V6};
use Protocol::{Http, Https, Udp, Ws, Wss};

/// Seeder and leecher, and protocol and family of the tracker's URL.
#[derive(Debug)]
pub(super) struct Pair(pub(super) [Client; 2], pub(super) Protocol, pub(super) Family);

/// Transmission alone waits 10 s between announce and first connection, and longer on a busy machine.
const TRANSFER_MAX: Duration = Duration::from_secs(120);
/// A browser needs seconds of CPU time before its first announce, and the machine may be busy.
const START_MAX: Duration = Duration::from_secs(120);
const REPLY_MAX: Duration = Duration::from_secs(30);
/// The tracker's port.
const PORT: u16 = 6969;
/// The tracker's port for TLS.
const SECURE_PORT: u16 = 6443;
/// Every case has a network of its own, so that all can share one torrent.
const PAYLOAD_SEED: u64 = 9;

/// The keys of the private tracker: the seeder's and the leecher's.
const KEYS: [&str; 2] = ["seeder-0123456789", "leecher_0123456789ABCDEF0123456789"];
const NO_KEYS: [Option<&str>; 2] = [None; 2];

/// The reason of a refusal.
struct Cause {
    /// As a label in metrics.
    label: &'static str,
    /// As the text that clients get.
    text: &'static str,
}

const DENIED: Cause = Cause { label: "denied", text: "this torrent is on the tracker's deny list" };
const KEYLESS: Cause = Cause { label: "key_missing", text: "this tracker is private" };

/// Tracker and clients of a running case.
struct Stage {
    protocol: Protocol,
    family: Family,
    torrent: Torrent,
    /// The key with which a private tracker can be scraped.
    key: Option<&'static str>,
    tracker: Tracker,
    seeder: Peer,
    leecher: Peer,
}

impl Pair {
    /// The leecher downloads the torrent, and the tracker's counts are right.
    pub(super) fn play_transfer(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?.play_transfer()
    }

    /// The tracker's certificate is of an authority that the clients do not trust: they do not announce.
    pub(super) fn play_distrust(&self, folder: &Path) -> Result<()> {
        let mut stage = self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?;
        stage.seeder.authority = None;
        stage.play_distrust()
    }

    /// A transfer with HAProxy between clients and tracker.
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

    /// Starts the tracker with the configuration that `configure` returns for the torrent, and two clients
    /// that announce to `port` with their `keys`, if any.
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

/// Returns the configuration of a private tracker.
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
            // Without a key there is no WebSocket: the upgrade is refused over HTTP.
            let is_early = cause.label == KEYLESS.label && self.protocol == Ws;
            let protocol = if is_early { Http } else { self.protocol };
            let labels = [("reason", cause.label), ("protocol", protocol.label())];
            Ok(self.tracker.metric("tidegate_refusals_total", &labels)? >= 2)
        })?;
        ensure!(
            !self.torrent.is_complete(&self.leecher.folder),
            "the torrent was transferred although the tracker refused it"
        );
        self.tracker.stop()
    }

    fn play_distrust(self) -> Result<()> {
        self.start(&self.seeder)?;
        // Over TLS 1.3 some clients verify the certificate after the handshake, so no drop is counted.
        let connections = |name: &str| {
            self.tracker.metric(&format!("tidegate_connections_{name}"), &[("protocol", "https")])
        };
        wait_for(START_MAX, "the client to come and go", || {
            Ok(connections("total")? >= 1 && connections("open")? == 0)
        })?;
        let announces = self.tracker.metric("tidegate_requests_total", &[("kind", "announce")])?;
        ensure!(announces == 0, "a client announced although it does not trust the tracker");
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
        waited.with_context(|| format!("expected {expected:?} from a scrape, found {seen:?}"))
    }

    /// Checks that the peers met by this protocol and family: at least one announce of the seeder and two of
    /// the leecher, and none by any other protocol or family.
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
            ensure!(
                other == used || announces == 0,
                "expected announces by {used:?} only, found {announces} by {other:?}"
            );
        }
        Ok(())
    }
}

impl Family {
    /// Address 1 is the tracker's, 2 the seeder's, 3 the leecher's. Clients that cannot be bound to an address
    /// send from 1 as well.
    pub(super) fn address(self, host: u8) -> IpAddr {
        match self {
            V4 => Ipv4Addr::new(10, 99, 0, host).into(),
            V6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into()).into(),
        }
    }

    /// Its label in metrics.
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

    /// Returns the tracker's URL, with `key` at a private tracker.
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

    /// Returns the text that a refused client reports. libtorrent omits the text of UDP errors, and clients
    /// cannot see why a WebSocket was refused.
    fn refusal(self, cause: &Cause) -> &'static str {
        match self {
            Ws if cause.label == KEYLESS.label => "Error connecting to ws://",
            Http | Https | Ws | Wss => cause.text,
            Udp => "failure message \"\"",
        }
    }

    /// Its label in metrics, which is also the scheme of its URLs.
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
