//! Tests with real clients, which find each other through the tracker and transfer a torrent.
//!
//! Every case has a network, a tracker and clients of its own, so that several run at once. The network is
//! a namespace without a route out. The processes share a process namespace whose first process is this
//! program, as `client-case`. When it ends, for any reason, the kernel kills the others, and removes the
//! network with the last of them. Nothing is named on the machine, so that nothing is left behind and
//! concurrent runs do not meet.

mod acme;
mod authority;
mod case;
mod haproxy;
mod loads;
mod pair;
mod pebble;
mod peer;
mod prometheus;
mod script;
mod torrent;
mod tracker;

use crate::command::Tally;
use crate::workspace::root;
use anyhow::{Context, Result, anyhow, ensure};
use case::{CASES, Case};
pub(crate) use pebble::{PEBBLE, pebble_folder};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub(crate) use tracker::{binary, metric};

/// How many cases run at once. Most clients wait most of the time; browsers do not.
const LANES: usize = 6;

/// Runs the cases whose names contain one of `names`, or all.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let wanted =
        |case: &&Case| names.is_empty() || names.iter().any(|name| case.name.contains(name));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let all = || CASES.iter().map(|case| case.name).collect::<Vec<_>>();
    ensure!(!cases.is_empty(), "no case {names:?} among {:?}", all());
    ensure!(binary().is_file(), "no {}: cargo build --release first", binary().display());
    let folder = root().join(format!("target/clients-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    // A copy, because cargo may replace the original while the cases run.
    let program = folder.join("xtask");
    fs::copy("/proc/self/exe", &program)?;
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut outcomes = Vec::new();
        while let Some(Case { name, .. }) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            outcomes.push(run_in_namespace(&program, name, &folder.join(name)).or_else(|error| {
                // The clients have races of their own, which show on a busy machine. A case that
                // fails twice has failed.
                println!("{error:#}\n{name}: trying once more");
                run_in_namespace(&program, name, &folder.join(format!("{name}-again")))
            }));
        }
        outcomes
    };
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let panicked = |_| vec![Err(anyhow!("a lane of cases panicked"))];
        lanes.into_iter().flat_map(|lane| lane.join().unwrap_or_else(panicked)).collect()
    });
    fs::remove_dir_all(&folder)?;
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        println!("{error:#}");
    }
    let (passed, failed) = (u32::try_from(outcomes.len() - failed)?, u32::try_from(failed)?);
    Ok(Tally { passed, failed })
}

/// Starts this program again as the first process of new namespaces, and waits for it.
fn run_in_namespace(program: &Path, case: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = namespace(program);
    command.args(["client-case", case]).arg(folder);
    let Output { status, stdout, stderr } = command.output().context("setpriv (util-linux)")?;
    print!("{}", String::from_utf8_lossy(&stdout));
    ensure!(status.success(), "{case}: {}", String::from_utf8_lossy(&stderr).trim_end());
    Ok(())
}

/// Returns `program` as the first process of new namespaces, with a network of its own.
pub(crate) fn namespace(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(program).current_dir(root());
    command
}

fn is_root() -> bool {
    let id = crate::command::output(crate::command::command(&["id", "-u"]));
    id.is_ok_and(|id| id.trim() == "0")
}

/// Runs one case. This process must be the first of its namespaces.
pub(crate) fn run_case(name: &str, folder: &Path) -> Result<()> {
    let case = CASES.iter().find(|case| case.name == name).context("no such case")?;
    case.run(folder)
}
