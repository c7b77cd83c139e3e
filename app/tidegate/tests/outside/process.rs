//! A running tidegate, and a directory for its files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// A port that was free a moment ago for both protocols and both families.
pub(crate) fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let tcp_v6 = TcpListener::bind(("::1", port));
        let udp_v6 = UdpSocket::bind(("::1", port));
        if udp.is_ok() && tcp_v6.is_ok() && udp_v6.is_ok() {
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
}

impl Tracker {
    /// Serves on the loopback addresses of both families with `more` behind the listeners in its
    /// configuration. Lists that `more` names must be there already.
    pub(crate) fn start(directory: Directory, more: &str) -> Self {
        Self::start_with(directory, more, &[])
    }

    /// The same with `variables` in its environment.
    pub(crate) fn start_with(directory: Directory, more: &str, variables: &[(&str, &str)]) -> Self {
        let (port, admin_port) = (free_port(), free_port());
        let file = directory.write("tidegate.toml", &config(port, admin_port, more));
        let mut child = tidegate(&["--config", file.to_str().unwrap()])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let (pipe, sink) = (child.stderr.take().unwrap(), Arc::clone(&stderr));
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                sink.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut tracker = Self { child, directory, port, admin_port, stderr };
        // The start prints its listeners once all of them are bound.
        let mut out = BufReader::new(tracker.child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("tidegate "), "{line}{}", tracker.stderr());
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        tracker.wait_until("ready", |it| it.admin("/health/ready").0 == 200);
        tracker
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

    /// Status and body of a page of the admin listener.
    pub(crate) fn admin(&self, target: &str) -> (u16, String) {
        let (status, body) = talk::http(([127, 0, 0, 1], self.admin_port).into(), target);
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

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "waited in vain: {what}\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
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
    }
}

pub(crate) fn config(port: u16, admin_port: u16, more: &str) -> String {
    format!(
        "[udp]\nlisten = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]\nworkers = 2\n\
         receive_buffer_bytes = 65536\n\
         [http]\nlisten = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]\nworkers = 2\n\
         [admin]\nlisten = [\"127.0.0.1:{admin_port}\"]\n{more}"
    )
}
