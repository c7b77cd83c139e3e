//! An operator who changes lists, reloads and upgrades during a soak, and checks each effect.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{PATIENCE, Signal, http, wait_for};
use primitives::Random;
use serde_json::Value;

use super::Stage;
use crate::lab::{Api, Certificate, hash_lines};

/// What `tracker.interval_s` changes between with each reload. Short, so that peers expire within a
/// short run.
const INTERVALS_S: [u32; 2] = [30, 31];
/// Entries that are added to the list and removed again.
const ENTRIES: u32 = 1000;
/// The time between two changes.
const PAUSE: Duration = Duration::from_secs(2);
/// Changes between two reloads.
const CHANGES_PER_RELOAD: u64 = 5;
/// Upgrades of a run, all of them in its first half.
const UPGRADES: u32 = 3;
/// The torrents that are denied and allowed in turn, by the API and by the file.
const PROBES: [&str; 2] =
    ["5050505050505050505050505050505050505050", "5151515151515151515151515151515151515151"];

/// The operator, and what was done.
pub(super) struct Operator {
    admin: SocketAddr,
    http: SocketAddr,
    upgrade_every: Duration,
    pub(super) list_changes: AtomicU64,
    pub(super) reloads: AtomicU64,
    pub(super) upgrades: AtomicU64,
}

/// Returns the tracker's configuration: all protocols, durable records, a deny list, and limits for
/// addresses other than those of honest clients.
pub(super) fn configuration(folder: &Path, certificate: &Certificate, interval_s: u32) -> String {
    let (chain, key) = (&certificate.chain, &certificate.key);
    let (state, deny) = (folder.join("state"), folder.join("deny.txt"));
    format!(
        "[udp]\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\n\
         [http]\nlisten = [\"127.0.0.1:0\"]\nidle_timeout_s = 10\n\
         [tls]\nlisten = [\"127.0.0.1:0\"]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n\
         [tracker]\ninterval_s = {interval_s}\npeer_lifetime_s = 60\nwebsocket_interval_s = 30\n\
         [access]\nmode = \"deny\"\ndeny = {deny:?}\n\
         [limits]\nexempt = [\"127.0.0.1\", \"::1\"]\n\
         [admin]\nlisten = [\"127.0.0.1:0\"]\nrequests_per_s = 0\n\
         [state]\ndir = {state:?}\n"
    )
}

impl Operator {
    pub(super) fn new(stage: &Stage) -> Result<Self> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let address = |kind| stage.tracker.address(kind, ip).with_context(|| format!("no {kind}"));
        Ok(Self {
            admin: address("admin")?,
            http: address("http")?,
            upgrade_every: stage.duration / (2 * UPGRADES),
            list_changes: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            upgrades: AtomicU64::new(0),
        })
    }

    /// Returns the time between two upgrades.
    pub(super) fn upgrade_every(&self) -> Duration {
        self.upgrade_every
    }

    /// Returns what was done in a few words.
    pub(super) fn summary(&self) -> String {
        let [changes, reloads, upgrades] = [&self.list_changes, &self.reloads, &self.upgrades]
            .map(|count| count.load(Ordering::Relaxed));
        format!("{changes} list changes, {reloads} reloads, {upgrades} upgrades")
    }

    /// Changes lists, reloads and upgrades in turn until the run ends.
    pub(super) fn act(&self, stage: &Stage) -> Result<()> {
        let start = Instant::now();
        let first = self.upgrades.load(Ordering::Relaxed);
        let mut upgrades = 0;
        for round in 1.. {
            self.change_list()?;
            self.look()?;
            if round % CHANGES_PER_RELOAD == 0 {
                self.reload(stage)?;
            }
            let is_upgrade_due = start.elapsed() >= self.upgrade_every * (upgrades + 1);
            if first == 0 && upgrades < UPGRADES && is_upgrade_due {
                stage.tracker.upgrade()?;
                upgrades += 1;
                self.upgrades.fetch_add(1, Ordering::Relaxed);
            }
            if !stage.pause(PAUSE) {
                break;
            }
        }
        Ok(())
    }

    /// Denies a torrent among many by the API, and allows it again.
    pub(super) fn change_list(&self) -> Result<()> {
        let number = self.list_changes.fetch_add(1, Ordering::Relaxed);
        let lines = hash_lines(&mut Random::new(number), ENTRIES) + PROBES[0];
        for (method, is_denied) in [("POST", true), ("DELETE", false)] {
            let request = format!("{method} /api/v1/lists/deny");
            Api::open(self.admin)?.ask(200, &request, &lines)?;
            // The change is acknowledged, so it holds.
            ensure!(
                self.is_denied(PROBES[0])? == is_denied,
                "{request} was acknowledged and has no effect"
            );
        }
        Ok(())
    }

    /// Reads what dashboards and monitoring read.
    fn look(&self) -> Result<()> {
        let mut api = Api::open(self.admin)?;
        for target in ["/metrics", "/api/v1/stats", "/api/v1/torrents?limit=100"] {
            api.ask(200, &format!("GET {target}"), "")?;
        }
        Ok(())
    }

    /// Changes the configuration and the list's file, reloads, and waits for the effects.
    pub(super) fn reload(&self, stage: &Stage) -> Result<()> {
        let number = self.reloads.fetch_add(1, Ordering::Relaxed) + 1;
        let is_odd = number % 2 == 1;
        let interval_s = INTERVALS_S[usize::from(is_odd)];
        let folder = stage.folder.root();
        let configuration = configuration(folder, &stage.certificate, interval_s);
        stage.tracker.configure(&configuration)?;
        stage.folder.write("deny.txt", if is_odd { PROBES[1] } else { "" })?;
        stage.tracker.signal(Signal::SIGHUP)?;
        wait_for(PATIENCE, "a reload", || {
            let text = Api::open(self.admin)?.ask(200, "GET /api/v1/config", "")?;
            let found = setting(&text, "tracker.interval_s");
            Ok(found == Some(interval_s.into()) && self.is_denied(PROBES[1])? == is_odd)
        })
    }

    /// Announces a torrent, and returns whether that is refused.
    fn is_denied(&self, hash: &str) -> Result<bool> {
        let escaped: String = hash.as_bytes().chunks(2).map(escaped_byte).collect();
        let target = format!(
            "/announce?info_hash={escaped}&peer_id=-SO0001-000000000000&port=4000&left=1&compact=1"
        );
        let response = http::get(self.http, &target)?;
        ensure!(response.status == 200, "an announce was answered with {}", response.status);
        Ok(response.has("failure reason"))
    }
}

fn escaped_byte(digits: &[u8]) -> String {
    format!("%{}", String::from_utf8_lossy(digits))
}

/// Returns the value of a setting in the API's list.
fn setting(text: &str, name: &str) -> Option<Value> {
    let list: Value = serde_json::from_str(text).ok()?;
    let all = list["settings"].as_array()?;
    all.iter().find(|one| one["name"] == name).map(|one| one["value"].clone())
}

/// Writes the files that the first configuration names.
pub(super) fn prepare(folder: &Path) -> Result<(Certificate, String)> {
    let certificate = Certificate::make(folder)?;
    fs::write(folder.join("deny.txt"), "")?;
    let text = configuration(folder, &certificate, INTERVALS_S[0]);
    Ok((certificate, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_of_the_api() {
        let text =
            r#"{"settings":[{"name":"a.b","value":1},{"name":"tracker.interval_s","value":30}]}"#;
        assert_eq!(setting(text, "tracker.interval_s"), Some(30.into()));
        assert_eq!(setting(text, "x"), None);
    }
}
