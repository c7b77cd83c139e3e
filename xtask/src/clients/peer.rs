//! The clients, each as the command that starts it. DHT, peer exchange and local discovery are off, so that
//! they learn of each other only by the tracker.

use crate::workspace::root;
use anyhow::Result;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The port of all peers, which have different addresses.
const PORT: u16 = 6881;

/// A BitTorrent client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Client {
    Aria2,
    Transmission,
    Libtorrent,
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

/// What one client is started with.
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
    /// Starts it on its torrent file. It runs until its namespace ends.
    pub(super) fn start(&self, udp: bool) -> Result<()> {
        let torrent = &self.torrent_file;
        let mut command = match self.client {
            Client::Aria2 => self.aria2(udp),
            Client::Transmission => self.transmission()?,
            Client::Libtorrent => return self.spawn(self.libtorrent(torrent)),
            Client::WebTorrent => return self.spawn(self.script("peer.mjs", torrent)),
            Client::Chromium => return self.spawn(self.script("browser.mjs", torrent)),
        };
        command.arg(torrent);
        self.spawn(command)
    }

    /// Returns its log.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    fn spawn(&self, mut command: Command) -> Result<()> {
        let log = File::create(self.log())?;
        command.env("HOME", &self.folder).stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        // By default, Transmission 3 does not verify certificates.
        command.env("TR_CURL_SSL_VERIFY", "1");
        if let Some(authority) = &self.authority {
            // For libtorrent, Transmission and Node; aria2 has an option.
            for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
                command.env(name, authority);
            }
        }
        command.spawn()?;
        Ok(())
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
        command
    }

    fn transmission(&self) -> Result<Command> {
        let settings = self.folder.with_extension("settings");
        fs::create_dir_all(&settings)?;
        fs::write(
            settings.join("settings.json"),
            format!(
                "{{\"bind-address-ipv4\": \"{}\", \"peer-port\": {PORT}, \"dht-enabled\": false, \
                 \"pex-enabled\": false, \"lpd-enabled\": false, \"port-forwarding-enabled\": false}}",
                self.address
            ),
        )?;
        let mut command = Command::new("transmission-cli");
        command.args(["--verify", "--no-portmap", "--config-dir"]).arg(settings);
        command.arg("--download-dir").arg(&self.folder);
        Ok(command)
    }

    fn libtorrent(&self, torrent: &Path) -> Command {
        // The bindings are a Debian package, so Debian's python3 is needed.
        let mut command = Command::new("/usr/bin/python3");
        command.arg(root().join("testing/clients/peer.py")).arg(torrent).arg(&self.folder);
        command.arg(SocketAddr::new(self.address, PORT).to_string());
        command
    }

    fn script(&self, name: &str, torrent: &Path) -> Command {
        let mut command = Command::new("node");
        command.arg(root().join("testing/clients/web").join(name)).arg(torrent).arg(&self.folder);
        command
    }
}
