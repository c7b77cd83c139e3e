//! Benchmarks load testers: answers per second of the tester's own CPU time, for tidegate's and aquatic's
//! in turn, against the same tidegate.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::load::{Seen, aquatic, averages, figure, http, pinned, udp, url};
use super::plan::{Plan, median};
use super::subject::Subject;
use crate::command::output;
use crate::workspace::{release, root};

/// A pair of load testers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Testers {
    /// As many connects as announces, few scrapes.
    Udp,
    /// 64 connections kept alive.
    Http,
    /// Over TLS, the only protocol of aquatic's tester: 128 connections in 4 torrents, 10 offers an announce.
    Wss,
}

/// One run of one of them.
struct Run {
    tester: &'static str,
    seen: Seen,
    /// CPU time of the tester.
    cpu_s: f64,
}

impl Run {
    fn per_cpu_s(&self) -> f64 {
        self.seen.responses_s * self.seen.seconds / self.cpu_s
    }
}

const OURS: &str = "tidegate load";

impl Testers {
    /// Parses a name of the command line.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "udp-testers" => Some(Self::Udp),
            "http-testers" => Some(Self::Http),
            "wss-testers" => Some(Self::Wss),
            _ => None,
        }
    }

    fn aquatic(self) -> &'static str {
        match self {
            Self::Udp => "aquatic_udp_load_test",
            Self::Http => "aquatic_http_load_test",
            Self::Wss => "aquatic_ws_load_test",
        }
    }

    fn subject(self) -> Subject {
        match self {
            Self::Udp | Self::Http => Subject::Tidegate,
            Self::Wss => Subject::TidegateTls,
        }
    }

    /// Measures both testers in turn.
    pub(super) fn bench(self, plan: &Plan, name: &str) -> Result<()> {
        let mut runs = Vec::new();
        for round in 1..=plan.runs {
            for tester in [OURS, self.aquatic()] {
                let run = self.measure(plan, tester);
                let run = run.with_context(|| format!("{tester} in round {round}"))?;
                println!(
                    "round {round} {tester:<24} {:>8.0} answers/s {:>8.0} per CPU-s of its own",
                    run.seen.responses_s,
                    run.per_cpu_s()
                );
                runs.push(run);
            }
        }
        println!("\n{}", self.report(&runs));
        if plan.write {
            plan.write_record(name, &[self.subject()], &table(&runs))?;
        }
        Ok(())
    }

    fn measure(self, plan: &Plan, tester: &'static str) -> Result<Run> {
        let tracker = self.subject().start(&plan.rivals)?;
        let before = waited_for_cpu_s()?;
        let seen = if tester == OURS { self.ours(plan)? } else { self.theirs(plan)? };
        let cpu_s = waited_for_cpu_s()? - before;
        // Only now: the tracker, too, is waited for.
        drop(tracker);
        Ok(Run { tester, seen, cpu_s })
    }

    fn ours(self, plan: &Plan) -> Result<Seen> {
        let (protocol, url, words) = match self {
            Self::Udp => ("udp", format!("udp://{}", self.subject().address()), "--mix 50:50:1"),
            Self::Http => ("http", url(self.subject(), "http"), "--connections 64"),
            // Its offers have 47 bytes.
            Self::Wss => ("ws", url(self.subject(), "ws"), "--connections 128 --offer-bytes 47"),
        };
        let mut command = pinned();
        command.arg(release().join("tidegate")).args(["load", protocol, &url]);
        command.args(["--warm-up", "0", "--seconds", &plan.seconds.to_string()]);
        command.args(words.split(' '));
        let text = output(command)?;
        Ok(Seen {
            responses_s: figure(&text, "responses per second:")?,
            seconds: figure(&text, "measured:")?,
            cpu_s: None,
        })
    }

    fn theirs(self, plan: &Plan) -> Result<Seen> {
        let (address, seconds) = (self.subject().address(), plan.seconds);
        match self {
            Self::Udp => aquatic(&plan.rivals, self.aquatic(), &udp(address, 50, seconds)),
            Self::Http => {
                let text = http(address, seconds).replace("128", "64");
                aquatic(&plan.rivals, self.aquatic(), &text)
            }
            Self::Wss => websocket(&plan.rivals, self.aquatic(), address, seconds),
        }
    }

    /// Medians, and how many times as much the first does.
    fn report(self, runs: &[Run]) -> String {
        let of = |tester: &str, figure: fn(&Run) -> f64| {
            median(runs.iter().filter(|run| run.tester == tester).map(figure).collect())
        };
        let mut text =
            "| load tester | answers/s | per CPU-s of its own | ratio |\n|---|---|---|---|\n"
                .to_owned();
        for tester in [OURS, self.aquatic()] {
            let per_cpu_s = of(tester, Run::per_cpu_s);
            let _ = writeln!(
                text,
                "| {tester} | {:.0} | {per_cpu_s:.0} | {:.2} |",
                of(tester, |run| run.seen.responses_s),
                of(OURS, Run::per_cpu_s) / per_cpu_s
            );
        }
        text
    }
}

/// aquatic's load tester for WebTorrent, which counts once all connections are open.
fn websocket(testers: &Path, program: &str, address: &str, seconds: u32) -> Result<Seen> {
    let file = root().join("target/bench/load.toml");
    fs::write(
        &file,
        format!(
            "server_address = \"{address}\"\nduration = {seconds}\nnum_connections_per_worker = 128\n\
             measure_after_max_connections_reached = false\n[torrents]\nnumber_of_torrents = 4\n"
        ),
    )?;
    let mut command = pinned();
    command.arg(testers.join(program)).arg("-c").arg(&file);
    averages(&output(command)?, "Average responses per second:", "Test ran for")
}

/// The CPU time of all processes that this one has started and waited for, seconds.
fn waited_for_cpu_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("no process name in stat")?;
    // Fields 16 and 17 of proc(5), in hundredths of a second; the first after the name is 3.
    let ticks: Result<Vec<f64>, _> =
        fields.split_whitespace().skip(13).take(2).map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() / 100.0)
}

/// Every run, for the record.
fn table(runs: &[Run]) -> String {
    let mut text = "tester,answers_s,answers_per_own_cpu_s,own_cpu_s\n".to_owned();
    for Run { tester, seen, cpu_s } in runs {
        let per_cpu_s = seen.responses_s * seen.seconds / cpu_s;
        let _ = writeln!(text, "{tester},{:.0},{per_cpu_s:.0},{cpu_s:.2}", seen.responses_s);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_others_is_theirs() {
        let before = waited_for_cpu_s().unwrap();
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        output(crate::command::command(&["sh", "-c", spin])).unwrap();
        let spent = waited_for_cpu_s().unwrap() - before;
        assert!(spent > 0.01, "{spent}");
    }

    #[test]
    fn medians_are_of_each_alone() {
        let run = |tester, responses_s| Run {
            tester,
            seen: Seen { responses_s, seconds: 2.0, cpu_s: None },
            cpu_s: 1.0,
        };
        let runs = [run(OURS, 3.0), run("aquatic_udp_load_test", 1.0)];
        let report = Testers::Udp.report(&runs);
        assert!(report.contains("| tidegate load | 3 | 6 | 1.00 |"), "{report}");
        assert!(report.contains("| aquatic_udp_load_test | 1 | 2 | 3.00 |"), "{report}");
    }
}
