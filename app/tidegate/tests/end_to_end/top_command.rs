//! `tidegate top`: once as text, and in a terminal.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use harness::wait_until;

use crate::admin_command::{Served, VARIABLE};
use crate::api::{Caller, Events, TOKEN};
use crate::clients::http_announce;
use crate::process::{PATIENCE, is_alive, stderr, stdout, tidegate, unused_address};

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
    // Each second brings a sample, and each fifth one the refusals since the last ones.
    let mut stream = Events::open(&Caller::of(&served.tracker), "/stats/stream");
    loop {
        let data = stream.next();
        http_announce(served.tracker.http4(), 0xaa, 1);
        if data["refusals"]["denied"].is_number() {
            break;
        }
    }
    let output = run(&served, &["--once"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(!text.contains('\u{1b}'), "{text}");
    let version = concat!("tidegate ", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(version), "{text}");
    for expected in [
        "\nTorrents       1 ",
        "\nPeers          1 ",
        "denied 1",
        "\nRefused, by reason",
        "Torrents by seeders",
        "Client software",
        &"bb".repeat(20),
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let refusal = text.lines().skip_while(|line| !line.starts_with("Refused, by reason")).nth(1);
    assert!(refusal.is_some_and(|row| row.to_lowercase().starts_with("denied ")), "{text}");
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
    let (code, message) = run(&format!("http://{}", unused_address()), TOKEN);
    assert_eq!((code, message.contains("cannot reach")), (Some(1), true), "{message}");
}

/// A shell in a terminal of 24 lines and 90 columns.
struct Terminal {
    child: Child,
    screen: Arc<Screen>,
}

/// Output written to the terminal so far, and the condition variable that is notified of more.
#[derive(Default)]
struct Screen {
    seen: Mutex<Seen>,
    more: Condvar,
}

#[derive(Default)]
struct Seen {
    text: String,
    has_ended: bool,
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
        let screen = Arc::<Screen>::default();
        let (mut out, sink) = (child.stdout.take().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len) = out.read(&mut bytes)
                && len > 0
            {
                sink.seen.lock().unwrap().text += &String::from_utf8_lossy(&bytes[..len]);
                sink.more.notify_all();
            }
            sink.seen.lock().unwrap().has_ended = true;
            sink.more.notify_all();
        });
        Self { child, screen }
    }

    fn press(&mut self, key: &str) {
        let keys = self.child.stdin.as_mut().unwrap();
        keys.write_all(key.as_bytes()).and_then(|()| keys.flush()).unwrap();
    }

    /// Waits until the output contains `what`, and returns all of it so far.
    fn wait_for(&self, what: &str) -> String {
        self.wait_until(what, |seen| seen.text.contains(what))
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Seen) -> bool) -> String {
        let Screen { seen, more } = &*self.screen;
        let waited = more.wait_timeout_while(seen.lock().unwrap(), PATIENCE, |seen| !is_so(seen));
        let (seen, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "waited in vain: {what}\n{}", seen.text);
        seen.text.clone()
    }

    /// Waits for the end and checks that the terminal was restored. Returns all output.
    fn end(&mut self) -> String {
        let seen = self.wait_until("the end", |seen| seen.has_ended);
        assert!(seen.contains("code 0"), "{seen}");
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
    let mut served = Served::start("");
    http_announce(served.tracker.http4(), 0xbb, 1);
    let mut terminal = Terminal::run(&command(&served));
    terminal.wait_for("Torrents by seeders");
    terminal.wait_for(&"bb".repeat(20));
    terminal.press("l");
    terminal.wait_for("Torrents by leechers");
    terminal.press("q");
    let seen = terminal.end();
    assert!(seen.contains("\u{1b}[1mtidegate "), "it is in bold");
    // Also after Ctrl-C, and without colours if there are to be none.
    let mut terminal = Terminal::run(&format!("NO_COLOR=1 {}", command(&served)));
    terminal.wait_for("Torrents by seeders");
    terminal.press("\u{3}");
    let seen = terminal.end();
    for colour in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[38;"] {
        assert!(!seen.contains(colour), "{colour:?}");
    }
    // And after the tracker has ended.
    let mut terminal = Terminal::run(&command(&served));
    terminal.wait_for("Torrents by seeders");
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
    let seen = terminal.wait_for("Torrents by seeders");
    let pid = seen.split("pid ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let pid = pid.parse().unwrap();
    assert!(is_alive(pid), "{seen}");
    terminal.child.kill().unwrap();
    wait_until("it ends", || !is_alive(pid));
}

/// Returns `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
