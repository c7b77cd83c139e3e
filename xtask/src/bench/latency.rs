//! Checks the latencies that `tidegate load udp` reports against a capture of the same requests and
//! answers by tcpdump on the loopback device.

use std::collections::HashMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::load::pinned;
use super::plan::Plan;
use super::subject::Subject;
use crate::command::output;
use crate::workspace::{release, root};

/// The compared percentiles.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

/// Measures at several rates, up to about half of the tracker's capacity on one core.
pub(super) fn bench(plan: &Plan) -> Result<()> {
    let mut table = "rate,percentile,load_us,tcpdump_us,difference_us\n".to_owned();
    for round in 1..=plan.runs {
        for rate in [5_000, 20_000, 50_000] {
            let pairs = measure(plan, rate).with_context(|| format!("round {round}"))?;
            for ((name, _), (told, seen)) in PERCENTILES.iter().zip(pairs) {
                println!(
                    "round {round} {rate:>6}/s {name:<6} load {told:>8.1} us  tcpdump {seen:>8.1} us"
                );
                table += &format!("{rate},{name},{told:.1},{seen:.1},{:.1}\n", told - seen);
            }
        }
    }
    if plan.write {
        plan.write_record("latency", &[Subject::Tidegate], &table)?;
    }
    Ok(())
}

/// Returns each percentile, as reported by the load tester and as captured, in microseconds.
fn measure(plan: &Plan, rate: u32) -> Result<Vec<(f64, f64)>> {
    let _tracker = Subject::Tidegate.start(&plan.rivals)?;
    let file = root().join("target/bench/latency.pcap");
    let address = Subject::Tidegate.address();
    let port: u16 = address.rsplit(':').next().unwrap_or_default().parse()?;
    // Run tcpdump on the tracker's core: delays that it causes there affect both results. On the load's
    // core they would only affect the load.
    let mut capture = Command::new("taskset")
        .args([
            "-c",
            "0",
            "tcpdump",
            "-i",
            "lo",
            "-s",
            "96",
            "-B",
            "131072",
            "--time-stamp-precision=nano",
            "-w",
        ])
        .arg(&file)
        .arg(format!("udp port {port}"))
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start tcpdump: install Debian's package tcpdump")?;
    sleep(Duration::from_secs(1));
    let mut load = pinned();
    load.arg(release().join("tidegate")).args([
        "load",
        "udp",
        &format!("udp://{address}"),
        "--json",
    ]);
    load.args(["--warm-up", "0", "--mix", "0:1:0", "--rate", &rate.to_string()]);
    load.args(["--seconds", &plan.seconds.to_string()]);
    let told = output(load);
    sleep(Duration::from_secs(1));
    interrupt(&mut capture)?;
    let told = told?;
    let mut seen_us = round_trips_us(&fs::read(&file)?, port)?;
    fs::remove_file(&file)?;
    let sent = f64::from(rate) * f64::from(plan.seconds);
    ensure!(
        seen_us.len() as f64 > sent * 0.99,
        "tcpdump captured only {} of {sent} requests",
        seen_us.len()
    );
    seen_us.sort_by(f64::total_cmp);
    let pair = |(name, part): &(&str, f64)| {
        let at = (seen_us.len() as f64 * part) as usize;
        Ok((latency_us(&told, name)?, seen_us[at.min(seen_us.len() - 1)]))
    };
    PERCENTILES.iter().map(pair).collect()
}

/// Interrupts tcpdump, so that it writes its buffers.
fn interrupt(child: &mut Child) -> Result<()> {
    Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    child.wait()?;
    Ok(())
}

/// Returns a value of the load tester's `"latency_us":{…}`.
fn latency_us(json: &str, name: &str) -> Result<f64> {
    let latencies = json.split_once("\"latency_us\":{").map(|(_, rest)| rest);
    let figure = latencies.and_then(|rest| rest.split_once(&format!("\"{name}\":")));
    let figure = figure.and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
    figure.with_context(|| format!("no {name} in {json}"))
}

/// Returns the times from each request to its answer, in a capture of Ethernet frames with nanoseconds.
fn round_trips_us(capture: &[u8], port: u16) -> Result<Vec<f64>> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    let Some(0xa1b2_3c4d) = word(capture, 0) else { bail!("expected a capture with nanoseconds") };
    let mut rest = capture.get(24..).unwrap_or_default();
    let mut asked: HashMap<(u16, u32), f64> = HashMap::new();
    let mut times_us = Vec::new();
    while let (Some(s), Some(ns), Some(len)) = (word(rest, 0), word(rest, 4), word(rest, 8)) {
        let at_us = f64::from(s) * 1e6 + f64::from(ns) / 1e3;
        let Some(frame) = rest.get(16..16 + len as usize) else { break };
        rest = &rest[16 + len as usize..];
        // Ethernet 14, IPv4 20, UDP 8. Requests: connection id 8, action 4, transaction id 4; answers:
        // action 4, transaction id 4 (BEP 15). All big-endian.
        let short = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let id = |at: usize| word(frame, at).map(u32::swap_bytes);
        let (Some(from), Some(to)) = (short(34), short(36)) else { continue };
        if to == port {
            if let Some(id) = id(54) {
                asked.entry((from, id)).or_insert(at_us);
            }
        } else if let Some(at) = id(46).and_then(|id| asked.remove(&(to, id))) {
            times_us.push(at_us - at);
        }
    }
    Ok(times_us)
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
    fn answers_are_told_from_requests_by_port_and_transaction() {
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
        assert_eq!(round_trips_us(&capture.concat(), 9).unwrap(), [3.0, 30.0]);
        assert!(round_trips_us(b"something else", 9).is_err());
    }

    #[test]
    fn figures_are_those_of_the_latency() {
        let json = r#"{"p50":1.0,"latency_us":{"mean":4.0,"p50":2.5,"p99_9":3.0}}"#;
        assert_eq!(latency_us(json, "p50").unwrap(), 2.5);
        assert_eq!(latency_us(json, "p99_9").unwrap(), 3.0);
        assert!(latency_us(json, "p90").is_err());
    }
}
