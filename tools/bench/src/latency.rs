//! `tidegate-bench latency`: the latencies that `tidegate-bench load udp` reports, beside those in a
//! capture of the same requests and responses by tcpdump.

use std::collections::HashMap;
use std::fs;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ::load::Latencies;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use harness::{Signal, signal};

use crate::figures::micros;
use crate::lab::{Lab, LabArgs, LoadRun, Protocol, SEED, on};
use crate::record::Figures;
use crate::report::{CASE, Column, Content, Runs, SUBJECT, table};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session};

/// Up to about half of the capacity of a tracker on one core.
const RATES: [u32; 3] = [5_000, 20_000, 50_000];
/// Time for tcpdump to start, and to receive the last packets.
const SETTLE: Duration = Duration::from_secs(1);

/// Compare the latencies that the load tester reports with a packet capture (needs tcpdump).
#[derive(Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Latency {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let version = lab.tidegate()?.version();
        let mut session = Session::start("latency", &self.output, &self.lab.definitions)?;
        for round in 1..=self.run.runs {
            for rate in RATES {
                if session.is_stopped() {
                    break;
                }
                let Some((reported, captured)) = self.measure(&lab, rate, &session)? else { break };
                let case = format!("{rate} requests/s");
                for (subject, figures) in [("load tester", reported), ("tcpdump", captured)] {
                    let key = RunKey { subject, version: &version, case: &case, cores: 1, round };
                    let p50 = figures.get("p50_us").map_or(f64::NAN, |it| it.median);
                    session.add(key, figures, &format!("p50 {}", micros(p50)))?;
                }
            }
        }
        session.finish(Vec::new())
    }

    /// Returns the figures that the load tester reports, and the captured ones.
    fn measure(
        &self,
        lab: &Lab,
        rate: u32,
        session: &Session,
    ) -> Result<Option<(Figures, Figures)>> {
        let split = lab.split(1)?;
        let tracker = lab.start(&lab.tidegate()?, Protocol::Udp, &split.tracker, &[])?;
        let (file, port) = (lab.folder.join("latency.pcap"), tracker.address.port());
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args("-i lo -s 96 -B 131072 --time-stamp-precision=nano -w".split(' '));
        tcpdump.arg(&file).arg(format!("udp port {port}")).stderr(Stdio::null());
        // On the tracker's core, delays that it causes affect both results. On the load's core they
        // would only affect the load.
        let capture = on(&split.tracker, || tcpdump.spawn())?;
        let mut capture = capture.context("cannot start tcpdump: install the package tcpdump")?;
        sleep(SETTLE);
        let words = ["--mix", "0:1:0", "--rate", &rate.to_string()].map(str::to_owned);
        let seconds = self.run.seconds;
        let run = LoadRun {
            protocol: Protocol::Udp,
            tracker: &tracker,
            path: None,
            seed: SEED,
            seconds,
            // The capture has no warm-up, either.
            warm_up: 0,
            processors: &split.load,
            stop: &session.stop,
        };
        let result = lab.load(run, &words);
        sleep(SETTLE);
        end(&mut capture)?;
        let Some(result) = result? else { return Ok(None) };
        let (captured, times) = round_trips(&fs::read(&file)?, port)?;
        let sent = u64::from(rate) * u64::from(seconds);
        ensure!(times * 100 > sent * 99, "tcpdump captured only {times} of {sent} requests");
        let mut figures = Figures::default().with("seconds", f64::from(seconds));
        for (name, part) in
            [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p99_9_us", 0.999)]
        {
            figures.set(name, captured.quantile(part).unwrap_or_default().as_secs_f64() * 1e6);
        }
        Ok(Some((result.figures(), figures)))
    }
}

/// Ends tcpdump, so that it writes its buffers.
fn end(child: &mut Child) -> Result<()> {
    signal(child.id(), Signal::SIGINT)?;
    child.wait()?;
    Ok(())
}

/// Returns the times from each request to its response, and their number, in a capture of Ethernet
/// frames with nanoseconds.
fn round_trips(capture: &[u8], port: u16) -> Result<(Latencies, u64)> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    let Some(0xa1b2_3c4d) = word(capture, 0) else { bail!("expected a capture with nanoseconds") };
    let mut rest = capture.get(24..).unwrap_or_default();
    let mut asked: HashMap<(u16, u32), Duration> = HashMap::new();
    let (mut times, mut count) = (Latencies::default(), 0);
    while let (Some(s), Some(ns), Some(len)) = (word(rest, 0), word(rest, 4), word(rest, 8)) {
        let at = Duration::new(s.into(), ns);
        let Some(frame) = rest.get(16..16 + len as usize) else { break };
        rest = &rest[16 + len as usize..];
        // Ethernet 14, IPv4 20, UDP 8. Requests: connection id 8, action 4, transaction id 4;
        // responses: action 4, transaction id 4 (BEP 15). All big-endian.
        let short = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let id = |at: usize| word(frame, at).map(u32::swap_bytes);
        let (Some(from), Some(to)) = (short(34), short(36)) else { continue };
        if to == port {
            if let Some(id) = id(54) {
                asked.entry((from, id)).or_insert(at);
            }
        } else if let Some(sent) = id(46).and_then(|id| asked.remove(&(to, id))) {
            times.record(at.saturating_sub(sent));
            count += 1;
        }
    }
    Ok((times, count))
}

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        SUBJECT,
        ("50 %", |row| row.cell("p50_us", micros)),
        ("90 %", |row| row.cell("p90_us", micros)),
        ("99 %", |row| row.cell("p99_us", micros)),
        ("99.9 %", |row| row.cell("p99_9_us", micros)),
    ];
    let text = "Latencies that the load tester reports at a fixed rate, and those that tcpdump \
                measures for the same packets.";
    let blocks = vec![table(&runs.rows(), COLUMNS)];
    ("Latencies of the load tester".to_owned(), text.to_owned(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a capture.
    fn frame(us: u32, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes(), [0; 2], [0; 2]].concat());
        frame.extend(payload);
        let len = (frame.len() as u32).to_le_bytes();
        let head = [1u32.to_le_bytes(), (us * 1000).to_le_bytes(), len, len].concat();
        [head, frame].concat()
    }

    #[test]
    fn responses_are_told_from_requests_by_port_and_transaction() {
        let request = |id: u8| [&[0; 12][..], &[0, 0, 0, id]].concat();
        let answer = |id: u8| vec![0, 0, 0, 1, 0, 0, 0, id];
        let head = [&0xa1b2_3c4du32.to_le_bytes()[..], &[0; 20]].concat();
        let capture = [
            head,
            frame(10, (1, 9), &request(1)),
            frame(12, (2, 9), &request(1)),
            frame(15, (9, 2), &answer(1)),
            frame(16, (9, 1), &answer(7)),
            frame(40, (9, 1), &answer(1)),
        ];
        let (times, count) = round_trips(&capture.concat(), 9).unwrap();
        assert_eq!((count, times.max(), times.mean()), (2, us(30), us(33) / 2));
        assert!(round_trips(b"something else", 9).is_err());
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }
}
