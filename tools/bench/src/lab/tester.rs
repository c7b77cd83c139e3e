//! The load tester, in a process of its own on processors of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::definition::Protocol;
use super::tracker::RunningTracker;
use super::{Lab, cores};
use crate::record::Figures;

/// The parts of the load tester's report that benchmarks use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LoadResult {
    pub(crate) seconds: f64,
    sent: u64,
    /// By kind: `connect`, `announce`, `scrape`, `error`, `offer`, `answer`.
    responses: BTreeMap<String, u64>,
    pub(crate) responses_per_s: f64,
    lost: u64,
    /// Error messages and how often each occurred.
    pub(crate) errors: BTreeMap<String, u64>,
    /// In microseconds, by name: `p50`, `max`.
    latency_us: BTreeMap<String, f64>,
    /// Fraction of the responses that took longer than a millisecond.
    over_1_ms: Option<f64>,
    peers_per_response: Option<f64>,
    generator: Generator,
    pub(crate) tracker: Option<TrackerUsage>,
    /// WebTorrent's own results.
    web: Option<WebTorrentResult>,
}

/// Results that only WebTorrent's load tester reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct WebTorrentResult {
    /// Connections whose peer had joined when measuring began.
    joined: u64,
    /// Connections lost during the measurement.
    connections_lost: u64,
}

/// How busy the load tester was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Generator {
    /// Whether the load tester was the limit: the tracker could have answered more.
    is_limit: bool,
    /// In an open loop, fraction of the requests sent more than a millisecond late.
    schedule_slip: Option<f64>,
}

/// The tracker's CPU time during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TrackerUsage {
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
}

impl LoadResult {
    /// Returns the number of all responses.
    pub(crate) fn all_responses(&self) -> f64 {
        self.responses_per_s * self.seconds
    }

    /// Returns the number of answered announces.
    pub(crate) fn announces(&self) -> u64 {
        self.responses.get("announce").copied().unwrap_or(0)
    }

    /// Returns the fraction of the requests that failed: refused, or answered by an invalid
    /// response.
    pub(crate) fn failed_part(&self) -> f64 {
        self.errors.values().sum::<u64>() as f64 / self.sent.max(1) as f64
    }

    /// Returns the fraction of the requests that were not answered.
    pub(crate) fn lost_part(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }

    /// Returns the number of connections that lasted for the whole measurement.
    pub(crate) fn connections_kept(&self) -> u64 {
        let WebTorrentResult { joined, connections_lost } = self.web.unwrap_or_default();
        joined.saturating_sub(connections_lost)
    }

    /// Returns everything as figures.
    pub(crate) fn figures(&self) -> Figures {
        let all = self.all_responses();
        let mut figures = Figures::default()
            .with("seconds", self.seconds)
            .with("responses_s", self.responses_per_s)
            .with("is_load_limit", f64::from(u8::from(self.generator.is_limit)));
        if self.sent > 0 {
            // The load's own requests, without messages relayed from other peers and without
            // responses to messages that are not requests.
            let answered = self.sent.saturating_sub(self.lost) as f64;
            figures.set("answered_s", answered / self.seconds);
            figures.set("lost_part", self.lost_part());
            figures.set("failed_part", self.failed_part());
        }
        let parts = [
            ("over_1_ms_part", self.over_1_ms),
            ("sent_late_part", self.generator.schedule_slip),
            ("peers_per_response", self.peers_per_response),
        ];
        for (name, part) in parts {
            figures.set(name, part.unwrap_or(f64::NAN));
        }
        for (name, us) in &self.latency_us {
            figures.set(&format!("{name}_us"), *us);
        }
        if let Some(TrackerUsage { user_s, sys_s }) = self.tracker {
            figures.set("per_cpu_s", all / (user_s + sys_s));
            figures.set("user_us", user_s / all * 1e6);
            figures.set("sys_us", sys_s / all * 1e6);
            figures.set("cpu_part", (user_s + sys_s) / self.seconds);
        }
        figures
    }

    /// Parses the report of `tidegate-bench load --json`.
    fn parse(text: &str) -> Result<Self> {
        // The report is one JSON object; other output may precede it.
        let json = text.find('{').and_then(|start| text.get(start..)).unwrap_or_default();
        let result: Self = serde_json::from_str(json).with_context(|| {
            format!("cannot parse the load tester's report: {}", last_line(text))
        })?;
        ensure!(result.seconds > 0.0, "the load tester measured for 0 s: {}", last_line(text));
        Ok(result)
    }
}

/// A load on a running tracker.
#[derive(Clone, Copy)]
pub(crate) struct LoadRun<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) tracker: &'a RunningTracker,
    /// Path of the tracker's URL, if it is not the usual one.
    pub(crate) path: Option<&'a str>,
    /// Of torrents and peers.
    pub(crate) seed: u32,
    pub(crate) seconds: u32,
    pub(crate) warm_up: u32,
    pub(crate) processors: &'a [usize],
    pub(crate) stop: &'a AtomicBool,
}

/// The usual seed of torrents and peers.
pub(crate) const SEED: u32 = 1;

impl Lab {
    /// Runs our own load tester with these arguments. Returns `None` if `stop` was set meanwhile.
    pub(crate) fn load(&self, run: LoadRun<'_>, words: &[String]) -> Result<Option<LoadResult>> {
        let LoadRun { protocol, tracker, path, seed, seconds, warm_up, processors, stop } = run;
        let mut all = self.load_words(protocol, tracker.address, path, seed);
        all.extend_from_slice(words);
        for (name, value) in
            [("--seconds", seconds), ("--warm-up", warm_up), ("--pid", tracker.process())]
        {
            all.extend([name.to_owned(), value.to_string()]);
        }
        all.push("--json".to_owned());
        let process = LoadProcess::start(&all, processors, seconds + warm_up)?;
        process.output(stop)?.map(|text| LoadResult::parse(&text)).transpose()
    }

    /// Makes our own load tester write the info hashes that it will use.
    pub(crate) fn write_hashes(&self, protocol: Protocol, words: &[String]) -> Result<()> {
        // No request is sent yet, so any address will do.
        let [program, all @ ..] =
            &*self.load_words(protocol, ([127, 0, 0, 1], 1).into(), None, SEED)
        else {
            bail!("no load tester")
        };
        let mut command = Command::new(program);
        command.args(all).args(words).arg("--write-hashes").arg(self.folder.join("hashes"));
        let output = command.stdin(Stdio::null()).output();
        let output = output.context("cannot start the load tester")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load tester cannot write its info hashes: {why}");
        Ok(())
    }

    /// Returns the command of our own load tester: program, URL, seed.
    fn load_words(
        &self,
        protocol: Protocol,
        address: SocketAddr,
        path: Option<&str>,
        seed: u32,
    ) -> Vec<String> {
        let usual = match protocol.without_tls() {
            Protocol::Http => "/announce",
            Protocol::Ws => "/",
            _ => "",
        };
        let url = format!("{protocol}://{address}{}", path.unwrap_or(usual));
        let own = self.own.display().to_string();
        let seed = seed.to_string();
        let words = [&own, "load", protocol.without_tls().name(), &url, "--seed", &seed];
        words.map(str::to_owned).into()
    }
}

/// A running load tester.
struct LoadProcess {
    child: Child,
    deadline: Instant,
}

/// Extra time beyond the measurement before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks whether it has exited.
const LOOK: Duration = Duration::from_millis(20);

impl LoadProcess {
    /// Starts a load tester on these processors; it will run for about `seconds`.
    fn start(words: &[String], processors: &[usize], seconds: u32) -> Result<Self> {
        let [program, words @ ..] = words else { bail!("the load tester has no command") };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = cores::on(processors, || command.spawn())?;
        let child = child.with_context(|| format!("cannot start {program}"))?;
        let deadline = Instant::now() + PATIENCE + Duration::from_secs(seconds.into());
        Ok(Self { child, deadline })
    }

    /// Waits for its output. Returns `None` if `stop` was set meanwhile.
    fn output(mut self, stop: &AtomicBool) -> Result<Option<String>> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        // Read its output while it runs, so that it never blocks on a full pipe.
        thread::scope(|scope| {
            let figures = scope.spawn(|| read_all(stdout));
            let complaints = scope.spawn(|| read_all(stderr));
            let status = self.wait(stop)?;
            let joined = (figures.join(), complaints.join());
            let (Ok(figures), Ok(complaints)) = joined else {
                bail!("cannot read the load tester's output")
            };
            let Some(status) = status else { return Ok(None) };
            ensure!(
                status.success(),
                "the load tester failed ({status}): {}",
                last_line(&complaints)
            );
            Ok(Some(figures))
        })
    }

    fn wait(&mut self, stop: &AtomicBool) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if stop.load(Ordering::Relaxed) {
                self.end();
                return Ok(None);
            }
            if Instant::now() > self.deadline {
                self.end();
                bail!("the load tester does not exit");
            }
            sleep(LOOK);
        }
    }

    fn end(&mut self) {
        // It may have just exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_all(source: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut source) = source {
        // Use what could be read; the exit status reports failures.
        let _ = source.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the last line, which is the error if there is one.
fn last_line(text: &str) -> String {
    let line =
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
    line.trim().chars().take(300).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report as `tidegate-bench load udp --json` writes it.
    pub(crate) const FIGURES: &str = r#"{"protocol":"udp","url":"udp://127.0.0.1:3000","seed":1,
        "loop":{"kind":"closed","outstanding":64},"seconds":10.0,"sent":1000010,
        "responses":{"connect":400000,"announce":590000,"scrape":9000,"error":1000},
        "responses_per_s":100000.0,"lost":10,"late":2,"errors":{"refused: no":1000},
        "latency_us":{"mean":120.5,"p50":100.0,"p90":150.0,"p99":300.0,"p99_9":900.0,"p99_99":1500.0,"max":2000.0},
        "bytes_in":100000000,"bytes_out":90000000,"peers_per_response":21.5,
        "checks":{"checked":100,"duplicates":0},
        "generator":{"cpu_s":9.5,"is_limit":true,"schedule_slip":0.01},
        "tracker":{"pid":7,"user_s":1.0,"sys_s":4.0,"rss_bytes":1000000,"rss_peak_bytes":2000000,"responses_per_cpu_s":200000.0}}"#;

    #[test]
    fn parses_reports() {
        let result = LoadResult::parse(FIGURES).unwrap();
        assert_eq!((result.seconds, result.announces()), (10.0, 590_000));
        let figures = result.figures();
        for (name, expected) in [
            ("responses_s", 1e5),
            ("answered_s", 1e5),
            ("per_cpu_s", 2e5),
            ("user_us", 1.0),
            ("sys_us", 4.0),
            ("cpu_part", 0.5),
            ("p99_9_us", 900.0),
            ("is_load_limit", 1.0),
            ("failed_part", 1e3 / 1_000_010.0),
            ("lost_part", 10.0 / 1_000_010.0),
        ] {
            assert_eq!(figures.get(name).map(|figure| figure.median), Some(expected), "{name}");
        }
        // Others' figures lack some, and stages may come first.
        let less =
            LoadResult::parse("128 joined\n{\"seconds\": 2.5, \"tracker\": null}\n").unwrap();
        assert_eq!((less.seconds, less.figures().get("per_cpu_s")), (2.5, None));
        let web = r#"{"seconds":1.0,"web":{"joined":7,"connections_lost":1}}"#;
        assert_eq!(LoadResult::parse(web).unwrap().connections_kept(), 6);
        for bad in ["", "nothing", "{\"seconds\": 0.0}", "{\"seconds\": \"x\"}", &FIGURES[..300]] {
            assert!(LoadResult::parse(bad).is_err(), "{bad}");
        }
    }

    fn run(script: &str, stop: bool) -> Result<Option<String>> {
        let words = ["sh", "-c", script].map(str::to_owned);
        LoadProcess::start(&words, &[0], 1).unwrap().output(&AtomicBool::new(stop))
    }

    #[test]
    fn reads_the_report_of_a_process() {
        assert_eq!(run("echo one; echo two", false).unwrap().unwrap(), "one\ntwo\n");
        let error = run("echo one >&2; echo two >&2; exit 3", false).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with(": two"), "{error}");
    }

    #[test]
    fn can_be_stopped() {
        let start = Instant::now();
        assert!(run("exec sleep 60", true).unwrap().is_none());
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
