//! `tidegate top`: once as text, and in a terminal.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::admin_command::{Served, VARIABLE};
use crate::api::TOKEN;
use crate::clients::http_announce;
use crate::process::{PATIENCE, stderr, stdout, tidegate};

fn run(served: &Served, more: &[&str]) -> Output {
    let mut command = tidegate(&["top", "--url", &served.url()]);
    command.args(more).env(VARIABLE, TOKEN).output().unwrap()
}

#[test]
fn prints_one_frame_as_text() {
    let served = Served::denying();
    let denied = "aa".repeat(20);
    let denied = tidegate(&["admin", "--url", &served.url(), "lists", "deny", "add", &denied])
        .env(VARIABLE, TOKEN)
        .output()
        .unwrap();
    assert!(denied.status.success(), "{}", stderr(&denied));
    http_announce(served.tracker.http4(), 0xbb, 1);
    // Until a frame covers refusals of its last five seconds.
    let deadline = Instant::now() + PATIENCE;
    let text = loop {
        http_announce(served.tracker.http4(), 0xaa, 1);
        let output = run(&served, &["--once"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        if text.contains("denied 1") && text.contains("\ndenied ") || Instant::now() > deadline {
            break text;
        }
    };
    assert!(!text.contains('\u{1b}'), "{text}");
    let version = concat!("tidegate ", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(version), "{text}");
    for expected in [
        "\ndenied ",
        "torrents 1 ",
        "peers 1 ",
        "denied 1",
        "torrents by seeders",
        &"bb".repeat(20),
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let refused = run(&served, &[]);
    assert_eq!(refused.status.code(), Some(2), "a pipe is no terminal");
    assert!(stderr(&refused).contains("--once"), "{}", stderr(&refused));
}

#[test]
fn reports_a_bad_token_and_an_unreachable_tracker() {
    let served = Served::start("");
    let run = |url: &str, token: &str| {
        let mut command = tidegate(&["top", "--once", "--url", url]);
        let output = command.env(VARIABLE, token).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, message) = run(&served.url(), &TOKEN.replace("01", "02"));
    assert_eq!((code, message.contains("Unauthorized")), (Some(1), true), "{message}");
    let (code, message) = run("http://127.0.0.1:1", TOKEN);
    assert_eq!((code, message.contains("cannot reach")), (Some(1), true), "{message}");
}

/// A shell in a terminal of 24 lines and 90 columns.
struct Terminal {
    child: Child,
    seen: Arc<Mutex<String>>,
}

impl Terminal {
    fn run(command: &str) -> Self {
        let line = format!(
            "stty rows 24 cols 90; stty -a | cksum; {command}; echo \"code $?\"; stty -a | cksum"
        );
        let mut child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .envs([(VARIABLE, TOKEN), ("TERM", "xterm-256color")])
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut out, sink) = (child.stdout.take().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = out.read(&mut bytes)
                && len > 0
            {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Self { child, seen }
    }

    fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    fn press(&mut self, key: &str) {
        let keys = self.child.stdin.as_mut().unwrap();
        keys.write_all(key.as_bytes()).and_then(|()| keys.flush()).unwrap();
    }

    fn wait_for(&self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.seen().contains(what) {
            assert!(Instant::now() < deadline, "waited in vain: {what}\n{}", self.seen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end and checks that the terminal was restored. Returns all output.
    fn end(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end\n{}", self.seen());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.wait_for("code 0");
        let seen = self.seen();
        let sums = seen.lines().filter(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() == 2 && words.iter().all(|word| word.parse::<u64>().is_ok())
        });
        let sums: Vec<_> = sums.map(str::trim).collect();
        assert!(sums.len() == 2 && sums[0] == sums[1], "{sums:?}\n{seen}");
        assert!(seen.contains("\u{1b}[?1049h") && seen.contains("\u{1b}[?1049l"), "{seen}");
        assert!(seen.contains("\u{1b}[?25l") && seen.contains("\u{1b}[?25h"), "{seen}");
        seen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(served: &Served) -> String {
    format!("{} top --url {}", env!("CARGO_BIN_EXE_tidegate"), served.url())
}

#[test]
fn restores_the_terminal() {
    let served = Served::start("");
    http_announce(served.tracker.http4(), 0xbb, 1);
    let mut terminal = Terminal::run(&command(&served));
    terminal.wait_for("torrents by seeders");
    terminal.wait_for(&"bb".repeat(20));
    terminal.press("l");
    terminal.wait_for("torrents by leechers");
    terminal.press("q");
    let seen = terminal.end();
    assert!(seen.contains("\u{1b}[1mtidegate "), "it is in bold");
}

#[test]
fn ends_on_control_c_and_obeys_no_color() {
    let served = Served::start("");
    let mut terminal = Terminal::run(&format!("NO_COLOR=1 {}", command(&served)));
    terminal.wait_for("torrents by seeders");
    terminal.press("\u{3}");
    let seen = terminal.end();
    for colour in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[38;"] {
        assert!(!seen.contains(colour), "{colour:?}");
    }
}

#[test]
fn reports_a_tracker_that_has_ended() {
    let mut served = Served::start("");
    let mut terminal = Terminal::run(&command(&served));
    terminal.wait_for("torrents by seeders");
    served.tracker.stop();
    served.tracker.wait_for_end();
    terminal.wait_for("no data: ");
    terminal.press("q");
    terminal.end();
}

/// Without SIGHUP, only the end of its input tells it that the terminal is gone.
#[test]
fn ends_when_its_terminal_is_closed_and_hangups_are_ignored() {
    let served = Served::start("");
    let command = format!("trap '' HUP; echo \"pid $$ \"; exec {}", command(&served));
    let mut terminal = Terminal::run(&format!("bash -c {}", quoted(&command)));
    terminal.wait_for("torrents by seeders");
    let seen = terminal.seen();
    let pid = seen.split("pid ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let status = Path::new("/proc").join(pid).join("stat");
    let is_running = || fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z "));
    assert!(is_running(), "{seen}");
    terminal.child.kill().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while is_running() {
        assert!(Instant::now() < deadline, "it did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
