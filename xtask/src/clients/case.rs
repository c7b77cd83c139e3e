//! One case, inside its namespace.

use super::acme::Story;
use super::haproxy::Header;
use super::loads;
use super::pair::Family::{V4, V6};
use super::pair::Pair;
use super::pair::Protocol::{Http, Https, Udp, Ws, Wss};
use super::peer::Client::{Aria2, Chromium, Libtorrent, Transmission, WebTorrent};
use super::prometheus;
use super::script::Script;
use crate::command::{command, output};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A test with a tracker and clients.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    plot: Plot,
}

/// What happens, and what must result.
#[derive(Debug)]
enum Plot {
    /// The leecher downloads the seeder's data.
    Transfer(Pair),
    /// The clients do not trust the tracker's authority, and do not announce. This shows that they verify
    /// certificates.
    Distrust(Pair),
    /// A transfer with HAProxy between clients and tracker.
    Proxied(Pair, Header),
    /// The tracker refuses the torrent, both clients report the reason, and nothing is transferred. This
    /// shows that the other cases can fail.
    Refusal(Pair),
    /// A transfer at a private tracker, by clients with a key each.
    Private(Pair),
    /// Clients without keys at a private tracker: a refusal.
    Keyless(Pair),
    /// The tracker obtains its certificates from an ACME server.
    Certificates(Story),
    /// A script announces and scrapes, and checks every response.
    Script(Script),
    /// Prometheus scrapes the tracker, and finds the metrics of alerts and dashboard.
    Scraped,
    /// The load testers, against tidegate and another tracker.
    Loads,
}

use Plot::{
    Certificates, Distrust, Keyless, Loads, Private, Proxied, Refusal, Scraped, Script as Scripted,
    Transfer,
};

/// All cases, the longest first. The first of two clients seeds. Transmission 3 does not connect to peers over IPv6
/// inside a namespace, with any tracker; libtorrent covers IPv6.
#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case { name: "transmission-http", plot: Transfer(Pair([Transmission, Transmission], Http, V4)) },
    Case { name: "transmission-udp", plot: Transfer(Pair([Transmission, Transmission], Udp, V4)) },
    Case { name: "transmission-https", plot: Transfer(Pair([Transmission, Transmission], Https, V4)) },
    Case { name: "aria2-http", plot: Transfer(Pair([Aria2, Aria2], Http, V4)) },
    Case { name: "aria2-udp", plot: Transfer(Pair([Aria2, Aria2], Udp, V4)) },
    Case { name: "libtorrent-http", plot: Transfer(Pair([Libtorrent, Libtorrent], Http, V4)) },
    Case { name: "libtorrent-udp", plot: Transfer(Pair([Libtorrent, Libtorrent], Udp, V4)) },
    Case { name: "libtorrent-http6", plot: Transfer(Pair([Libtorrent, Libtorrent], Http, V6)) },
    Case { name: "libtorrent-udp6", plot: Transfer(Pair([Libtorrent, Libtorrent], Udp, V6)) },
    Case { name: "aria2-https", plot: Transfer(Pair([Aria2, Aria2], Https, V4)) },
    Case { name: "libtorrent-https", plot: Transfer(Pair([Libtorrent, Libtorrent], Https, V4)) },
    Case { name: "libtorrent-https6", plot: Transfer(Pair([Libtorrent, Libtorrent], Https, V6)) },
    Case { name: "transmission-https-distrusted", plot: Distrust(Pair([Transmission, Transmission], Https, V4)) },
    Case { name: "aria2-https-distrusted", plot: Distrust(Pair([Aria2, Aria2], Https, V4)) },
    Case { name: "libtorrent-https-distrusted", plot: Distrust(Pair([Libtorrent, Libtorrent], Https, V4)) },
    Case { name: "aria2-http-proxy1", plot: Proxied(Pair([Aria2, Aria2], Http, V4), Header::V1) },
    Case { name: "libtorrent-http-proxy2", plot: Proxied(Pair([Libtorrent, Libtorrent], Http, V4), Header::V2) },
    Case { name: "libtorrent-http6-proxy1", plot: Proxied(Pair([Libtorrent, Libtorrent], Http, V6), Header::V1) },
    Case { name: "libtorrent-http-denied", plot: Refusal(Pair([Libtorrent, Libtorrent], Http, V4)) },
    Case { name: "libtorrent-udp-denied", plot: Refusal(Pair([Libtorrent, Libtorrent], Udp, V4)) },
    Case { name: "transmission-http-private", plot: Private(Pair([Transmission, Transmission], Http, V4)) },
    Case { name: "aria2-http-private", plot: Private(Pair([Aria2, Aria2], Http, V4)) },
    Case { name: "libtorrent-http-private", plot: Private(Pair([Libtorrent, Libtorrent], Http, V4)) },
    Case { name: "libtorrent-udp-private", plot: Private(Pair([Libtorrent, Libtorrent], Udp, V4)) },
    Case { name: "libtorrent-udp6-private", plot: Private(Pair([Libtorrent, Libtorrent], Udp, V6)) },
    Case { name: "libtorrent-http-keyless", plot: Keyless(Pair([Libtorrent, Libtorrent], Http, V4)) },
    Case { name: "libtorrent-udp-keyless", plot: Keyless(Pair([Libtorrent, Libtorrent], Udp, V4)) },
    Case { name: "webtorrent-ws", plot: Transfer(Pair([WebTorrent, WebTorrent], Ws, V4)) },
    Case { name: "webtorrent-ws6", plot: Transfer(Pair([WebTorrent, WebTorrent], Ws, V6)) },
    Case { name: "webtorrent-wss", plot: Transfer(Pair([WebTorrent, WebTorrent], Wss, V4)) },
    Case { name: "webtorrent-wss-distrusted", plot: Distrust(Pair([WebTorrent, WebTorrent], Wss, V4)) },
    Case { name: "chromium-ws", plot: Transfer(Pair([Chromium, Chromium], Ws, V4)) },
    Case { name: "webtorrent-chromium-ws", plot: Transfer(Pair([WebTorrent, Chromium], Ws, V4)) },
    Case { name: "webtorrent-ws-denied", plot: Refusal(Pair([WebTorrent, WebTorrent], Ws, V4)) },
    Case { name: "webtorrent-ws-private", plot: Private(Pair([WebTorrent, WebTorrent], Ws, V4)) },
    Case { name: "chromium-ws-private", plot: Private(Pair([Chromium, WebTorrent], Ws, V4)) },
    Case { name: "webtorrent-ws-keyless", plot: Keyless(Pair([WebTorrent, WebTorrent], Ws, V4)) },
    Case { name: "acme-tls-alpn", plot: Certificates(Story::TlsAlpn) },
    Case { name: "acme-http", plot: Certificates(Story::Http) },
    Case { name: "acme-renewal", plot: Certificates(Story::Renewal) },
    Case { name: "acme-refused", plot: Certificates(Story::Refused) },
    Case { name: "load-testers", plot: Loads },
    Case { name: "announces-ws", plot: Scripted(Script("announces.mjs")) },
    Case { name: "swarm-udp-http-ws", plot: Scripted(Script("swarm.mjs")) },
    Case { name: "dashboard", plot: Scripted(Script("dashboard.mjs")) },
    Case { name: "prometheus", plot: Scraped },
];

/// Longer than all waits of a case together. After it the process exits, and its namespaces end.
const CASE_MAX: Duration = Duration::from_secs(480);
/// Lines of each log that are shown when a case fails.
const LOG_LINES: usize = 20;

impl Case {
    /// Runs it. Everything that it starts ends with this process.
    pub(super) fn run(&self, folder: &Path) -> Result<()> {
        thread::spawn(|| {
            thread::sleep(CASE_MAX);
            eprintln!("timed out after {CASE_MAX:?}");
            std::process::exit(1);
        });
        let started = Instant::now();
        let result = set_up_network().and_then(|()| match &self.plot {
            Transfer(pair) => pair.play_transfer(folder),
            Proxied(pair, header) => pair.play_transfer_behind(*header, folder),
            Distrust(pair) => pair.play_distrust(folder),
            Refusal(pair) => pair.play_refusal(folder),
            Private(pair) => pair.play_private(folder),
            Keyless(pair) => pair.play_keyless(folder),
            Certificates(story) => story.play(folder),
            Scripted(script) => script.play(folder),
            Scraped => prometheus::play(folder),
            Loads => loads::play(folder),
        });
        if result.is_ok() {
            println!("{}: ok, {:.1} s", self.name, started.elapsed().as_secs_f32());
        }
        result.map_err(|error| anyhow!("{error:#}\n{}", logs(folder)))
    }
}

/// Sets up three addresses on a dummy device. Loopback addresses are not enough for WebRTC: it ignores the
/// loopback device, and a browser tells its peers only the address of the default route.
fn set_up_network() -> Result<()> {
    let ip = |words: &str| {
        let words: Vec<&str> = std::iter::once("ip").chain(words.split(' ')).collect();
        output(command(&words))
    };
    ip("link set lo up")?;
    ip("link add wire type veth peer name end")?;
    ip("link set wire up")?;
    ip("link set end up")?;
    for host in 1..=3 {
        ip(&format!("address add {}/24 dev wire", V4.address(host)))?;
        ip(&format!("address add {}/64 dev wire nodad", V6.address(host)))?;
    }
    ip(&format!("route add default dev wire src {}", V4.address(1)))?;
    Ok(())
}

/// Repeats `is_done` until it returns true. Errors are ignored until `longest` has passed; the last one is
/// returned then.
pub(super) fn wait_for(
    longest: Duration,
    what: &str,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let done = is_done();
        if matches!(done, Ok(true)) {
            return Ok(());
        }
        if started.elapsed() > longest {
            done.with_context(|| format!("waiting for {what}"))?;
            bail!("waited {longest:?} for {what}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the last lines of every log, without repeated lines.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["tracker", "haproxy", "seeder", "leecher", "script", "pebble", "dns", "prometheus"]
    {
        let Ok(log) = fs::read(folder.join(name).with_extension("log")) else { continue };
        let log = String::from_utf8_lossy(&log).replace('\r', "\n");
        let mut lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.dedup();
        text += &format!("-- {name}, last lines:\n");
        for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
            text += &format!("   {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends() {
        let mut calls = 0;
        let third = || {
            calls += 1;
            Ok(calls == 3)
        };
        assert!(wait_for(CASE_MAX, "the third call", third).is_ok());
        assert!(wait_for(Duration::ZERO, "never", || Ok(false)).is_err());
        assert!(wait_for(Duration::ZERO, "an error", || bail!("no")).is_err());
    }
}
