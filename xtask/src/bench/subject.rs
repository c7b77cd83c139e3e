//! The trackers that are measured: how each is configured, started, watched and stopped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace::{release, root};

/// A tracker under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Tidegate,
    /// With limits that the load does not reach.
    TidegateLimited,
    AquaticUdp,
    AquaticUdpUring,
    AquaticHttp,
    AquaticWs,
    BittorrentTracker,
}

/// Resources a process has used.
pub(super) struct Used {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) peak_kib: u64,
}

impl Used {
    pub(super) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            user_s: self.user_s - before.user_s,
            system_s: self.system_s - before.system_s,
            peak_kib: self.peak_kib,
        }
    }
}

/// A tracker that runs until it is dropped.
pub(super) struct Running {
    child: Child,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::TidegateLimited => "tidegate (limits)",
            Self::AquaticUdp => "aquatic_udp (mio)",
            Self::AquaticUdpUring => "aquatic_udp (io_uring)",
            Self::AquaticHttp => "aquatic_http",
            Self::AquaticWs => "aquatic_ws",
            Self::BittorrentTracker => "bittorrent-tracker",
        }
    }

    /// Whether its program is there to be started; tidegate is built.
    pub(super) fn is_here(self, rivals: &Path) -> bool {
        match self {
            Self::Tidegate => true,
            Self::BittorrentTracker => rivals.join("node_modules/bittorrent-tracker").is_dir(),
            _ => self.command(rivals, Path::new("")).0.is_file(),
        }
    }

    /// Where it listens. Each has a port of its own, because connections that one tracker has closed
    /// may keep another from its port for a minute.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Tidegate | Self::TidegateLimited => "127.0.0.1:3000",
            Self::AquaticUdp | Self::AquaticUdpUring => "127.0.0.1:3001",
            Self::AquaticHttp => "127.0.0.1:3002",
            Self::AquaticWs => "127.0.0.1:3003",
            Self::BittorrentTracker => "127.0.0.1:3004",
        }
    }

    pub(super) fn version(self) -> String {
        match self {
            Self::Tidegate | Self::TidegateLimited => {
                format!("{} {}", self.name(), env!("CARGO_PKG_VERSION"))
            }
            Self::BittorrentTracker => "bittorrent-tracker 11.2.3 (npm)".into(),
            _ => format!("{} 0.9.0 (cargo)", self.name()),
        }
    }

    /// Its configuration: logging off, one worker.
    fn configuration(self) -> String {
        let address = self.address();
        let aquatic = |network: &str| {
            format!("log_level = \"off\"\n[network]\naddress = \"{address}\"\n{network}\n")
        };
        let tidegate = |more: &str| {
            format!(
                "[udp]\nlisten = [\"{address}\"]\nworkers = 1\n[http]\nlisten = [\"{address}\"]\nworkers = 1\n\
                 websocket_messages_per_s = 0\n[admin]\nlisten = []\n[log]\nlevel = \"warn\"\n{more}"
            )
        };
        match self {
            Self::Tidegate => tidegate(""),
            Self::TidegateLimited => tidegate(
                "[limits]\nexempt = []\nannounces_per_s = 1000000\nscrapes_per_s = 1000000\n\
                 connects_per_s = 1000000\n",
            ),
            Self::AquaticUdp => aquatic("use_io_uring = false"),
            Self::AquaticUdpUring => aquatic("use_io_uring = true"),
            Self::AquaticHttp | Self::AquaticWs => aquatic("enable_tls = false"),
            // Its script takes all it needs as arguments.
            Self::BittorrentTracker => String::new(),
        }
    }

    /// Its program and the arguments.
    fn command(self, rivals: &Path, configuration: &Path) -> (PathBuf, Vec<OsString>) {
        let configured = |program: PathBuf, words: &[&str]| {
            let words = words.iter().map(OsString::from);
            (program, words.chain([configuration.into()]).collect())
        };
        match self {
            Self::Tidegate | Self::TidegateLimited => {
                configured(release().join("tidegate"), &["serve", "--config"])
            }
            Self::AquaticUdp | Self::AquaticUdpUring => {
                configured(rivals.join("aquatic_udp"), &["-c"])
            }
            Self::AquaticHttp => configured(rivals.join("aquatic_http"), &["-c"]),
            Self::AquaticWs => configured(rivals.join("aquatic_ws"), &["-c"]),
            Self::BittorrentTracker => {
                let (host, port) = self.address().split_once(':').unwrap_or_default();
                let script = root().join("bench/rivals/bittorrent-tracker.mjs");
                let modules = rivals.join("node_modules");
                ("node".into(), vec![script.into(), modules.into(), host.into(), port.into()])
            }
        }
    }

    /// Starts it on core 0 and waits until it serves.
    pub(super) fn start(self, rivals: &Path) -> Result<Running> {
        let configuration = folder()?.join("tracker.toml");
        fs::write(&configuration, self.configuration())?;
        let (program, arguments) = self.command(rivals, &configuration);
        let mut running = start(&program, &arguments)?;
        running.wait_until_it_listens(self)?;
        Ok(running)
    }
}

/// Starts a tracker on core 0, whose configuration is a file behind its other arguments.
pub(super) fn spawn(program: &Path, arguments: &[&str], configuration: &str) -> Result<Running> {
    let file = folder()?.join("tracker.toml");
    fs::write(&file, configuration)?;
    let arguments = arguments.iter().map(OsString::from).chain([file.into()]);
    start(program, &arguments.collect::<Vec<_>>())
}

/// Where trackers' configuration and output go.
fn folder() -> Result<PathBuf> {
    let folder = root().join("target/bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn start(program: &Path, arguments: &[OsString]) -> Result<Running> {
    let log = File::create(folder()?.join("tracker.log"))?;
    // As many connections as the system allows; not every tracker asks for them by itself.
    let raise = "ulimit -n \"$(ulimit -Hn)\"; exec \"$@\"";
    let child = Command::new("taskset")
        .args(["-c", "0", "sh", "-c", raise, "sh"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    Ok(Running { child })
}

impl Running {
    /// TCP says when it listens; a UDP-only tracker shows it by its open socket.
    fn wait_until_it_listens(&mut self, subject: Subject) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(root().join("target/bench/tracker.log"))?;
                bail!("{} ended at once ({status}): {log}", subject.name());
            }
            let ready = match subject {
                Subject::AquaticUdp | Subject::AquaticUdpUring => {
                    // 3001 is 0BB9 in the kernel's table.
                    fs::read_to_string("/proc/net/udp")?.contains("0100007F:0BB9")
                }
                _ => TcpStream::connect(subject.address()).is_ok(),
            };
            if ready {
                sleep(Duration::from_millis(300));
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        bail!("{} does not listen on {} after 10 s", subject.name(), subject.address())
    }

    /// The number of its process: taskset and sh have become the tracker.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of all its threads so far, and its largest resident size.
    pub(super) fn used(&self) -> Result<Used> {
        let folder = Path::new("/proc").join(self.child.id().to_string());
        let stat = fs::read_to_string(folder.join("stat"))?;
        let (_, fields) = stat.rsplit_once(')').context("no process name in stat")?;
        // User and system time are fields 14 and 15 of proc(5); the first after the name is 3.
        let ticks: Vec<f64> =
            fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        let [user, system] = ticks[..] else { bail!("stat is cut short") };
        let status = fs::read_to_string(folder.join("status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak_kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
        // Linux counts CPU time for user space in hundredths of a second.
        Ok(Used { user_s: user / 100.0, system_s: system / 100.0, peak_kib: peak_kib.unwrap_or(0) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The figures are taken; a tracker that is already gone is no loss.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
