//! A running tidegate, and a directory for its files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::talk;

/// How long something may take before its test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes away with its test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("outside-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Replaces a file as a whole, as careful operators do.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, fresh) = (self.path(name), self.path(&format!("{name}.new")));
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The binary with no variables of ours but those that the test sets.
pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary to its end, which must come soon.
pub(crate) fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A port that was free a moment ago for both protocols and both families. None that the system
/// gives to clients: those of another test could have it by the time that it is used.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Several runs at once begin at different places.
        let place =
            std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + place % COUNT).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let tcp_v6 = TcpListener::bind(("::1", port));
        let udp_v6 = UdpSocket::bind(("::1", port));
        if tcp.is_ok() && udp.is_ok() && tcp_v6.is_ok() && udp_v6.is_ok() {
            return port;
        }
    }
}

/// A tracker that serves until it is dropped.
pub(crate) struct Tracker {
    child: Child,
    pub(crate) directory: Directory,
    pub(crate) port: u16,
    admin_port: u16,
    stderr: Arc<Mutex<String>>,
    /// Processes that have taken over from the first, and are nobody's children.
    successors: Mutex<Vec<u32>>,
}

impl Tracker {
    /// Serves on the loopback addresses of both families with `more` behind the listeners in its
    /// configuration. Lists that `more` names must be there already.
    pub(crate) fn start(directory: Directory, more: &str) -> Self {
        Self::start_as(tidegate(&[]), directory, free_port(), more)
    }

    /// The same with `variables` in its environment.
    pub(crate) fn start_with(directory: Directory, more: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = tidegate(&[]);
        command.envs(variables.iter().copied());
        Self::start_as(command, directory, free_port(), more)
    }

    /// The same by a command of the test's own, on `port`. Its standard output is looked at, unless
    /// it is not one: a command that needs it starts with a shell.
    pub(crate) fn start_as(
        mut command: Command,
        directory: Directory,
        port: u16,
        more: &str,
    ) -> Self {
        let admin_port = free_port();
        let file = directory.write("tidegate.toml", &config(port, admin_port, more));
        if command.get_program() != "sh" {
            command.stdout(Stdio::piped());
        }
        let mut child = command.arg("--config").arg(file).stderr(Stdio::piped()).spawn().unwrap();
        // It may hold sockets of the test.
        drop(command);
        let stderr = Arc::new(Mutex::new(String::new()));
        let (pipe, sink) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                sink.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let successors = Mutex::default();
        let mut tracker = Self { child, directory, port, admin_port, stderr, successors };
        if let Some(out) = tracker.child.stdout.take() {
            // The start prints its listeners once all of them are bound.
            let mut out = BufReader::new(out);
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            assert!(line.starts_with("tidegate "), "{line}{}", tracker.stderr());
            std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        }
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port));
        tracker.wait_until("listening", |_| TcpStream::connect(admin).is_ok());
        tracker.wait_until("ready", |it| it.admin("/health/ready").0 == 200);
        tracker
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> u32 {
        self.successors.lock().unwrap().last().copied().unwrap_or_else(|| self.child.id())
    }

    /// Has a new process take over, and waits until the old one is gone.
    pub(crate) fn upgrade(&self) {
        let old = self.pid();
        self.signal("-USR2");
        let successor = |it: &Self| -> Option<u32> {
            let (all, known) = (it.stderr(), it.successors.lock().unwrap().len());
            let mut said =
                all.lines().filter_map(|line| line.strip_suffix(" has taken over: stopping"));
            said.nth(known)?.rsplit(' ').next()?.parse().ok()
        };
        self.wait_until("a successor", |it| successor(it).is_some());
        let new = successor(self).unwrap();
        self.successors.lock().unwrap().push(new);
        self.wait_until("the old one gone", |_| !is_alive(old));
        assert!(is_alive(new), "{}", self.stderr());
    }

    /// A line of what the system tells about the process that serves.
    pub(crate) fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }

    /// Writes the configuration anew, with other settings behind the same listeners.
    pub(crate) fn configure(&self, more: &str) {
        self.directory.write("tidegate.toml", &config(self.port, self.admin_port, more));
    }

    pub(crate) fn v4(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn v6(&self) -> SocketAddr {
        ([0, 0, 0, 0, 0, 0, 0, 1], self.port).into()
    }

    /// Where the admin listener is.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.admin_port).into()
    }

    /// Status and body of a page of the admin listener.
    pub(crate) fn admin(&self, target: &str) -> (u16, String) {
        let (status, body) = talk::http(self.admin_address(), target);
        (status, String::from_utf8(body).unwrap())
    }

    /// A figure of the metrics; `series` is its name with all its labels.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, page) = self.admin("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
    }

    /// What has come over standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until it has said this: what it writes may come later than what it answers.
    pub(crate) fn has_said(&self, text: &str) {
        self.wait_until(text, |tracker| tracker.stderr().contains(text));
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited in vain: {what}\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for the end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.successors.lock().unwrap().iter().filter(|pid| is_alive(**pid)) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}

/// Whether a process of ours runs, and has not only been left to be buried.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.split_once("(tidegate) ").map(|(_, rest)| rest);
    state.is_some_and(|state| !state.starts_with('Z'))
}

pub(crate) fn config(port: u16, admin_port: u16, more: &str) -> String {
    format!(
        "[udp]\nlisten = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]\nworkers = 2\n\
         receive_buffer_bytes = 65536\n\
         [http]\nlisten = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]\nworkers = 2\n\
         [admin]\nlisten = [\"127.0.0.1:{admin_port}\"]\n{more}"
    )
}
