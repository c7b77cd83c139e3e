//! `tidegate admin` against running trackers.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{self, TOKEN, hash};
use crate::clients::http_announce;
use crate::process::{
    Directory, PATIENCE, Tracker, run_with_input, stderr, stdout, tidegate, unused_address,
};

/// The variable that clients read their token from.
pub(crate) const VARIABLE: &str = "TIDEGATE_ADMIN_TOKEN";

/// A tracker, and a client of its API with full access.
pub(crate) struct Served {
    pub(crate) tracker: Tracker,
    /// Removed after the tracker has ended.
    _state: Option<Directory>,
}

impl Served {
    pub(crate) fn start(more: &str) -> Self {
        Self { tracker: api::start(more).0, _state: None }
    }

    /// The same in access mode `deny`.
    pub(crate) fn denying() -> Self {
        let state = Directory::new();
        let dir = state.path("state");
        let served = Self::start(&format!("[access]\nmode = \"deny\"\n[state]\ndir = {dir:?}\n"));
        Self { _state: Some(state), ..served }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.tracker.admin_address())
    }

    /// Runs `tidegate admin` with arguments separated by spaces.
    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn command(&self, line: &str) -> std::process::Command {
        let mut command = tidegate(&["admin", "--url", &self.url()]);
        command.args(line.split(' ')).env(VARIABLE, TOKEN);
        command
    }

    /// The same with `text` on standard input.
    fn feed(&self, line: &str, text: &str) -> Output {
        run_with_input(self.command(line), text.as_bytes())
    }

    /// Returns its standard output. Panics unless it succeeds.
    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{line}");
        stdout(&output)
    }

    /// Returns the JSON objects that it prints. Panics unless it succeeds.
    fn json(&self, line: &str) -> Vec<Value> {
        let text = self.good(&format!("{line} --json"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns its standard error. Panics unless the tracker refuses the request.
    fn bad(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}: {}", stdout(&output));
        stderr(&output)
    }
}

#[test]
fn keys() {
    let served = Served::start("");
    let made =
        served.good("keys create --name bob --torrents 20 --addresses 3 --expires 2100-01-01");
    assert!(
        made.contains("name                  bob\n") && made.contains("2100-01-01 00:00:00"),
        "{made}"
    );
    let useless = "No listener is private (access.private), so no announce URL takes a key.\n";
    assert!(made.ends_with(useless), "{made}");
    let file = served.tracker.directory.write("key", "0123456789abcdefXYZ\n");
    served.good(&format!("keys create --key-file {}", file.display()));
    let key = served.feed("keys create --key-file -", "fedcba9876543210XYZ\n");
    assert!(stdout(&key).contains("fedcba9876543210XYZ"), "{}", stderr(&key));
    let all = served.json("keys list");
    assert_eq!(all.len(), 3);
    assert_eq!(all[0]["torrents"], 20);
    assert_eq!(all[1]["key"], "0123456789abcdefXYZ");
    let table = served.good("keys list");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.starts_with("id  name  key  "), "{table}");
    let changed =
        &served.json("keys change 1 --name rob --expires never --announces-per-minute 5")[0];
    assert_eq!((&changed["name"], &changed["torrents"]), (&json!("rob"), &json!(20)));
    assert_eq!((changed.get("expires"), &changed["announces_per_minute"]), (None, &json!(5)));
    assert_eq!(served.json("keys show 1")[0]["name"], "rob");
    assert_eq!(served.json("keys show rob")[0]["id"], 1);
    let unknown = served.bad("keys remove bob");
    let text = "no key has the id or the name `bob`: `tidegate admin keys list` shows them";
    assert_eq!(unknown, format!("tidegate: {text}\n"));
    for _ in 0..2 {
        served.good("keys create --name twin");
    }
    let twins = served.bad("keys remove twin");
    let text = "several keys have the name `twin`, with the ids 4, 5: give the id";
    assert_eq!(twins, format!("tidegate: {text}\n"));
    assert_eq!(served.good("keys remove rob 2"), "Key 1 removed\nKey 2 removed\n");
    let gone = served.bad("keys show 1");
    assert_eq!(gone, "tidegate: Not Found: no key with id 1\n");
    // The file is there; what it holds is no key.
    served.tracker.directory.write("key", "short\n");
    let short = served.bad(&format!("keys create --key-file {}", file.display()));
    assert!(short.starts_with("tidegate: Bad Request: key: "), "{short}");
}

#[test]
fn prints_the_announce_urls_of_a_new_key() {
    let served = Served::start("[access]\nprivate = true\n");
    let made = served.good("keys create");
    let (_, urls) = made.split_once("Announce URLs (").unwrap();
    let urls: Vec<&str> = urls.lines().skip(1).map(str::trim).collect();
    // UDP, HTTP and WebTorrent over both families.
    assert_eq!(urls.len(), 6, "{made}");
    for url in urls {
        let output = tidegate(&["announce", url, &hash(0xaa)]).output().unwrap();
        assert!(output.status.success(), "{url}: {}", stderr(&output));
    }
}

#[test]
fn lists() {
    let served = Served::denying();
    let [a, b, c] = [hash(0xaa), hash(0xbb), hash(0xcc)];
    let added = served.good(&format!("lists deny add {a} magnet:?xt=urn:btih:{b}"));
    assert_eq!(added, "Added 2 of 2; the list has 2 entries\n");
    let refused = http_announce(served.tracker.http4(), 0xaa, 1);
    assert!(crate::clients::has(&refused, "deny list"), "it is in force");
    // The latter are spellings of earlier versions.
    for verb in ["list", "show", "export"] {
        assert_eq!(served.good(&format!("lists deny {verb}")), format!("{a}\n{b}\n"));
    }
    assert_eq!(
        served.json("lists deny list"),
        [json!({ "info_hash": a }), json!({ "info_hash": b })]
    );
    assert_eq!(served.good("lists allow list"), "");
    let outcome = &served.json(&format!("lists deny remove {a}"))[0];
    assert_eq!(outcome, &json!({ "requested": 1, "changed": 1, "total": 1 }));
    let gone = served.run(&format!("lists deny remove {b} {c}"));
    assert_eq!(gone.status.code(), Some(1));
    assert_eq!(stdout(&gone), "Removed 1 of 2; the list has 0 entries\n");
    assert!(stderr(&gone).contains("some of the torrents were not on the list"));
    assert_eq!(served.run("lists deny add nonsense").status.code(), Some(2));
}

#[test]
fn imports_and_exports_lists() {
    let served = Served::start("");
    let many: String = (0..50_000).map(|number| format!("{number:040x}\n")).collect();
    let text = format!("# many\n\n{many}{} # twice\n", "0".repeat(40));
    let file = served.tracker.directory.write("hashes.txt", &text);
    let imported = served.good(&format!("lists deny import {}", file.display()));
    assert_eq!(imported, "Added 50000 of 50000; the list has 50000 entries\n");
    assert!(served.good("lists deny list") == many, "all of them");
    // A malformed line changes nothing, although the lines before it were sent.
    let bad =
        served.feed("lists deny import", &format!("{}{many}nonsense\n{}\n", "#\n", hash(0xaa)));
    assert_eq!(bad.status.code(), Some(1));
    let message = stderr(&bad);
    assert!(
        message
            .starts_with("tidegate: standard input:50002: expected 40 or 64 hex digits, found 8"),
        "{message}"
    );
    assert!(message.ends_with(" (nothing was changed)\n"), "{message}");
    let bad = served.feed("lists allow import -", "\n0123\n");
    assert!(stderr(&bad).contains("standard input:2: "), "{}", stderr(&bad));
    assert_eq!(served.good("lists allow list"), "");
    // As in files of keys, the rest of a line is a note.
    let noted = format!("{} Debian, 64-bit\n{}\tUbuntu # new\n", hash(0xab), hash(0xac));
    let noted = served.feed("lists allow import", &noted);
    assert_eq!(stdout(&noted), "Added 2 of 2; the list has 2 entries\n", "{}", stderr(&noted));
    let two = served.feed("lists allow import", &format!("{0} {0}\n", hash(0xad)));
    assert_eq!(
        stderr(&two),
        "tidegate: standard input:1: expected one info hash per line, found two (nothing was changed)\n"
    );
    let empty = served.feed("lists deny import", "# nothing\n");
    assert!(stderr(&empty).contains("expected at least one info hash"), "{}", stderr(&empty));
    let removed = served.feed("lists deny import --remove", &many);
    assert_eq!(stdout(&removed), "Removed 50000 of 50000; the list has 0 entries\n");
    let absent = served.run("lists deny import /nonexistent");
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).contains("cannot read /nonexistent"), "{}", stderr(&absent));
    // An unauthorized client is refused before it has sent everything.
    let mut command = served.command(&format!("lists deny import {}", file.display()));
    let refused = command.env(VARIABLE, TOKEN.replace("01", "02")).output().unwrap();
    assert!(stderr(&refused).contains("Unauthorized"), "{}", stderr(&refused));
}

#[test]
fn bans() {
    let served = Served::start("");
    let added = served.good("bans add 192.0.2.0/24 --reason flood --expires 2100-01-01");
    assert_eq!(added, "192.0.2.0/24 banned until 2100-01-01 00:00:00 UTC\n");
    let added = &served.json("bans add 2001:db8::1")[0];
    assert_eq!((&added["network"], added.get("expires")), (&json!("2001:db8::1/128"), None));
    let all = served.json("bans list");
    assert_eq!((all.len(), &all[0]["reason"]), (2, &json!("flood")));
    let table = served.good("bans list");
    assert!(table.starts_with("network ") && table.contains("  flood\n"), "{table}");
    served.good("bans remove 2001:db8::1/128 192.0.2.0/24");
    assert!(served.bad("bans remove 192.0.2.0/24").contains("no ban of exactly 192.0.2.0/24"));
    assert_eq!(served.run("bans add everybody").status.code(), Some(2));
    assert_eq!(served.run("bans add 10.0.0.0/8 --expires soon").status.code(), Some(2));
    assert!(served.bad("bans add 0.0.0.0/0").contains("large part of the internet"));
    served.good("bans add 128.0.0.0/3 --force");
    let past = served.run("bans add 10.0.0.0/8 --expires 30");
    assert_eq!(past.status.code(), Some(2));
    assert!(stderr(&past).contains("30 is 1970-01-01: did you mean 30d?"), "{}", stderr(&past));
}

#[test]
fn tokens() {
    let served = Served::start("");
    let line = "tokens create panel --scope stats:read,keys:read --expires 1d";
    let made = &served.json(line)[0];
    let secret = made["secret"].as_str().unwrap();
    let ask = |line: &str| {
        let file = served.tracker.directory.write("token", &format!("{secret}\n"));
        let mut command = served.command(line);
        command.env_remove(VARIABLE).arg("--token-file").arg(file).output().unwrap()
    };
    assert_eq!(ask("keys list").status.code(), Some(0));
    let refused = ask("keys remove 1");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).starts_with("tidegate: Forbidden: "), "{}", stderr(&refused));
    let table = served.good("tokens list");
    assert!(table.contains("panel") && table.contains("stats:read keys:read"), "{table}");
    assert!(!table.contains(secret));
    assert_eq!(served.good("tokens remove panel"), format!("Token {} removed\n", made["id"]));
    assert!(stderr(&ask("keys list")).contains("Unauthorized"));
    assert!(served.bad("tokens create x --scope everything").contains("everything"));
    assert!(served.good("tokens create y --scope *").contains("(shown once)\n"));
}

#[test]
fn spellings_of_earlier_versions_work_and_are_hidden() {
    let served = Served::start("");
    served.good("keys create --name bob");
    assert_eq!(served.good("keys revoke bob"), "Key 1 removed\n");
    let made = &served.json("tokens create panel --scope stats:read")[0];
    assert_eq!(served.good("tokens revoke panel"), format!("Token {} removed\n", made["id"]));
    assert_eq!(served.good("certificates status"), "expires  name\n");
    assert!(served.good("peers find 127.0.0.1").starts_with("info hash "));
    for (command, hidden) in [
        ("keys", "revoke"),
        ("tokens", "revoke"),
        ("lists deny", "export"),
        ("certificates", "status"),
        ("peers", "find"),
    ] {
        let help = served.good(&format!("{command} --help"));
        assert!(help.contains("  list ") && !help.contains(hidden), "{help}");
    }
}

#[test]
fn status_has_an_exit_code_for_cron() {
    let state = Directory::new();
    let well = Served::start(&format!("[state]\ndir = {:?}\n", state.path("state")));
    let text = well.good("status");
    assert!(text.starts_with("tidegate ") && text.contains(": all is well\n"), "{text}");
    assert_eq!(well.good("status --quiet"), "");
    assert_eq!(well.json("status")[0]["level"], "ok");
    // Without a directory, a restart would lose everything.
    let ill = Served::start("");
    let output = ill.run("status --quiet");
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains(": needs attention\nwarning: Records are in memory only: "), "{text}");
    assert!(text.contains("\n  Start it without --memory, "), "{text}");
    assert!(stderr(&output).ends_with(": needs attention\n"), "{}", stderr(&output));
}

#[test]
fn upgrades_and_says_why_not() {
    let served = Served::start("");
    served.tracker.upgrade_by(|| {
        let expected = format!("Upgraded: tidegate {} serves\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(served.good("upgrade"), expected);
    });
    // The next process finds a mistake.
    served.tracker.configure("nonsense = 1\n");
    let failed = served.bad("upgrade");
    assert!(failed.starts_with("tidegate: upgrade failed"), "{failed}");
    served.good("health");
}

#[test]
fn networks_need_files() {
    let text = Served::start("").bad("networks");
    assert!(text.contains("set geo.asn and geo.country"), "{text}");
}

#[test]
fn torrents_and_peers() {
    let served = Served::start("");
    for (byte, port) in [(0xaa, 1), (0xaa, 2), (0xbb, 3)] {
        http_announce(served.tracker.http4(), byte, port);
    }
    let [a, b] = [hash(0xaa), hash(0xbb)];
    let names = |line: &str| -> Vec<Value> {
        served.json(line).iter().map(|torrent| torrent["info_hash"].clone()).collect()
    };
    assert_eq!(names("torrents list --sort leechers"), [a.as_str(), &b]);
    assert_eq!(names("torrents list --sort leechers --ascending"), [b.as_str(), &a]);
    assert_eq!(names("torrents list --sort leechers --limit 1"), [a.as_str()]);
    assert_eq!(names("torrents list --filter BB --limit 0"), [b.as_str()]);
    assert!(served.good("torrents list").starts_with("info hash "));
    assert!(served.bad("torrents list --filter x&y").contains("expected up to 40 hex digits"));
    let detail = served.good(&format!("torrents show {a}"));
    assert!(
        detail.contains("v4.leechers    2\n") && detail.contains("127.0.0.1:2  leecher"),
        "{detail}"
    );
    assert_eq!(served.json("peers list 127.0.0.1").len(), 3);
    assert!(served.good("peers list ::1").starts_with("info hash "));
    served.good(&format!("torrents freeze {b}"));
    assert_eq!(served.json(&format!("torrents show {b}"))[0]["frozen"], true);
    served.good(&format!("torrents unfreeze {b}"));
    assert!(served.bad(&format!("torrents unfreeze {b}")).contains("not frozen"));
    served.good(&format!("torrents refuse {b} --reason Dupe"));
    assert_eq!(served.json("torrents refused")[0]["reason"], "Dupe");
    served.good(&format!("torrents serve {b}"));
    assert!(served.bad(&format!("torrents serve {b}")).contains("not refused with a reason"));
    assert_eq!(served.good(&format!("torrents remove {b}")), format!("{b} removed\n"));
    assert!(served.bad(&format!("torrents show {b}")).contains("at present"));
    assert_eq!(served.good("peers remove 127.0.0.1"), "Removed 2 peers at 127.0.0.1\n");
}

#[test]
fn the_process() {
    let served = Served::start("webhook_ports = [\"443\"]\n");
    assert_eq!(served.json("health"), [json!({ "ready": true, "records": true })]);
    assert!(served.good("stats").contains("traffic.udp.requests.announce"));
    assert_eq!(served.json("stats")[0]["ready"], true);
    let listeners = served.json("listeners");
    assert_eq!((listeners.len(), &listeners[0]["protocol"]), (6, &json!("udp")));
    assert!(served.good("listeners").contains(&served.tracker.http4().to_string()));
    http_announce(served.tracker.http4(), 0xaa, 1);
    served.good("clients");
    let shown = served.good("config show");
    assert!(shown.contains("tracker.interval_s = 1800  # default\n"), "{shown}");
    assert_eq!(served.good("config set tracker.interval_s=900"), "Changed: tracker.interval_s\n");
    assert!(served.good("config show").contains("tracker.interval_s = 900  # api\n"));
    let bad = served.bad("config set tracker.interval_s=often");
    assert!(bad.contains("Conflict: ") && bad.contains("often"), "{bad}");
    served.good("config unset tracker.interval_s");
    assert_eq!(served.good("config reload"), "Nothing has changed\n");
    assert_eq!(served.good("log level"), "info\n");
    assert_eq!(served.json("log level debug"), [json!({ "level": "debug" })]);
    assert!(served.good("log show").contains("set the log levels to debug"));
    assert_eq!(served.good("log level info,front=debug"), "info,front=debug\n");
    assert_eq!(served.good("certificates list"), "expires  name\n");
    assert_eq!(served.good("certificates reload"), "Reloaded certificates and lists\n");
    let made = served.good("webhooks create https://hooks.example.org/ --event ban,reload");
    assert!(made.starts_with("Webhook 1  "), "{made}");
    assert_eq!(served.json("webhooks list")[0]["events"], json!(["ban", "reload"]));
    assert_eq!(served.good("webhooks remove https://hooks.example.org/"), "Webhook 1 removed\n");
    assert!(served.bad("webhooks create http://a:1/ --event ban").contains("webhook_ports"));
}

#[test]
fn follows_events() {
    let served = Served::start("");
    let follow = |more: &str| {
        let mut command = served.command(&format!("events --kind ban --count 2{more}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut plain, mut json) = (follow(""), follow(" --json"));
    let mut lines = BufReader::new(plain.stdout.take().unwrap()).lines().map_while(Result::ok);
    // Nothing shows when they listen: bans are made until the first event arrives.
    let (mut number, mut first) = (0, None);
    std::thread::scope(|scope| {
        let received = scope.spawn(|| lines.next());
        while !received.is_finished() {
            served.good(&format!("bans add 10.0.{}.{} --reason x", number / 256, number % 256));
            number += 1;
        }
        first = received.join().unwrap();
    });
    let first = first.unwrap();
    assert!(first.contains("  ban  ") && first.contains("network: 10.0.0."), "{first}");
    served.good("bans add 192.0.2.1");
    assert!(plain.wait().unwrap().success(), "two are enough");
    let deadline = Instant::now() + PATIENCE;
    while json.try_wait().unwrap().is_none() && Instant::now() < deadline {
        served.good(&format!("bans add 10.0.{}.{}", number / 256, number % 256));
        number += 1;
    }
    let mut output = String::new();
    json.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let event: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
    assert_eq!(event["kind"], "ban");
    assert_eq!(output.lines().count(), 2);
    assert!(json.wait().unwrap().success());
    assert!(served.bad("events --kind nonsense").contains("kinds: expected some of "));
}

#[test]
fn reports_tokens_and_addresses_that_are_wrong() {
    let served = Served::start("");
    let run = |url: &str, token: &str, more: &[&str]| {
        let mut command = tidegate(&["admin", "--url", url, "stats"]);
        let output = command.args(more).env(VARIABLE, token).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let unused = format!("http://{}", unused_address());
    // One that takes connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let http = format!("http://{}", served.tracker.http4());
    let tls = format!("https://{}", served.tracker.admin_address());
    let other = TOKEN.replace("01", "02");
    let file = served.tracker.directory.write("token", "nonsense\n");
    let file = ["--token-file", file.to_str().unwrap()];
    for (url, token, more, code, part) in [
        (&*served.url(), &*other, [].as_slice(), 1, "tidegate: Unauthorized: "),
        (&served.url(), "secret", &[], 2, "TIDEGATE_ADMIN_TOKEN: invalid token: expected `tg_`"),
        (&served.url(), "", &file, 2, "invalid token"),
        (&served.url(), "", &["--token-file", "/nonexistent"], 2, "cannot read"),
        (&silent, TOKEN, &["--timeout", "1"], 1, "no response in time"),
        (&unused, TOKEN, &[], 1, ": Connection refused"),
        (&http, TOKEN, &[], 1, "check that this is tidegate's admin listener"),
        (&tls, TOKEN, &[], 1, "try http:// instead"),
        ("127.0.0.1:6970", TOKEN, &[], 2, "tidegate: --url: "),
        ("http://u@h", TOKEN, &[], 2, "tidegate: --url: "),
        (&unused, TOKEN, &["--ca", "/nonexistent"], 2, "tidegate: --ca: "),
    ] {
        let (found, message) = run(url, token, more);
        assert!(found == Some(code) && message.contains(part), "{url} {more:?}: {message}");
    }
    let missing = served.command("keys list").env_remove(VARIABLE).output().unwrap();
    let why = "missing token: set the variable TIDEGATE_ADMIN_TOKEN";
    assert!(stderr(&missing).contains(why), "{}", stderr(&missing));
    let health = served.command("health").env_remove(VARIABLE).output().unwrap();
    assert_eq!(health.status.code(), Some(0), "needs none");
}

#[test]
fn finds_the_api_by_the_configuration() {
    let served = Served::start("");
    // The tracker's own file says port 0.
    let listen = format!("[admin]\nlisten = [\"{}\"]\n", served.tracker.admin_address());
    let file = served.tracker.directory.write("client.toml", &listen);
    let ask = |file: &std::path::Path| {
        let mut command = tidegate(&["admin", "health", "--config"]);
        command.arg(file).output().unwrap()
    };
    let output = ask(&file);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let off = served.tracker.directory.write("off.toml", "[admin]\nlisten = []\n");
    assert_eq!(ask(&off).status.code(), Some(2));
    assert!(stderr(&ask(&off)).contains("admin.listen is empty"), "{}", stderr(&ask(&off)));
    assert_eq!(ask("/nonexistent".as_ref()).status.code(), Some(2));
}
