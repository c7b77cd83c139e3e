//! A tracker, and two clients that share a torrent.

use super::haproxy;
use super::network::Family::{self, V4, V6};
use super::peer::{Client, Peer, REPLY_MAX, TRANSFER_MAX};
use super::torrent::Torrent;
use crate::tracker::{self, ANNOUNCE_MAX, Counts};
use anyhow::{Context, Result, ensure};
use harness::certificates::{ECDSA, issue, make_authority};
use harness::{Process, Tracker, wait_for};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

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

use Protocol::{Http, Https, Udp, Ws, Wss};

/// Seeder and leecher, and protocol and family of the tracker's URL.
#[derive(Debug)]
pub(super) struct Pair(pub(super) [Client; 2], pub(super) Protocol, pub(super) Family);

/// The tracker's port.
const PORT: u16 = 6969;
/// Where it takes scrapes over HTTP.
const SCRAPES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
/// The tracker's port for TLS.
const SECURE_PORT: u16 = 6443;

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
    pub(super) fn transfer(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?.transfer()
    }

    /// The tracker's certificate is of an authority that the clients do not trust: they do not announce. This
    /// shows that they verify certificates.
    pub(super) fn distrust(&self, folder: &Path) -> Result<()> {
        let mut stage = self.set_up(folder, NO_KEYS, |_| Ok(String::new()))?;
        stage.seeder.authority = None;
        stage.distrust()
    }

    /// A transfer with HAProxy, started with this option, between clients and tracker.
    pub(super) fn transfer_behind(&self, option: &str, folder: &Path) -> Result<()> {
        let stage = self.set_up_at(haproxy::PORT, folder, NO_KEYS, |_| Ok(haproxy::trust()))?;
        let _haproxy = haproxy::start(folder, option)?;
        stage.transfer()
    }

    /// The torrent is on the deny list: both clients report the reason, and nothing is transferred. This shows
    /// that the other cases can fail.
    pub(super) fn refusal(&self, folder: &Path) -> Result<()> {
        let deny = |torrent: &Torrent| {
            let list = folder.join("deny.txt");
            fs::write(&list, torrent.info_hash_hex() + "\n")?;
            Ok(format!("[access]\nmode = \"deny\"\ndeny = {list:?}\n"))
        };
        self.set_up(folder, NO_KEYS, deny)?.refusal(&DENIED)
    }

    /// The tracker is private, and each client has a key of its own.
    pub(super) fn private(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, KEYS.map(Some), |_| private_tracker(folder))?.transfer()
    }

    /// The tracker is private, and the clients have no keys: a refusal.
    pub(super) fn keyless(&self, folder: &Path) -> Result<()> {
        self.set_up(folder, NO_KEYS, |_| private_tracker(folder))?.refusal(&KEYLESS)
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
        let names = format!("IP:{},IP:{}", V4.address(1), V6.address(1));
        make_authority(folder)?;
        issue(folder, "tracker", &names, ECDSA, "30")?;
        let (chain, key) = (folder.join("tracker.pem"), folder.join("tracker.key"));
        let secure = format!(
            "[tls]\nlisten = [\"0.0.0.0:{SECURE_PORT}\", \"[::]:{SECURE_PORT}\"]\n\
             certificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
        );
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
        let torrents = keys.map(|key| Torrent::new(&protocol.announce_url(family, port, key)));
        let trusted = protocol.is_secure().then(|| folder.join("ca.pem"));
        let [torrent, of_leecher] = torrents;
        let mut seeder = Peer::create(folder, "seeder", seeder, family.address(2), &torrent)?;
        let mut leecher = Peer::create(folder, "leecher", leecher, family.address(3), &of_leecher)?;
        seeder.authority = trusted.clone();
        leecher.authority = trusted;
        torrent.fill(&seeder.folder)?;
        let tracker = tracker::start(folder, &configure(&torrent)?)?;
        let [key, _] = keys;
        Ok(Stage { protocol, family, torrent, key, tracker, seeder, leecher })
    }
}

/// Returns the configuration of a private tracker.
fn private_tracker(folder: &Path) -> Result<String> {
    let keys = folder.join("keys.txt");
    fs::write(&keys, KEYS.join("\n"))?;
    Ok(format!("[access]\nprivate = true\nkeys = {keys:?}\n"))
}

impl Stage {
    fn transfer(self) -> Result<()> {
        let _seeder = self.start(&self.seeder)?;
        let downloaded = u64::from(self.seeder.client.says_completed_when_seeding());
        self.wait_for_counts(Counts { complete: 1, downloaded, incomplete: 0 })?;
        let _leecher = self.start(&self.leecher)?;
        let transfer = wait_for(TRANSFER_MAX, "the transfer", || {
            Ok(self.torrent.is_complete(&self.leecher.folder))
        });
        transfer.with_context(|| self.counted())?;
        self.wait_for_counts(Counts { complete: 2, downloaded: downloaded + 1, incomplete: 0 })?;
        self.check_announces()?;
        self.tracker.stop()
    }

    fn refusal(self, cause: &Cause) -> Result<()> {
        let clients = [self.start(&self.seeder)?, self.start(&self.leecher)?];
        for client in &clients {
            wait_for(ANNOUNCE_MAX, "a client to say why it was refused", || {
                Ok(client.stderr().contains(self.protocol.refusal(cause)))
            })?;
        }
        wait_for(REPLY_MAX, "the refusals to be counted", || {
            // Without a key there is no WebSocket: the upgrade is refused over HTTP.
            let is_early = cause.label == KEYLESS.label && self.protocol == Ws;
            let protocol = if is_early { Http } else { self.protocol };
            let labels = [("reason", cause.label), ("protocol", protocol.label())];
            Ok(self.tracker.metric("tidegate_refusals_total", &labels)? >= 2.0)
        })?;
        ensure!(
            !self.torrent.is_complete(&self.leecher.folder),
            "the torrent was transferred although the tracker refused it"
        );
        self.tracker.stop()
    }

    fn distrust(self) -> Result<()> {
        let _client = self.start(&self.seeder)?;
        // Over TLS 1.3 some clients verify the certificate after the handshake, so no drop is counted.
        let connections = |name: &str| {
            self.tracker.metric(&format!("tidegate_connections_{name}"), &[("protocol", "https")])
        };
        wait_for(ANNOUNCE_MAX, "the client to come and go", || {
            Ok(connections("total")? >= 1.0 && connections("open")? == 0.0)
        })?;
        let announces = self.tracker.metric("tidegate_requests_total", &[("kind", "announce")])?;
        ensure!(announces == 0.0, "a client announced although it does not trust the tracker");
        self.tracker.stop()
    }

    fn start(&self, peer: &Peer) -> Result<Process> {
        peer.start(self.protocol == Udp)
    }

    fn wait_for_counts(&self, expected: Counts) -> Result<()> {
        let path = self.key.map_or_else(|| "/scrape".into(), |key| format!("/scrape/{key}"));
        tracker::wait_for_counts(SCRAPES, &path, &self.torrent.info_hash, expected)
    }

    /// Returns counters that show if the tracker or a client failed.
    fn counted(&self) -> String {
        let protocol = ("protocol", self.protocol.label());
        let of = |name: &str, labels: &[(&str, &str)]| {
            let value = self.tracker.metric(name, labels);
            value.map_or_else(|error| error.to_string(), |value| value.to_string())
        };
        let announces = of("tidegate_requests_total", &[("kind", "announce"), protocol]);
        let connections = of("tidegate_connections_total", &[protocol]);
        format!("the tracker counted {announces} announces and {connections} connections")
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
        wait_for(REPLY_MAX, "three announces to be counted", || Ok(count(used.0, used.1)? >= 3.0))?;
        for other in [Http, Https, Udp, Ws, Wss].into_iter().flat_map(|one| [(one, V4), (one, V6)])
        {
            let announces = count(other.0, other.1)?;
            ensure!(
                other == used || announces == 0.0,
                "expected announces by {used:?} only, found {announces} by {other:?}"
            );
        }
        Ok(())
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
            (Ws | Wss, Some(key)) => key.into(),
            (Ws, None) => String::new(),
            // WebSockets are served here, too.
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
