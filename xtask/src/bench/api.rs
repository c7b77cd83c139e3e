//! Benchmarks the management API of a busy tracker: `cargo xtask bench api [--runs N] [--seconds N] [--write]`.
//!
//! 1. Each run imports a million entries into an empty allow list, in one request.
//! 2. Single torrents are allowed one by one. As soon as such a change is acknowledged, every worker must
//!    serve the torrent: it is announced to all of them at once.
//! 3. A million torrents are announced. Then `tidegate load` keeps the tracker at 80 % of its maximum,
//!    with and without requests for pages of 100 torrents and for statistics. The share of announces that
//!    take longer than a millisecond shows the cost of a page to other clients.
//!
//! The maximum is the rate of answers under an overload with fixed send times, like the later load. A load
//! that waits for answers would measure a higher maximum: it fills every batch, and queues stay short.
//!
//! The tracker has core 0, everything else core 1. Not all delays are the tracker's: for each load, the
//! output also has the number of requests that the load tester sent late, and the time that the
//! hypervisor took from the cores (steal). The load tester never sleeps. The thread that requests pages has
//! a higher priority, if the system permits, so it does not wait for core 1.

use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::api_client::ApiClient;
use super::load::{json_figure, pinned};
use super::machine;
use super::plan::{Plan, median};
use super::private::{Numbers, hash_lines};
use super::subject::{Running, serve};
use crate::command::{command, output};
use crate::workspace::{release, root};

const ADDRESS: &str = "127.0.0.1:3014";
const ADMIN: &str = "127.0.0.1:3015";
const ENTRIES: u32 = 1_000_000;
/// The number of torrents that are allowed one by one.
const CHANGES: u32 = 200;
/// The number of sockets that announce allowed torrents. The kernel distributes them over the workers.
const SOCKETS: usize = 32;
/// The load while pages are requested, as a part of the maximum.
const LOAD: f64 = 0.8;
/// Minimum number of torrents when pages are requested.
const TORRENTS: f64 = 1e6;
/// Peers of the load, distributed evenly, so that nearly all torrents get one.
const CROWD: [&str; 6] = ["--torrents", "1150000", "--peers", "3000000", "--spread", "uniform"];
/// Seconds that each crowd announces, until there are enough torrents.
const FILL_S: u32 = 15;
const FILLS_MAX: u32 = 40;
/// The time between two requests for pages or for statistics.
const PAUSE: Duration = Duration::from_millis(20);
/// The overload that measures the maximum, relative to the rate of a load that waits for answers.
const TOO_MUCH: f64 = 1.3;

/// Results by name.
struct Figures(Vec<(String, f64)>);

pub(super) fn bench(plan: &Plan) -> Result<()> {
    let own = std::process::id().to_string();
    output(command(&["taskset", "-a", "-p", "-c", "1", &own]))?;
    // This thread gets a higher priority on core 1; programs and threads that it starts do not.
    let first = ["chrt", "--fifo", "--reset-on-fork", "--pid", "1", &own];
    let goes_first = output(command(&first)).is_ok();
    if !goes_first {
        println!("requests for pages wait for core 1: only root may raise priorities");
    }
    let mut figures = Figures(Vec::new());
    for _ in 0..plan.runs {
        let folder = fresh_folder()?;
        let more = format!("[access]\nmode = \"allow\"\n[state]\ndir = {folder:?}\n");
        let _tracker = start(2, &more)?;
        import(&mut figures)?;
        change(&mut figures)?;
    }
    pages(plan, &mut figures)?;
    println!("\n{}", figures.medians());
    if plan.write {
        let text = format!(
            "{}# cargo xtask bench api --runs {} --seconds {}{}\nfigure,value\n{}",
            machine::describe()?,
            plan.runs,
            plan.seconds,
            if goes_first { "" } else { ", not as root: answers of the API wait for core 1, too" },
            figures.lines()
        );
        let name = format!("bench/record/{}-api.csv", machine::day()?);
        fs::write(root().join(&name), text)?;
        println!("written: {name}");
    }
    Ok(())
}

fn start(workers: u32, more: &str) -> Result<Running> {
    let admin =
        format!("[admin]\nlisten = [\"{ADMIN}\"]\nrequests_per_s = 0\n[log]\nlevel = \"warn\"\n");
    serve(ADDRESS, workers, &(admin + more))
}

/// For records; empty.
fn fresh_folder() -> Result<PathBuf> {
    let path = root().join("target/bench/api");
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn import(figures: &mut Figures) -> Result<()> {
    let lines = hash_lines(&mut Numbers(1), ENTRIES);
    let mut api = ApiClient::new(ADMIN)?;
    let begun = Instant::now();
    let answer = api.expect(200, "POST /api/v1/lists/allow", &lines)?;
    let taken = begun.elapsed().as_secs_f64();
    ensure!(json_figure(&answer, "total")? == f64::from(ENTRIES), "entries are missing: {answer}");
    figures.add("import, entries/s", f64::from(ENTRIES) / taken);
    Ok(())
}

/// Allows torrents, and announces each to all workers once the change is acknowledged.
fn change(figures: &mut Figures) -> Result<()> {
    let mut api = ApiClient::new(ADMIN)?;
    let mut clients = (0..SOCKETS).map(|_| Client::new()).collect::<Result<Vec<_>>>()?;
    let mut times_ms = Vec::new();
    for number in 0..CHANGES {
        let hash: [u8; 20] = std::array::from_fn(|at| (number >> (8 * (at % 4))) as u8 ^ 0x5a);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        ensure!(!clients[0].is_served(&hash)?, "a torrent is served before it is allowed");
        let begun = Instant::now();
        api.expect(204, &format!("PUT /api/v1/lists/allow/{hex}"), "")?;
        times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        for client in &mut clients {
            ensure!(client.is_served(&hash)?, "a worker does not know an acknowledged change");
        }
    }
    figures.add("change in force, ms, median", part(&mut times_ms, 0.5));
    figures.add("change in force, ms, longest", part(&mut times_ms, 1.0));
    Ok(())
}

/// A UDP client that waits for each answer.
struct Client {
    socket: UdpSocket,
    connection_id: [u8; 8],
}

impl Client {
    fn new() -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(ADDRESS)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        // BEP 15: magic, action 0, transaction id; back come action, transaction id, connection id.
        let mut request = 0x0417_2710_1980_u64.to_be_bytes().to_vec();
        request.extend([0; 8]);
        socket.send(&request)?;
        let mut answer = [0; 16];
        ensure!(socket.recv(&mut answer)? == 16, "no connection id");
        let [.., a, b, c, d, e, f, g, h] = answer;
        Ok(Self { socket, connection_id: [a, b, c, d, e, f, g, h] })
    }

    /// Returns whether an announce is answered and not refused.
    fn is_served(&mut self, hash: &[u8; 20]) -> Result<bool> {
        let mut request = self.connection_id.to_vec();
        request.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        request.extend(hash);
        request.extend(b"-XX0001-000000000000");
        // Downloaded, left and uploaded; event, address, key, number of peers; port.
        request.extend([0; 24]);
        request.extend([0; 16]);
        request.extend(6881_u16.to_be_bytes());
        self.socket.send(&request)?;
        let mut answer = [0; 2048];
        self.socket.recv(&mut answer).context("an announce was not answered")?;
        Ok(answer[..4] == [0, 0, 0, 1])
    }
}

/// Measures pages of torrents under load.
fn pages(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let tracker = start(1, "")?;
    let mut api = ApiClient::new(ADMIN)?;
    let mut torrents = 0.0;
    for seed in 1..=FILLS_MAX {
        if torrents < TORRENTS {
            load(&tracker, FILL_S, &["--seed", &seed.to_string()])?;
            torrents = json_figure(&api.expect(200, "GET /api/v1/stats", "")?, "torrents")?;
        }
    }
    ensure!(torrents >= TORRENTS, "expected {TORRENTS} torrents, found {torrents}");
    println!("{torrents} torrents");
    let rate = (maximum(&tracker, plan, figures)? * LOAD).round().to_string();
    for _ in 0..plan.runs {
        for asks in [Asks::Nothing, Asks::Pages, Asks::Statistics] {
            let stolen = stolen_ms()?;
            let is_over = AtomicBool::new(false);
            // Requested on this thread, which has the higher priority.
            let (json, times_ms) = thread::scope(|scope| -> Result<_> {
                let loading = scope.spawn(|| {
                    let json = load(&tracker, plan.seconds, &["--rate", &rate]);
                    is_over.store(true, Ordering::Relaxed);
                    json
                });
                let times = asks.go_on(&is_over);
                let json = loading.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
                Ok((json?, times?))
            })?;
            figures.add_answers(asks.name(), times_ms);
            figures.add_announces(asks.name(), &json)?;
            for (core, (before, now)) in std::iter::zip(stolen, stolen_ms()?).enumerate() {
                let name = format!("beside {}, stolen of core {core}, ms", asks.name());
                figures.add(&name, now - before);
            }
        }
    }
    Ok(())
}

/// Returns the answers a second under overload.
fn maximum(tracker: &Running, plan: &Plan, figures: &mut Figures) -> Result<f64> {
    let own_pace = json_figure(&load(tracker, plan.seconds, &[])?, "responses_per_s")?;
    figures.add("maximum at its own pace, responses/s", own_pace);
    let rate = (own_pace * TOO_MUCH).round().to_string();
    let maximum =
        json_figure(&load(tracker, plan.seconds, &["--rate", &rate])?, "responses_per_s")?;
    figures.add("maximum, responses/s", maximum);
    Ok(maximum)
}

/// Returns the time that the hypervisor took from cores 0 and 1 (steal in proc_stat(5)).
fn stolen_ms() -> Result<[f64; 2]> {
    let text = fs::read_to_string("/proc/stat")?;
    let of = |core: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(core)).unwrap_or_default();
        // In hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal.
        let stolen = line.split_whitespace().nth(7).and_then(|word| word.parse::<f64>().ok());
        stolen
            .with_context(|| format!("/proc/stat has no line for {core}"))
            .map(|ticks| ticks * 10.0)
    };
    Ok([of("cpu0 ")?, of("cpu1 ")?])
}

fn load(tracker: &Running, seconds: u32, more: &[&str]) -> Result<String> {
    let mut command = pinned();
    command.arg(release().join("tidegate")).args(["load", "udp"]).arg(format!("udp://{ADDRESS}"));
    command.args(CROWD).args(["--warm-up", "1", "--seconds", &seconds.to_string(), "--json"]);
    command.args(["--pid", &tracker.pid().to_string()]).args(more);
    output(command)
}

/// A request to the API.
#[derive(Clone, Copy)]
enum Asks {
    Nothing,
    Pages,
    Statistics,
}

impl Asks {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Pages => "pages",
            Self::Statistics => "statistics",
        }
    }

    /// Sends requests until the end. Returns the latencies in milliseconds.
    fn go_on(self, is_over: &AtomicBool) -> Result<Vec<f64>> {
        let mut api = ApiClient::new(ADMIN)?;
        let (mut times, mut cursor) = (Vec::new(), String::new());
        // The first page waits until the list of all torrents exists.
        let mut is_first = true;
        while !is_over.load(Ordering::Relaxed) {
            let request = match self {
                Self::Nothing => return Ok(times),
                Self::Pages => format!("GET /api/v1/torrents?sort=leechers&limit=100{cursor}"),
                Self::Statistics => "GET /api/v1/stats".into(),
            };
            let begun = Instant::now();
            let answer = api.expect(200, &request, "")?;
            if !std::mem::take(&mut is_first) {
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            let next =
                answer.split_once("\"next\":\"").and_then(|(_, rest)| rest.split('"').next());
            cursor = next.map_or_else(String::new, |next| format!("&cursor={next}"));
            sleep(PAUSE);
        }
        Ok(times)
    }
}

impl Figures {
    /// Adds latencies of the API.
    fn add_answers(&mut self, name: &str, mut times_ms: Vec<f64>) {
        if times_ms.is_empty() {
            return;
        }
        for (place, of) in [("median", 0.5), ("99 of 100", 0.99), ("longest", 1.0)] {
            self.add(&format!("{name}, ms, {place}"), part(&mut times_ms, of));
        }
    }

    /// Adds latencies of announces, from the load tester's output.
    fn add_announces(&mut self, beside: &str, json: &str) -> Result<()> {
        let latency = json.split_once("latency_us").context("no latency")?.1;
        let places = [("p50", "median"), ("p99", "99 %"), ("p99_9", "99.9 %"), ("max", "longest")];
        for (place, words) in places {
            let figure = json_figure(latency, place)?;
            self.add(&format!("announces beside {beside}, us, {words}"), figure);
        }
        let parts = [("over_1_ms", "over 1 ms"), ("schedule_slip", "sent over 1 ms late")];
        for (name, words) in parts {
            let figure = json_figure(json, name)? * 100.0;
            self.add(&format!("announces beside {beside}, %, {words}"), figure);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, value: f64) {
        println!("{name:<44} {value:>12.3}");
        self.0.push((name.to_owned(), value));
    }

    /// Returns the distinct names, in their order.
    fn medians(&self) -> String {
        let mut text = "medians\n".to_owned();
        let mut told = Vec::new();
        for (name, _) in &self.0 {
            if !told.contains(&name) {
                let of_name = self.0.iter().filter(|(other, _)| other == name);
                let value = median(of_name.map(|(_, value)| *value).collect());
                let _ = writeln!(text, "{name:<44} {value:>12.3}");
                told.push(name);
            }
        }
        text
    }

    fn lines(&self) -> String {
        let line = |(name, value): &(String, f64)| format!("\"{name}\",{value:.3}\n");
        self.0.iter().map(line).collect()
    }
}

/// Returns the latency at this quantile.
fn part(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let at = (times.len() as f64 * part).ceil() as usize;
    times.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_times() {
        let mut times: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|of| part(&mut times, of)), [100.0, 198.0, 200.0]);
        assert!(part(&mut [], 0.5).is_nan());
    }
}
