//! The clients, each as the command that starts it. DHT, peer exchange and local discovery are off, so that
//! they learn of each other only by the tracker.

use super::torrent::Torrent;
use crate::venv::CLIENT_TOOLS;
use crate::workspace::root;
use anyhow::{Context, Result};
use harness::Process;
use serde_json::json;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The port of all peers, which have different addresses.
const PORT: u16 = 6881;
/// The longest that a transfer may take. Transmission alone waits 10 s between announce and first connection, and longer
/// on a busy machine.
pub(super) const TRANSFER_MAX: Duration = Duration::from_secs(120);
/// The longest that the tracker's counters may lag behind its responses.
pub(super) const REPLY_MAX: Duration = Duration::from_secs(30);

/// A BitTorrent client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Client {
    Aria2,
    Transmission,
    Libtorrent,
    /// libtorrent 2.1, the library of desktop clients that speak WebTorrent.
    Desktop,
    /// webtorrent in Node.
    WebTorrent,
    /// webtorrent in a page of Chromium.
    Chromium,
}

impl Client {
    /// Returns whether a seeder that has downloaded nothing announces `completed`, and counts as a download.
    pub(super) fn says_completed_when_seeding(self) -> bool {
        matches!(self, Self::WebTorrent | Self::Chromium)
    }
}

/// A client, and the arguments of its start.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) client: Client,
    pub(super) address: IpAddr,
    /// The folder of its data. Logs and state are stored next to it.
    pub(super) folder: PathBuf,
    /// Its torrent file.
    pub(super) torrent_file: PathBuf,
    /// An authority that it trusts besides those of the system, if any.
    pub(super) authority: Option<PathBuf>,
}

impl Peer {
    /// Creates the folder `name` below `at` for a client, and its torrent file.
    pub(super) fn create(
        at: &Path,
        name: &str,
        client: Client,
        address: IpAddr,
        torrent: &Torrent,
    ) -> Result<Self> {
        let folder = at.join(name);
        fs::create_dir_all(&folder)?;
        let torrent_file = folder.with_extension("torrent");
        fs::write(&torrent_file, &torrent.file)?;
        Ok(Self { client, address, folder, torrent_file, authority: None })
    }

    /// Starts it on its torrent file.
    pub(super) fn start(&self, udp: bool) -> Result<Process> {
        let mut command = match self.client {
            Client::Aria2 => self.aria2(udp),
            Client::Transmission => self.transmission()?,
            // The bindings are a Debian package, so Debian's python3 is needed.
            Client::Libtorrent => self.libtorrent(Path::new("/usr/bin/python3")),
            Client::Desktop => self.libtorrent(&CLIENT_TOOLS.path_of("python3")),
            Client::WebTorrent => self.script("peer.mjs"),
            Client::Chromium => self.script("browser.mjs"),
        };
        command.env("HOME", &self.folder);
        // By default, Transmission 3 does not verify certificates.
        command.env("TR_CURL_SSL_VERIFY", "1");
        if let Some(authority) = &self.authority {
            // For libtorrent, Transmission and Node; aria2 has an option.
            for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
                command.env(name, authority);
            }
        }
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let parent = self.folder.parent().unwrap_or(&self.folder);
        Process::start_with_one_log(command, parent, &name)
            .with_context(|| format!("{:?} does not start: cargo xtask setup", self.client))
    }

    fn aria2(&self, udp: bool) -> Command {
        let mut command = Command::new("aria2c");
        // Its UDP tracker client is part of its DHT, which stays idle for a private torrent.
        command.arg(format!("--enable-dht={udp}"));
        command.arg(format!("--dht-file-path={}", self.folder.with_extension("dht").display()));
        command.arg(format!("--interface={}", self.address));
        command.arg(format!("--listen-port={PORT}"));
        command.arg(format!("--dir={}", self.folder.display()));
        command.args(["--no-conf", "--enable-dht6=false", "--enable-peer-exchange=false"]);
        command.args(["--bt-enable-lpd=false", "--check-integrity=true", "--seed-ratio=0"]);
        command.args(["--file-allocation=none", "--show-console-readout=false"]);
        if let Some(authority) = &self.authority {
            command.arg(format!("--ca-certificate={}", authority.display()));
        }
        command.arg(&self.torrent_file);
        command
    }

    fn transmission(&self) -> Result<Command> {
        let settings = self.folder.with_extension("settings");
        fs::create_dir_all(&settings)?;
        let values = json!({
            "bind-address-ipv4": self.address,
            "peer-port": PORT,
            "dht-enabled": false,
            "pex-enabled": false,
            "lpd-enabled": false,
            "port-forwarding-enabled": false,
        });
        fs::write(settings.join("settings.json"), values.to_string())?;
        let mut command = Command::new("transmission-cli");
        command.args(["--verify", "--no-portmap", "--config-dir"]).arg(settings);
        command.arg("--download-dir").arg(&self.folder).arg(&self.torrent_file);
        Ok(command)
    }

    fn libtorrent(&self, python: &Path) -> Command {
        let mut command = Command::new(python);
        command
            .arg(root().join("testing/clients/peer.py"))
            .arg(&self.torrent_file)
            .arg(&self.folder);
        command.arg(SocketAddr::new(self.address, PORT).to_string());
        command
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new("node");
        command
            .arg(root().join("testing/clients/web").join(name))
            .arg(&self.torrent_file)
            .arg(&self.folder);
        command
    }
}
