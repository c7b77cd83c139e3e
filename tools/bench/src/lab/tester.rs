//! The load tester, in a process of its own on processors of its own.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::load::{Quantiles, Report, TrackerUsage};
use anyhow::{Context, Result, bail, ensure};
use harness::{PATIENCE, Process, is_alive, output, wait_for};

use super::definition::Protocol;
use super::tracker::RunningTracker;
use super::{Lab, cores};
use crate::record::Figures;

pub(crate) fn figures(report: &Report) -> Figures {
    let all = report.counts.responses.all() as f64;
    let Quantiles { mean, p50, p90, p99, p99_9, p99_99, max } = report.latency_us;
    let mut figures = Figures::default()
        .with("seconds", report.seconds)
        .with("responses_s", report.responses_per_s)
        .with("is_load_limit", f64::from(u8::from(report.generator.is_limit)))
        .with("over_1_ms_part", report.over_1_ms)
        .with("sent_late_part", report.generator.schedule_slip)
        .with("peers_per_response", report.peers_per_response)
        .with("mean_us", mean)
        .with("p50_us", p50)
        .with("p90_us", p90)
        .with("p99_us", p99)
        .with("p99_9_us", p99_9)
        .with("p99_99_us", p99_99)
        .with("max_us", max);
    if report.counts.sent > 0 {
        // The load's own requests, without messages relayed from other peers and without
        // responses to messages that are not requests.
        let answered = report.counts.sent.saturating_sub(report.counts.lost) as f64;
        figures.set("answered_s", answered / report.seconds);
        figures.set("lost_part", report.lost_part());
        figures.set("failed_part", report.failed_part());
    }
    if let Some(TrackerUsage { user_s, sys_s, .. }) = report.tracker {
        figures.set("per_cpu_s", all / (user_s + sys_s));
        figures.set("user_us", user_s / all * 1e6);
        figures.set("sys_us", sys_s / all * 1e6);
        figures.set("cpu_part", (user_s + sys_s) / report.seconds);
    }
    figures
}

/// Parses what `tidegate-bench load` prints.
fn parse(text: &str) -> Result<Report> {
    let report: Report = serde_json::from_str(text)
        .with_context(|| format!("cannot parse the load tester's report: {}", last_line(text)))?;
    ensure!(report.seconds > 0.0, "the load tester measured for 0 s: {}", last_line(text));
    Ok(report)
}

/// A load on a running tracker.
#[derive(Clone, Copy)]
pub(crate) struct LoadRun<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) tracker: &'a RunningTracker,
    pub(crate) seconds: u32,
    pub(crate) warm_up: u32,
    pub(crate) processors: &'a [usize],
    pub(crate) stop: &'a AtomicBool,
}

/// The seed of torrents and peers.
const SEED: &str = "1";

impl Lab {
    /// Runs our own load tester with these arguments. Returns `None` if `stop` was set meanwhile.
    pub(crate) fn load(&self, run: LoadRun<'_>, words: &[String]) -> Result<Option<Report>> {
        let LoadRun { protocol, tracker, seconds, warm_up, processors, stop } = run;
        let mut all = self.load_words(protocol, tracker.address);
        all.extend_from_slice(words);
        for (name, value) in
            [("--seconds", seconds), ("--warm-up", warm_up), ("--pid", tracker.process())]
        {
            all.extend([name.to_owned(), value.to_string()]);
        }
        let time = Duration::from_secs((seconds + warm_up).into());
        let printed = run_for(time, &all, processors, self.folder.root(), stop)?;
        printed.map(|text| parse(&text)).transpose()
    }

    /// Makes our own load tester write the info hashes that it will use.
    pub(crate) fn write_hashes(&self, protocol: Protocol, words: &[String]) -> Result<()> {
        // No request is sent yet, so any address will do.
        let [program, all @ ..] = &*self.load_words(protocol, ([127, 0, 0, 1], 1).into()) else {
            bail!("no load tester")
        };
        let mut command = Command::new(program);
        command.args(all).args(words).arg("--write-hashes").arg(self.folder.path("hashes"));
        output(command).context("the load tester cannot write its info hashes").map(drop)
    }

    /// Returns the command of our own load tester: program, URL, seed.
    fn load_words(&self, protocol: Protocol, address: SocketAddr) -> Vec<String> {
        let path = match protocol.without_tls() {
            Protocol::Http => "/announce",
            Protocol::Ws => "/",
            _ => "",
        };
        let url = format!("{protocol}://{address}{path}");
        let own = self.own.display().to_string();
        let words = [&own, "load", protocol.without_tls().name(), &url, "--seed", SEED];
        words.map(str::to_owned).into()
    }
}

/// Runs a load tester on these processors, which takes about `time`, with its output in files of `folder`. Returns what it
/// prints, or `None` if `stop` was set meanwhile.
fn run_for(
    time: Duration,
    words: &[String],
    processors: &[usize],
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Option<String>> {
    let [program, words @ ..] = words else { bail!("the load tester has no command") };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).process_group(0);
    let mut process = cores::on(processors, || Process::start(command, folder, "load"))??;
    let is_stopped = || stop.load(Ordering::Relaxed);
    let has_ended = || Ok(is_stopped() || !is_alive(process.id()));
    wait_for(time + PATIENCE, "the end of the load tester", has_ended)?;
    if is_stopped() {
        return Ok(None);
    }
    let status = process.wait_for_end(PATIENCE)?;
    let complaints = process.stderr();
    ensure!(status.success(), "the load tester failed ({status}): {}", last_line(&complaints));
    Ok(Some(process.stdout()))
}

/// Returns the last line, which is the error if there is one.
fn last_line(text: &str) -> String {
    let line =
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
    line.trim().chars().take(300).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant;

    use harness::Directory;

    use super::*;

    /// A report as `tidegate-bench load udp` writes it.
    pub(crate) const FIGURES: &str = r#"{"protocol":"udp","url":"udp://127.0.0.1:3000","seed":1,
        "loop":{"kind":"closed","outstanding":64},"seconds":10.0,"sent":1000010,
        "responses":{"connect":400000,"announce":590000,"scrape":9000,"error":1000},
        "responses_per_s":100000.0,"lost":10,"late":2,"errors":{"refused: no":1000},
        "latency_us":{"mean":120.5,"p50":100.0,"p90":150.0,"p99":300.0,"p99_9":900.0,"p99_99":1500.0,"max":2000.0},
        "bytes_in":100000000,"bytes_out":90000000,"peers_per_response":21.5,
        "over_1_ms":0.001,"checks":{"checked":100,"own_address":0,"duplicates":0,"unknown_peers":0,"bad_counts":0},
        "generator":{"cpu_s":9.5,"is_limit":true,"schedule_slip":0.01},
        "tracker":{"pid":7,"user_s":1.0,"sys_s":4.0,"rss_bytes":1000000,"rss_peak_bytes":2000000,"responses_per_cpu_s":200000.0},"ended":null}"#;

    #[test]
    fn parses_reports() {
        let result = parse(FIGURES).unwrap();
        assert_eq!((result.seconds, result.counts.responses.announce), (10.0, 590_000));
        let figures = figures(&result);
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
            assert_eq!(figures.get(name), Some(expected), "{name}");
        }
        for bad in ["", "nothing", &FIGURES.replace("10.0", "0.0"), &FIGURES[..300]] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn can_be_stopped() {
        let start = Instant::now();
        let words = ["sh", "-c", "exec sleep 60"].map(str::to_owned);
        let (folder, stop) = (Directory::new().unwrap(), AtomicBool::new(true));
        let ended = run_for(Duration::ZERO, &words, &[0], folder.root(), &stop);
        assert!(ended.unwrap().is_none() && start.elapsed() < Duration::from_secs(30));
    }
}
