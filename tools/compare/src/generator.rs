//! Runs `tidegate load` in its own process on its own processors, and parses its JSON report.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cores;

/// The parts of the load tester's report that comparisons use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LoadResult {
    pub(crate) seconds: f64,
    pub(crate) sent: u64,
    /// By kind: `connect`, `announce`, `scrape`, `error`, `offer`, `answer`.
    pub(crate) responses: BTreeMap<String, u64>,
    pub(crate) responses_per_s: f64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    /// Error messages and how often each occurred.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) latency_us: Latency,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) peers_per_response: f64,
    pub(crate) generator: Generator,
    pub(crate) tracker: Option<TrackerUsage>,
    /// WebTorrent's own results.
    pub(crate) web: Option<WebTorrentResult>,
}

/// Results that only WebTorrent's load tester reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct WebTorrentResult {
    /// Connections whose peer had joined when measuring began.
    pub(crate) joined: u64,
    /// Connections lost during the measurement.
    pub(crate) connections_lost: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) p99_99: f64,
    pub(crate) max: f64,
}

/// The load tester's own resource usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Generator {
    pub(crate) cpu_s: f64,
    /// Whether the load tester was the limit: the tracker could have answered more.
    pub(crate) is_limit: bool,
}

/// The tracker's resource usage during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct TrackerUsage {
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
}

impl LoadResult {
    /// Returns the number of all responses.
    pub(crate) fn all_responses(&self) -> u64 {
        self.responses.values().sum()
    }

    /// Returns the fraction of the requests that failed: refused, or answered by an invalid
    /// response.
    pub(crate) fn failed_part(&self) -> f64 {
        self.errors.values().sum::<u64>() as f64 / self.sent.max(1) as f64
    }

    /// Returns the number of connections that lasted for the whole measurement.
    pub(crate) fn connections_kept(&self) -> u64 {
        let WebTorrentResult { joined, connections_lost } = self.web.unwrap_or_default();
        joined.saturating_sub(connections_lost)
    }

    /// Returns the fraction of the requests that were not answered.
    pub(crate) fn lost_part(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }

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

/// A running load tester.
pub(crate) struct LoadProcess {
    child: Child,
    deadline: Instant,
}

/// Extra time beyond the measurement before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks whether it has exited.
const LOOK: Duration = Duration::from_millis(20);

impl LoadProcess {
    /// Starts `program` with these arguments on these processors; it will measure for `seconds`.
    pub(crate) fn start(
        program: &Path,
        words: &[String],
        processors: &[usize],
        seconds: u32,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = cores::on(processors, || command.spawn())?;
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let deadline = Instant::now() + PATIENCE + Duration::from_secs(seconds.into());
        Ok(Self { child, deadline })
    }

    /// Waits for the report. Returns `None` if `stop` was set meanwhile.
    pub(crate) fn figures(mut self, stop: &AtomicBool) -> Result<Option<LoadResult>> {
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
            LoadResult::parse(&figures).map(Some)
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

    /// A report as `tidegate load udp --json` writes it.
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
        assert_eq!(
            (result.seconds, result.sent, result.all_responses()),
            (10.0, 1_000_010, 1_000_000)
        );
        assert_eq!((result.failed_part() < 0.001, result.failed_part() > 0.0009), (true, true));
        assert!(result.lost_part() > 0.0);
        assert_eq!(result.latency_us.p99_9, 900.0);
        assert!(result.generator.is_limit);
        assert_eq!(result.tracker, Some(TrackerUsage { user_s: 1.0, sys_s: 4.0 }));
        // Others' figures lack some, and stages may come first.
        let less =
            LoadResult::parse("128 joined in 0.1 s\n{\"seconds\": 2.5, \"tracker\": null}\n")
                .unwrap();
        assert_eq!((less.seconds, less.tracker), (2.5, None));
        for bad in ["", "nothing", "{\"seconds\": 0.0}", "{\"seconds\": \"x\"}", &FIGURES[..300]] {
            assert!(LoadResult::parse(bad).is_err(), "{bad}");
        }
    }

    fn run(script: &str, stop: bool) -> Result<Option<LoadResult>> {
        let words = ["-c", script].map(str::to_owned);
        let processors = [0];
        let load_process = LoadProcess::start(Path::new("sh"), &words, &processors, 1).unwrap();
        load_process.figures(&AtomicBool::new(stop))
    }

    #[test]
    fn reads_the_report_of_a_process() {
        let result = run("echo '{\"seconds\": 3.0}'", false).unwrap().unwrap();
        assert_eq!(result.seconds, 3.0);
        let error = run("echo one >&2; echo two >&2; exit 3", false).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with(": two"), "{error}");
        assert!(run("true", false).is_err());
    }

    #[test]
    fn can_be_stopped() {
        let start = Instant::now();
        assert!(run("exec sleep 60", true).unwrap().is_none());
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
