//! Benchmarks idle WebSocket connections: `tidegate load ws --idle` opens 10,000 connections, which
//! announce at the tracker's interval and send pings. Measures the tracker's memory and CPU time.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use super::load::{SECURE_WEBSOCKET, WEBSOCKET, figure, websocket};
use super::plan::{Plan, median};
use super::subject::Subject;
use crate::command::output;

/// Returns the subjects of a benchmark, by its name on the command line.
pub(super) fn subjects(name: &str) -> Option<&'static [Subject]> {
    match name {
        "ws-idle" => Some(WEBSOCKET),
        "wss-idle" => Some(SECURE_WEBSOCKET),
        _ => None,
    }
}

/// One run of one subject.
struct Run {
    subject: Subject,
    bytes_per_connection: f64,
    /// CPU time while all connections are idle, in percent of a core.
    cpu_percent: f64,
}

/// Measures memory and idle cost of each subject.
pub(super) fn bench(plan: &Plan, name: &str, subjects: &[Subject]) -> Result<()> {
    let subjects = plan.available(subjects);
    let mut runs = Vec::new();
    for round in 1..=plan.runs {
        for subject in &subjects {
            let run = measure(plan, *subject)
                .with_context(|| format!("{} in round {round}", subject.name()))?;
            println!(
                "round {round} {:<22} {:>7.0} bytes a connection {:>6.2} % of a core",
                subject.name(),
                run.bytes_per_connection,
                run.cpu_percent
            );
            runs.push(run);
        }
    }
    println!("\n{}", report(&subjects, &runs));
    if plan.write {
        plan.write_record(name, &subjects, &table(&runs))?;
    }
    Ok(())
}

fn measure(plan: &Plan, subject: Subject) -> Result<Run> {
    let tracker = subject.start(&plan.rivals)?;
    let mut command = websocket(subject, tracker.pid(), plan.seconds);
    command.arg("--idle");
    let text = output(command)?;
    // With fewer connections, the result would not be comparable.
    let connections = text.lines().find(|line| line.starts_with("connections: 10000 joined "));
    if !connections.is_some_and(|line| line.ends_with(", 0 lost")) {
        bail!("some of the 10,000 connections did not stay open:\n{text}");
    }
    Ok(Run {
        subject,
        bytes_per_connection: figure(&text, "tracker's bytes per connection:")?,
        cpu_percent: figure(&text, "tracker's CPU:")?,
    })
}

fn report(subjects: &[Subject], runs: &[Run]) -> String {
    let mut text = "| tracker | bytes a connection | % of a core |\n|---|---|---|\n".to_owned();
    for subject in subjects {
        let of = |figure: fn(&Run) -> f64| {
            let own = runs.iter().filter(|run| run.subject == *subject);
            median(own.map(figure).collect())
        };
        let bytes = of(|run| run.bytes_per_connection);
        let percent = of(|run| run.cpu_percent);
        let _ = writeln!(text, "| {} | {bytes:.0} | {percent:.2} |", subject.name());
    }
    text
}

fn table(runs: &[Run]) -> String {
    let mut text = "tracker,bytes_per_connection,cpu_percent\n".to_owned();
    for Run { subject, bytes_per_connection, cpu_percent } in runs {
        let _ = writeln!(text, "{},{bytes_per_connection:.0},{cpu_percent:.2}", subject.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_subject_alone() {
        let run = |subject, bytes_per_connection, cpu_percent| Run {
            subject,
            bytes_per_connection,
            cpu_percent,
        };
        let (ours, theirs) = (Subject::Tidegate, Subject::AquaticWs);
        let runs = [
            run(ours, 900.0, 0.5),
            run(theirs, 9e4, 5.0),
            run(ours, 800.0, 0.7),
            run(ours, 1e3, 0.6),
        ];
        let text = report(&[ours, theirs], &runs);
        assert!(
            text.ends_with("| tidegate | 900 | 0.60 |\n| aquatic_ws | 90000 | 5.00 |\n"),
            "{text}"
        );
        assert_eq!(table(&runs).lines().count(), 5);
    }
}
