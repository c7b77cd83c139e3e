//! A running tidegate.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

#[cfg(target_os = "linux")]
use crate::network::Namespace;
use crate::{PATIENCE, Process, http, is_alive, metrics, signal, wait_for};

/// A tracker that is killed when dropped, with the processes that have taken over from it.
#[derive(Debug)]
pub struct Tracker {
    process: Process,
    configuration: PathBuf,
    listeners: Mutex<Vec<Listener>>,
    /// Processes that have taken over from the first. They are children of the launcher, not ours.
    successors: Mutex<Vec<u32>>,
}

/// A socket that the tracker says it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `udp`, `http`, `https` or `admin`.
    pub kind: String,
    /// With the port that was bound, whatever the configuration says.
    pub address: SocketAddr,
}

/// Pause between two checks of a condition.
const POLL_PERIOD: Duration = Duration::from_millis(20);

impl Tracker {
    /// Writes `configuration` to `folder`, runs `command` with `--config` and that file behind its other
    /// arguments, and waits until it serves. What it writes goes to `tracker.out` and `tracker.log`.
    ///
    /// # Errors
    ///
    /// If it cannot be started, ends, or does not serve within [`PATIENCE`].
    pub fn start(command: Command, folder: &Path, configuration: &str) -> Result<Self> {
        Self::start_by(Process::start, command, folder, configuration)
    }

    /// As [`Self::start`], inside of a namespace. This thread must be able to reach its admin listener.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    #[cfg(target_os = "linux")]
    pub fn start_in(
        namespace: &Namespace,
        command: Command,
        folder: &Path,
        configuration: &str,
    ) -> Result<Self> {
        let start = |command, folder: &Path, name: &str| {
            let _inside = namespace.enter()?;
            Process::start(command, folder, name)
        };
        Self::start_by(start, command, folder, configuration)
    }

    fn start_by(
        start: impl FnOnce(Command, &Path, &str) -> Result<Process>,
        mut command: Command,
        folder: &Path,
        configuration: &str,
    ) -> Result<Self> {
        let file = folder.join("tidegate.toml");
        fs::write(&file, configuration)?;
        command.arg("--config").arg(&file);
        set_test_variables(&mut command);
        if !names_state(configuration) {
            keep_nothing(&mut command);
        }
        let mut process = start(command, folder, "tracker")?;
        // It prints its listeners when all of them are bound.
        process.wait_until("listeners", PATIENCE, |it| !listeners(&it.stdout()).is_empty())?;
        let listeners = listeners(&process.stdout());
        if let Some(admin) = listeners.iter().find(|listener| listener.kind == "admin") {
            let address = admin.address;
            process.wait_until("ready", PATIENCE, |_| {
                match http::get(address, "/health/ready") {
                    // One that speaks TLS answers with 400; it is ready in a moment.
                    Ok(response) => matches!(response.status, 200 | 400),
                    Err(error) => error.kind() != ErrorKind::ConnectionRefused,
                }
            })?;
        }
        Ok(Self {
            process,
            configuration: file,
            listeners: Mutex::new(listeners),
            successors: Mutex::default(),
        })
    }

    /// Replaces its configuration file as a whole. It is read with the next SIGHUP.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn configure(&self, configuration: &str) -> Result<()> {
        let new = self.configuration.with_extension("new");
        fs::write(&new, configuration)?;
        Ok(fs::rename(new, &self.configuration)?)
    }

    /// The address of the first listener of this kind at this IP address.
    pub fn address(&self, kind: &str, ip: IpAddr) -> Option<SocketAddr> {
        let is_it = |it: &&Listener| it.kind == kind && it.address.ip() == ip;
        self.listeners().iter().find(is_it).map(|it| it.address)
    }

    /// The address of the first admin listener.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.listeners().iter().find(|it| it.kind == "admin").map(|it| it.address)
    }

    /// All listeners, in the order in which they are printed.
    pub fn listeners(&self) -> Vec<Listener> {
        locked(&self.listeners).clone()
    }

    /// The folder of its configuration and its output.
    pub fn folder(&self) -> Option<&Path> {
        self.configuration.parent()
    }

    /// The id of the process that serves.
    pub fn pid(&self) -> u32 {
        locked(&self.successors).last().copied().unwrap_or_else(|| self.process.id())
    }

    /// Returns its standard output so far.
    pub fn stdout(&self) -> String {
        self.process.stdout()
    }

    /// Returns its standard error so far: the log.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// The response to a GET at its admin listener.
    ///
    /// # Errors
    ///
    /// If there is no such listener, or no response comes.
    pub fn admin(&self, target: &str) -> Result<http::Response> {
        Ok(http::get(self.admin_address().context("no admin listener")?, target)?)
    }

    /// The sum of a metric over all series that have these labels.
    ///
    /// # Errors
    ///
    /// As [`Self::admin`], or if no metric has this name.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        metrics::sum(&self.admin("/metrics")?.text(), name, labels)
    }

    /// Waits until `is_so`.
    ///
    /// # Errors
    ///
    /// If that takes longer than [`PATIENCE`]; the error has the log.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            ensure!(Instant::now() < deadline, "waited in vain: {what}\n{}", self.stderr());
            sleep(POLL_PERIOD);
        }
        Ok(())
    }

    /// Sends a signal to the process that serves.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn signal(&self, which: Signal) -> Result<()> {
        signal(self.pid(), which)
    }

    /// Has a new process take over, and waits until the old one has ended.
    ///
    /// # Errors
    ///
    /// If that takes longer than [`PATIENCE`], or the new process has ended, too.
    pub fn upgrade(&self) -> Result<()> {
        self.upgrade_by(|| self.signal(Signal::SIGUSR2))
    }

    /// Like [`Self::upgrade`], begun by `begin`.
    ///
    /// # Errors
    ///
    /// The same, or if `begin` fails.
    pub fn upgrade_by(&self, begin: impl FnOnce() -> Result<()>) -> Result<()> {
        let old = self.pid();
        begin()?;
        let mut new = None;
        self.wait_until("a successor", |it| {
            new = successor(&it.stderr(), |pid| pid != old && is_alive(pid));
            new.is_some()
        })?;
        let new = new.context("no successor")?;
        locked(&self.successors).push(new);
        self.wait_until("the end of the old process", |_| !is_alive(old))?;
        ensure!(is_alive(new), "the new process has ended\n{}", self.stderr());
        *locked(&self.listeners) = listeners(&self.stdout());
        Ok(())
    }

    /// Waits for the end of the first process.
    ///
    /// # Errors
    ///
    /// If it has not ended after [`PATIENCE`].
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        self.process.wait_for_end(PATIENCE)
    }

    /// Stops it as a service manager would.
    ///
    /// # Errors
    ///
    /// Unless it ends with exit code 0 within [`PATIENCE`].
    pub fn stop(mut self) -> Result<()> {
        let serving = self.pid();
        self.signal(Signal::SIGTERM)?;
        let status = self.wait_for_end()?;
        ensure!(status.success(), "the tracker ended with {status} on SIGTERM");
        // A process that has taken over is not a child of ours, and has the ports until it ends.
        self.wait_until("the end of the process that serves", |_| !is_alive(serving))
    }

    /// Kills it, as a crash would end it, and waits for its end.
    pub fn kill(&mut self) {
        for process in locked(&self.successors).drain(..).filter(|it| is_alive(*it)) {
            let _ = signal(process, Signal::SIGKILL);
            let _ = wait_for(PATIENCE, "its end", || Ok(!is_alive(process)));
        }
        self.process.kill();
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes constants of the configuration settings, and intervals exact, in the tracker that `command` starts. A command
/// that sets `TIDEGATE_UNSTABLE_KEYS` itself is left alone.
pub fn set_test_variables(command: &mut Command) {
    const UNSTABLE: &str = "TIDEGATE_UNSTABLE_KEYS";
    if !command.get_envs().any(|(name, value)| name == UNSTABLE && value.is_some()) {
        command.env(UNSTABLE, "1").env("TIDEGATE_TRACKER__INTERVAL_JITTER_S", "0");
    }
}

/// Returns true if a configuration has the key `state.dir`.
fn names_state(configuration: &str) -> bool {
    let section = configuration.split_once("[state]\n").map_or("", |(_, rest)| rest);
    section.lines().take_while(|line| !line.starts_with('[')).any(|line| line.starts_with("dir = "))
}

/// Has the tracker that `command` starts keep nothing, unless the command says where.
fn keep_nothing(command: &mut Command) {
    const STATE: &str = "TIDEGATE_STATE__DIR";
    if !command.get_envs().any(|(name, _)| name == STATE) {
        command.env(STATE, "");
    }
}

/// A lock that a failed test of another thread does not poison.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The process that took over, by the latest line of the log that names one for which `is_new`.
fn successor(log: &str, is_new: impl Fn(u32) -> bool) -> Option<u32> {
    let mut lines = log.lines().rev().filter(|line| line.contains("taken over"));
    let number =
        |line: &str| line.split(' ').filter_map(|word| word.parse().ok()).find(|it| is_new(*it));
    lines.find_map(number)
}

/// The listeners that the latest start has printed, a line each: kind, address, and more. The first
/// line of a start is name and version.
fn listeners(stdout: &str) -> Vec<Listener> {
    // A line that is being written is not yet read.
    let end = stdout.rfind('\n').unwrap_or_default();
    let lines: Vec<&str> = stdout[..end].lines().collect();
    let is_first = |line: &&str| {
        line.strip_prefix("tidegate ")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let start = lines.iter().rposition(is_first).unwrap_or(lines.len());
    lines[start..].iter().filter_map(|line| listener(line)).collect()
}

fn listener(line: &str) -> Option<Listener> {
    let mut words = line.split_whitespace();
    let kind = words.next()?.to_lowercase();
    if !["udp", "http", "https", "admin"].contains(&kind.as_str()) {
        return None;
    }
    // A URL or an address.
    let place = words.next()?;
    let place = place.split_once("://").map_or(place, |(_, rest)| rest);
    let place = place.split('/').next()?;
    Some(Listener { kind, address: place.parse().ok()? })
}
