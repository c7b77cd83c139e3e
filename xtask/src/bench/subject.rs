//! The measured trackers: how each is configured, started, observed and stopped.

use std::ffi::OsString;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use harness::Process;

use super::certificate::Certificate;
use crate::command::{command, output};
use crate::served::TOKEN;
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
    /// The same process as [`Subject::Tidegate`], on its TLS listener.
    TidegateTls,
    AquaticHttpTls,
    /// hitch as TLS proxy in front of tidegate without TLS.
    HitchTidegate,
}

/// Resources that a process has used.
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

/// A running tracker, with its proxy if it has one. Ends when it is dropped.
pub(super) struct Running {
    children: Vec<Process>,
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
            Self::TidegateTls => "tidegate (TLS)",
            Self::AquaticHttpTls => "aquatic_http (TLS)",
            Self::HitchTidegate => "hitch + tidegate",
        }
    }

    /// Returns whether clients use TLS.
    pub(super) fn is_secure(self) -> bool {
        matches!(self, Self::TidegateTls | Self::AquaticHttpTls | Self::HitchTidegate)
    }

    /// Returns whether its program is installed. tidegate always is, because it is built.
    pub(super) fn is_available(self, rivals: &Path) -> bool {
        match self {
            Self::Tidegate | Self::TidegateTls => true,
            Self::HitchTidegate => output(command(&[HITCH, "--version"])).is_ok(),
            Self::BittorrentTracker => rivals.join("node_modules/bittorrent-tracker").is_dir(),
            _ => self.command(rivals, Path::new("")).0.is_file(),
        }
    }

    /// Returns its address. Each tracker has its own port, because closed connections of one tracker can
    /// block its port for another one for a minute.
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Tidegate | Self::TidegateLimited => "127.0.0.1:3000",
            Self::AquaticUdp | Self::AquaticUdpUring => "127.0.0.1:3001",
            Self::AquaticHttp => "127.0.0.1:3002",
            Self::AquaticWs => "127.0.0.1:3003",
            Self::BittorrentTracker => "127.0.0.1:3004",
            Self::TidegateTls => "127.0.0.1:3005",
            Self::AquaticHttpTls => "127.0.0.1:3006",
            Self::HitchTidegate => "127.0.0.1:3007",
        }
    }

    pub(super) fn version(self) -> String {
        match self {
            Self::Tidegate | Self::TidegateLimited | Self::TidegateTls => {
                format!("{} {}", self.name(), env!("CARGO_PKG_VERSION"))
            }
            Self::HitchTidegate => {
                format!("{} {} (1.7.2, Debian)", self.name(), env!("CARGO_PKG_VERSION"))
            }
            Self::BittorrentTracker => "bittorrent-tracker 11.2.3 (npm)".into(),
            _ => format!("{} 0.9.0 (cargo)", self.name()),
        }
    }

    /// Returns its configuration: no logging, one worker.
    fn configuration(self, certificate: &Certificate) -> String {
        let address = self.address();
        let Certificate { chain, key, .. } = certificate;
        let aquatic = |network: &str| {
            format!("log_level = \"off\"\n[network]\naddress = \"{address}\"\n{network}\n")
        };
        let tidegate = |more: &str| {
            // With TLS, or hitch, before it.
            let address = if self.is_secure() { Self::Tidegate.address() } else { address };
            format!(
                "[udp]\nlisten = [\"{address}\"]\nworkers = 1\n[http]\nlisten = [\"{address}\"]\nworkers = 1\n\
                 websocket_messages_per_s = 0\n[admin]\nlisten = []\n[log]\nlevel = \"warn\"\n{more}"
            )
        };
        match self {
            Self::Tidegate | Self::HitchTidegate => tidegate(""),
            Self::TidegateTls => tidegate(&format!(
                "[tls]\nlisten = [\"{address}\"]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
            )),
            Self::TidegateLimited => tidegate(
                "[limits]\nexempt = []\nannounces_per_s = 1000000\nscrapes_per_s = 1000000\n\
                 connects_per_s = 1000000\n",
            ),
            Self::AquaticUdp => aquatic("use_io_uring = false"),
            Self::AquaticUdpUring => aquatic("use_io_uring = true"),
            Self::AquaticHttp | Self::AquaticWs => aquatic("enable_tls = false"),
            Self::AquaticHttpTls => aquatic(&format!(
                "enable_tls = true\ntls_certificate_path = {chain:?}\ntls_private_key_path = {key:?}"
            )),
            // Its script has no configuration file, only arguments.
            Self::BittorrentTracker => String::new(),
        }
    }

    /// Returns its program and arguments.
    fn command(self, rivals: &Path, configuration: &Path) -> (PathBuf, Vec<OsString>) {
        let configured = |program: PathBuf, words: &[&str]| {
            let words = words.iter().map(OsString::from);
            (program, words.chain([configuration.into()]).collect())
        };
        match self {
            Self::Tidegate | Self::TidegateLimited | Self::TidegateTls | Self::HitchTidegate => {
                configured(release().join("tidegate"), &["serve", "--config"])
            }
            Self::AquaticUdp | Self::AquaticUdpUring => {
                configured(rivals.join("aquatic_udp"), &["-c"])
            }
            Self::AquaticHttp | Self::AquaticHttpTls => {
                configured(rivals.join("aquatic_http"), &["-c"])
            }
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
        let certificate = Certificate::within(&folder()?)?;
        let configuration = folder()?.join("tracker.toml");
        fs::write(&configuration, self.configuration(&certificate))?;
        let (program, arguments) = self.command(rivals, &configuration);
        let mut running = Running { children: vec![start(&program, &arguments)?] };
        if self == Self::HitchTidegate {
            let arguments = hitch(self.address(), certificate.both);
            running.children.push(start(Path::new(HITCH), &arguments)?);
        }
        running.wait_until_it_listens(self)?;
        Ok(running)
    }
}

/// Debian's hitch, whose folder is not in the PATH of all users.
const HITCH: &str = "/usr/sbin/hitch";

/// hitch's arguments, in front of tidegate.
fn hitch(address: &str, pem: PathBuf) -> Vec<OsString> {
    let place = |address: &str| match address.split_once(':') {
        Some((host, port)) => format!("[{host}]:{port}"),
        None => address.to_owned(),
    };
    let (frontend, backend) = (place(address), place(Subject::Tidegate.address()));
    let words = format!(
        "--frontend={frontend} --backend={backend} --workers=1 --backlog=4096 --quiet \
         --user=nobody --group=nogroup"
    );
    words.split(' ').map(OsString::from).chain([pem.into()]).collect()
}

/// Starts a tracker on core 0. Its configuration file is the last argument.
pub(super) fn spawn(program: &Path, arguments: &[&str], configuration: &str) -> Result<Running> {
    let file = folder()?.join("tracker.toml");
    fs::write(&file, configuration)?;
    let arguments = arguments.iter().map(OsString::from).chain([file.into()]);
    Ok(Running { children: vec![start(program, &arguments.collect::<Vec<_>>())?] })
}

/// Starts tidegate on core 0 with this number of workers for UDP and for HTTP, and `more` in its
/// configuration. Waits until it serves.
pub(super) fn serve(address: &str, workers: u32, more: &str) -> Result<Running> {
    let configuration = format!(
        "[udp]\nlisten = [\"{address}\"]\nworkers = {workers}\n[http]\nlisten = [\"{address}\"]\n\
         workers = {workers}\n{more}"
    );
    let mut running = spawn(&release().join("tidegate"), &["serve", "--config"], &configuration)?;
    // It may have to read millions of records first.
    running
        .wait_until(Duration::from_secs(60), "tidegate", || TcpStream::connect(address).is_ok())?;
    Ok(running)
}

/// The folder of trackers' configuration and output.
fn folder() -> Result<PathBuf> {
    let folder = root().join("target/bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn start(program: &Path, arguments: &[OsString]) -> Result<Process> {
    // Allow as many connections as the system permits; not every tracker raises the limit itself.
    let raise = "ulimit -n \"$(ulimit -Hn)\"; exec \"$@\"";
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "sh", "-c", raise, "sh"]).arg(program).args(arguments);
    command.env("TIDEGATE_ADMIN_TOKEN", TOKEN).stdin(Stdio::null());
    Process::start(command, &folder()?, "tracker")
        .with_context(|| format!("cannot start {}", program.display()))
}

impl Running {
    /// Waits until it listens. A tracker without TCP is recognized by its open UDP socket.
    fn wait_until_it_listens(&mut self, subject: Subject) -> Result<()> {
        self.wait_until(Duration::from_secs(10), subject.name(), || match subject {
            Subject::AquaticUdp | Subject::AquaticUdpUring => {
                // 3001 is 0BB9 in the kernel's table.
                let table = fs::read_to_string("/proc/net/udp").unwrap_or_default();
                table.contains("0100007F:0BB9")
            }
            _ => TcpStream::connect(subject.address()).is_ok(),
        })
    }

    fn wait_until(
        &mut self,
        patience: Duration,
        name: &str,
        is_ready: impl Fn() -> bool,
    ) -> Result<()> {
        let [children @ .., last] = &mut self.children[..] else { bail!("no process was started") };
        last.wait_until(&format!("{name} to listen"), patience, |_| is_ready())?;
        children.iter_mut().try_for_each(Process::check)?;
        // The time it gets to shut down.
        sleep(Duration::from_millis(300));
        Ok(())
    }

    /// Returns the tracker's process id, which is that of taskset and sh, since they exec it.
    pub(super) fn pid(&self) -> u32 {
        self.children[0].id()
    }

    /// Returns the CPU time of all processes so far, and their peak resident sizes.
    pub(super) fn used(&self) -> Result<Used> {
        let mut sum = Used { user_s: 0.0, system_s: 0.0, peak_kib: 0 };
        for process in self.children.iter().flat_map(processes) {
            let used = used(&process)?;
            sum.user_s += used.user_s;
            sum.system_s += used.system_s;
            sum.peak_kib += used.peak_kib;
        }
        Ok(sum)
    }
}

/// Returns the ids of a process and of its children: hitch has one for each worker.
fn processes(child: &Process) -> Vec<String> {
    let id = child.id().to_string();
    let list = Path::new("/proc").join(&id).join("task").join(&id).join("children");
    let started = fs::read_to_string(list).unwrap_or_default();
    std::iter::once(id).chain(started.split_whitespace().map(str::to_owned)).collect()
}

/// Returns the resources that one process has used.
fn used(process: &str) -> Result<Used> {
    let folder = Path::new("/proc").join(process);
    let stat = fs::read_to_string(folder.join("stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no process name in stat")?;
    // User and system time are fields 14 and 15 of proc(5); the first after the name is 3.
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    let [user, system] = ticks[..] else { bail!("stat is truncated") };
    let status = fs::read_to_string(folder.join("status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
    // Linux counts CPU time for user space in hundredths of a second.
    Ok(Used { user_s: user / 100.0, system_s: system / 100.0, peak_kib: peak_kib.unwrap_or(0) })
}

impl Drop for Running {
    fn drop(&mut self) {
        // All results are taken, so ignore processes that have ended. Parents end before their children.
        let all: Vec<String> = self.children.iter().flat_map(processes).collect();
        for process in all {
            let _ = Command::new("sh").args(["-c", "kill -KILL \"$0\"", &process]).status();
        }
        self.children.iter_mut().for_each(Process::kill);
    }
}
