//! Tests with real clients, which find each other through the tracker and transfer a torrent.
//!
//! Every case has a network, a tracker and clients of its own, so that several run at once. The network is
//! a namespace without a route out. The processes share a process namespace whose first process is this
//! program, as `client-case`. When it ends, for any reason, the kernel kills the others, and removes the
//! network with the last of them. Nothing is named on the machine, so that nothing is left behind and
//! concurrent runs do not meet.

mod acme;
mod case;
mod haproxy;
mod network;
mod pair;
mod pebble;
mod peer;
mod prometheus;
mod script;
mod torrent;

use crate::command::is_root;
use crate::venv::CLIENT_TOOLS;
use crate::workspace::{binary, root, target};
use anyhow::{Context, Result, ensure};
use case::{CASES, Case};
pub(crate) use network::set_up as set_up_network;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Cases that run at once. Most clients wait most of the time; browsers do not.
const LANES: usize = 6;

/// Runs the cases whose names contain one of `names`, or all.
///
/// # Errors
///
/// Returns an error if no case has such a name, or the tracker is not built.
pub fn run(names: &[&str]) -> Result<()> {
    let wanted = |case: &&Case| names.is_empty() || names.iter().any(|name| case.0.contains(name));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let all = || CASES.iter().map(|case| case.0).collect::<Vec<_>>();
    ensure!(!cases.is_empty(), "no case {names:?} among {:?}", all());
    ensure!(binary().is_file(), "no {}", binary().display());
    // The cases have no way to a registry.
    CLIENT_TOOLS.install()?;
    let folder = target().join(format!("clients-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    // A copy, because cargo may replace the original while the cases run.
    let program = folder.join("xtask");
    fs::copy("/proc/self/exe", &program)?;
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut failed = Vec::new();
        while let Some((name, _)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !passes(&program, name, &folder) {
                failed.push(*name);
            }
        }
        failed
    };
    let failed = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let failed = lanes.into_iter().map(|lane| lane.join().ok().context("a lane panicked"));
        failed.collect::<Result<Vec<_>>>()
    });
    let failed = failed?.concat();
    fs::remove_dir_all(&folder)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs a case, and once more if it fails: the clients have races of their own, which show on a busy
/// machine. A case that passes then is flaky.
fn passes(program: &Path, name: &str, folder: &Path) -> bool {
    let Err(error) = run_in_namespace(program, name, &folder.join(name)) else { return true };
    println!("{error:#}\n{name}: trying once more");
    let again = run_in_namespace(program, name, &folder.join(format!("{name}-again")));
    match &again {
        Ok(()) => println!("{name}: flaky"),
        Err(error) => println!("{error:#}"),
    }
    again.is_ok()
}

/// Starts this program again as the first process of new namespaces, and waits for it.
fn run_in_namespace(program: &Path, case: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = namespace(program);
    command.args(["client-case", case]).arg(folder).env("TIDEGATE_BINARY", binary());
    let Output { status, stdout, stderr } = command.output().context("setpriv (util-linux)")?;
    print!("{}", String::from_utf8_lossy(&stdout));
    ensure!(status.success(), "{case}: {}", String::from_utf8_lossy(&stderr).trim_end());
    Ok(())
}

/// Returns `program` as the first process of new namespaces, with a network of its own.
pub(crate) fn namespace(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
    // The harness looks there whether a process has ended.
    command.arg("--mount-proc");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(program).current_dir(root());
    command
}

/// Runs one case. This process must be the first of its namespaces.
///
/// # Errors
///
/// Returns an error if the case fails.
pub fn run_case(name: &str, folder: &Path) -> Result<()> {
    let case = CASES.iter().find(|case| case.0 == name).context("no such case")?;
    case::run(case, folder)
}
