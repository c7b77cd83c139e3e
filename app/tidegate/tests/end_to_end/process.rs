//! The binary, run to its end or serving until a test is over.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use crate::site;

pub(crate) use harness::{PATIENCE, Signal, is_alive, is_listening, unused_address};

/// Returns the value of a field of a file such as `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<String> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// A directory that is removed at the end of its test.
pub(crate) struct Directory(harness::Directory);

impl Directory {
    pub(crate) fn new() -> Self {
        Self(harness::Directory::within(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Writes a file, replacing an old one as a whole.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.0.write(name, text).unwrap()
    }
}

/// The binary with the constants of its configuration as settings, and without variables of this process that configure
/// it, by itself or for a service manager.
pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = tidegate_of_users(arguments);
    harness::set_test_variables(&mut command);
    command
}

/// The same as users run it: constants are no settings.
pub(crate) fn tidegate_of_users(arguments: &[&str]) -> Command {
    const CONFIGURES: [&str; 5] =
        ["TIDEGATE_", "STATE_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // Not in the home of the user who runs the tests.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    for (name, _) in std::env::vars_os() {
        if CONFIGURES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn link_binary(link: &Path) {
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), link).unwrap();
}

/// Runs the binary to its end, which must come soon.
pub(crate) fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().unwrap()
}

/// Runs a command to its end with `input` on its standard input. It need not read everything.
pub(crate) fn run_with_input(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}; cargo xtask setup"));
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A tracker that serves until it is dropped.
pub(crate) struct Tracker {
    tracker: harness::Tracker,
    pub(crate) directory: Directory,
}

impl Tracker {
    /// Serves at the [`site`]'s addresses of both families with `more` behind the listeners in its
    /// configuration. Lists that `more` names must exist already.
    pub(crate) fn start(directory: Directory, more: &str) -> Self {
        Self::start_by(tidegate(&[]), directory, more)
    }

    /// The same with `variables` in its environment.
    pub(crate) fn start_with(directory: Directory, more: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = tidegate(&[]);
        command.envs(variables.iter().copied());
        Self::start_by(command, directory, more)
    }

    /// The same by a command of the test's own.
    pub(crate) fn start_by(command: Command, directory: Directory, more: &str) -> Self {
        let configuration = config(0, 0, more);
        let tracker = site::start(command, directory.0.root(), &configuration);
        Self { tracker: tracker.unwrap(), directory }
    }

    /// The same by a link to the binary, as where several versions are installed. Returns the link, too.
    pub(crate) fn start_by_link(directory: Directory) -> (Self, PathBuf) {
        let link = directory.path("tidegate");
        link_binary(&link);
        let mut command = Command::new(&link);
        command.stdin(Stdio::null());
        (Self::start_by(command, directory, ""), link)
    }

    /// The id of the process that serves.
    pub(crate) fn pid(&self) -> u32 {
        self.tracker.pid()
    }

    /// Has a new process take over, and waits until the old one has ended.
    pub(crate) fn upgrade(&self) {
        self.tracker.upgrade().unwrap();
    }

    /// Like [`Self::upgrade`], begun by `begin`.
    pub(crate) fn upgrade_by(&self, begin: impl FnOnce()) {
        let begin = || {
            begin();
            Ok(())
        };
        self.tracker.upgrade_by(begin).unwrap();
    }

    /// A line of `/proc/PID/status`.
    pub(crate) fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        field(&status, name).unwrap()
    }

    /// Returns the different values of a field of `/proc/PID/task/*/status`: of all threads.
    pub(crate) fn status_of_threads(&self, name: &str) -> BTreeSet<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // A thread may end meanwhile.
        let texts =
            threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("status")).ok());
        texts.filter_map(|status| field(&status, name)).collect()
    }

    /// Replaces what follows the listeners in its configuration file.
    pub(crate) fn configure(&self, more: &str) {
        self.tracker.configure(&config(0, 0, more)).unwrap();
    }

    /// Where it listens for UDP over IPv4.
    pub(crate) fn udp4(&self) -> SocketAddr {
        self.listener("udp", site::tracker(1))
    }

    pub(crate) fn udp6(&self) -> SocketAddr {
        self.listener("udp", site::tracker_v6())
    }

    pub(crate) fn http4(&self) -> SocketAddr {
        self.listener("http", site::tracker(1))
    }

    pub(crate) fn http6(&self) -> SocketAddr {
        self.listener("http", site::tracker_v6())
    }

    /// Where it listens for `udp`, `http` or `https` at an IP address.
    pub(crate) fn listener(&self, kind: &str, ip: impl Into<IpAddr>) -> SocketAddr {
        let ip = ip.into();
        let address = self.tracker.address(kind, ip);
        address.unwrap_or_else(|| panic!("no {kind} at {ip}: {:?}", self.tracker.listeners()))
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.tracker.admin_address().unwrap()
    }

    /// Status and body of a page of the admin listener.
    pub(crate) fn admin(&self, target: &str) -> (u16, String) {
        let response = self.tracker.admin(target).unwrap();
        (response.status, response.text())
    }

    /// The value of a metric; `series` is its name with all its labels.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, page) = self.admin("/metrics");
        let value = harness::metrics::value(&page, series);
        value.unwrap_or_else(|| panic!("no {series} in\n{page}"))
    }

    /// The sum of a metric over all series that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.tracker.metric(name, labels).unwrap()
    }

    /// Returns the text it has written to standard output.
    pub(crate) fn output(&self) -> String {
        self.tracker.stdout()
    }

    /// Returns the text it has written to standard error.
    pub(crate) fn log(&self) -> String {
        self.tracker.stderr()
    }

    /// Waits until its log contains `text`: it may be written later than a request is answered.
    pub(crate) fn wait_for_log(&self, text: &str) {
        self.wait_until(text, |tracker| tracker.log().contains(text));
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        self.tracker.wait_until(what, |_| is_so(self)).unwrap();
    }

    /// Kills the process that serves, whichever has taken over, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.tracker.kill();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.tracker.signal(signal).unwrap();
    }

    /// Has it read its configuration again, and does not wait until that is done.
    pub(crate) fn reload(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Replaces what follows the listeners in its configuration file, and waits until that is in force.
    pub(crate) fn reload_with(&self, more: &str) {
        let reloads = |it: &Self| it.metric("tidegate_reloads_total");
        let before = reloads(self);
        self.configure(more);
        self.reload();
        self.wait_until("reloaded", |it| reloads(it) == before + 1.0);
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Waits for the end of the first process.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        self.tracker.wait_for_end().unwrap()
    }
}

/// Starts a tracker with `more` behind the listeners in its configuration.
pub(crate) fn start(more: &str) -> Tracker {
    Tracker::start(Directory::new(), more)
}

/// A configuration with listeners at the [`site`]'s addresses, those of IPv4 on these ports.
pub(crate) fn config(port: u16, admin_port: u16, more: &str) -> String {
    site::configuration(port, admin_port) + more
}
