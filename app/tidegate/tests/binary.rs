//! The binary from outside: started as an operator would, asked as a client would.

#![allow(clippy::unwrap_used, reason = "what goes wrong here fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(40);
const HASH: &str = "%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab%ab";

/// A folder of this test alone, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running tracker on ports of its own.
struct Tracker {
    child: Child,
    folder: Folder,
    config: String,
    port: u16,
    admin: u16,
}

impl Tracker {
    /// Starts one with `more` in its configuration, and waits until it is ready.
    fn start(folder: Folder, more: &str) -> Self {
        let (port, admin) = (free_port(), free_port());
        let config = format!(
            "[udp]\nlisten = [\"127.0.0.1:{port}\"]\nworkers = 1\n[http]\nlisten = [\"127.0.0.1:{port}\"]\n\
             workers = 1\n[admin]\nlisten = [\"127.0.0.1:{admin}\"]\n{more}"
        );
        let file = folder.write("tidegate.toml", &config);
        let log = fs::File::create(folder.0.join("log")).unwrap();
        let mut command = tidegate(&["serve", "--config"]);
        let child = command.arg(file).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let tracker = Self { child, folder, config, port, admin };
        tracker.wait_for("readiness", |tracker| {
            tracker.get(tracker.admin, "/health/ready").starts_with("HTTP/1.1 200")
        });
        tracker
    }

    fn wait_for(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "no {what}: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.0.join("log")).unwrap()
    }

    /// The answer to a GET; empty if nobody listens.
    fn get(&self, port: u16, target: &str) -> String {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            return String::new();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        text(&bytes)
    }

    fn announce(&self, port: u16) -> String {
        let query = format!("info_hash={HASH}&peer_id=-TG0001-abcdefghijkl&port={port}&left=1");
        self.get(self.port, &format!("/announce?{query}"))
    }

    /// Announces over UDP and gives the answer.
    fn announce_udp(&self) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let exchange = |request: &[u8]| {
            socket.send(request).unwrap();
            let mut buffer = [0; 2000];
            let len = socket.recv(&mut buffer).unwrap();
            buffer[..len].to_vec()
        };
        let mut connect = 0x417_2710_1980_u64.to_be_bytes().to_vec();
        connect.extend([0, 0, 0, 0, 0, 0, 0, 7]);
        let id = exchange(&connect)[8..16].to_vec();
        let mut request = id;
        request.extend([0, 0, 0, 1, 0, 0, 0, 8]);
        request.extend([0xab; 20]);
        request.extend([b'u'; 20]);
        request.extend([0; 36]);
        request[71] = 1;
        request.extend(50_u32.to_be_bytes());
        request.extend(4242_u16.to_be_bytes());
        assert_eq!(request.len(), 98);
        exchange(&request)
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn metric(&self, series: &str) -> f64 {
        let page = self.get(self.admin, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(f64::NAN)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn udp_and_http_clients_meet_and_are_counted() {
    let mut tracker = Tracker::start(Folder::new(), "");
    assert!(tracker.announce(1111).contains("5:peers0:"));
    let udp = tracker.announce_udp();
    assert_eq!(udp[..4], [0, 0, 0, 1]);
    assert_eq!(udp[8..20], [0, 0, 7, 8, 0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(udp[20..], [127, 0, 0, 1, 4, 87]);
    assert!(tracker.announce(2222).contains("10:incompletei3e"));
    for (protocol, count) in [("udp", 1.0), ("http", 2.0)] {
        let series = format!(
            "tidegate_requests_total{{listener=\"127.0.0.1:{}\",protocol=\"{protocol}\",family=\"v4\",kind=\"announce\"}}",
            tracker.port
        );
        tracker.wait_for("count", |tracker| tracker.metric(&series) == count);
    }
    assert_eq!(tracker.metric("tidegate_peers{family=\"v4\",role=\"leecher\"}"), 3.0);
    assert!(tracker.get(tracker.admin, "/nothing").starts_with("HTTP/1.1 404"));
    tracker.signal("-TERM");
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = tracker.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0), "{}", tracker.log());
}

#[test]
fn lists_are_followed_and_a_bad_one_leaves_the_old_in_force() {
    let folder = Folder::new();
    let list = folder.write("deny", "# nobody yet\n");
    let more = format!("[access]\nmode = \"deny\"\ndeny = {list:?}\n");
    let tracker = Tracker::start(folder, &more);
    assert!(tracker.announce(1).contains("8:complete"));
    fs::write(&list, "ab".repeat(20)).unwrap();
    tracker.wait_for("refusal", |tracker| tracker.announce(1).contains("deny list"));
    let udp = tracker.announce_udp();
    assert_eq!(udp[..4], [0, 0, 0, 3], "{}", text(&udp));
    fs::write(&list, format!("{}\nnonsense\n", "00".repeat(20))).unwrap();
    tracker.wait_for("complaint", |tracker| tracker.log().contains("deny: line 2: "));
    assert!(tracker.announce(1).contains("deny list"));
    assert_eq!(tracker.metric("tidegate_reload_failures_total"), 1.0);
    fs::write(&list, "").unwrap();
    tracker.signal("-HUP");
    tracker.wait_for("admission", |tracker| tracker.announce(1).contains("8:complete"));
}

#[test]
fn a_hangup_reloads_all_or_nothing() {
    let tracker = Tracker::start(Folder::new(), "[tracker]\ninterval_s = 1000\n");
    assert!(tracker.announce(1).contains("8:intervali1000e"));
    tracker.folder.write("tidegate.toml", &tracker.config.replace("1000", "\"no\""));
    tracker.signal("-HUP");
    tracker
        .wait_for("complaint", |tracker| tracker.log().contains("tracker.interval_s = `\"no\"`"));
    assert!(tracker.announce(1).contains("8:intervali1000e"));
    tracker.folder.write("tidegate.toml", &tracker.config.replace("1000", "77"));
    tracker.signal("-HUP");
    tracker.wait_for("new interval", |tracker| tracker.announce(1).contains("8:intervali77e"));
}

#[test]
fn a_port_that_is_taken_is_named_with_a_remedy() {
    let tracker = Tracker::start(Folder::new(), "");
    let output = run(&["serve", "--config", config_of(&tracker)]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains(&tracker.port.to_string()) && said.contains("taken"), "{said}");
    assert_eq!(run(&["config", "check", "--config", config_of(&tracker)]).status.code(), Some(1));
}

fn config_of(tracker: &Tracker) -> &str {
    // Lives as long as the test; the path is text because this file made it.
    let path = tracker.folder.0.join("tidegate.toml");
    Box::leak(path.to_str().unwrap().to_owned().into_boxed_str())
}

#[test]
fn configuration_is_written_shown_and_checked() {
    let folder = Folder::new();
    let file = folder.0.join("new.toml");
    let file = file.to_str().unwrap();
    assert!(run(&["config", "init", file]).status.success());
    let again = run(&["config", "init", file]);
    assert!(!again.status.success() && text(&again.stderr).contains("--force"));
    assert!(run(&["config", "init", "--force", file]).status.success());
    assert!(Path::new(file).exists());
    let mut show = tidegate(&["config", "show", "--config", file]);
    let shown = show.env("TIDEGATE_TRACKER__INTERVAL_S", "60").output().unwrap();
    assert!(
        text(&shown.stdout).contains("tracker.interval_s = 60  # TIDEGATE_TRACKER__INTERVAL_S")
    );
    let wrong = folder.write("wrong.toml", "[tracker]\nintervall_s = 5\n");
    let output = run(&["serve", "--config", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let expected =
        "wrong.toml:2: unknown key `tracker.intervall_s`: did you mean `tracker.interval_s`?";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    let missing =
        folder.write("list.toml", "[access]\nmode = \"allow\"\nallow = \"/no/such/list\"\n");
    let output = run(&["serve", "--config", missing.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("/no/such/list"), "{}", text(&output.stderr));
    assert_eq!(run(&["no-such-task"]).status.code(), Some(2));
}
