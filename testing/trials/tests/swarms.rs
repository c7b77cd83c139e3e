//! Kills and restarts of a real tidegate with a few peers. How fast they are is not looked at.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

use std::path::Path;
use std::process::Command;

use harness::Directory;

/// Runs a command, which must succeed. Returns what it prints.
fn run(words: &str) -> String {
    let trials = env!("CARGO_BIN_EXE_tidegate-trials");
    let tidegate = Path::new(trials).with_file_name("tidegate");
    assert!(tidegate.is_file(), "no {}: cargo build --package tidegate", tidegate.display());
    let directory = Directory::within(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mut command = Command::new(trials);
    command.args(words.split(' ')).arg("--out").arg(directory.root());
    harness::output(command).unwrap()
}

#[test]
fn peers_survive_kills() {
    // 99 % is the promise: on a busy machine the journal is written a little later.
    let text = run("crash 3 --peers 2000 --late 0 --kept 99");
    assert!(text.contains("# Swarms after kill -9"), "{text}");
}

#[test]
fn peers_survive_restarts() {
    for words in [
        "restart --peers 2000 --settle 1 --runs 1",
        "restart --peers 2000 --settle 1 --runs 1 --kill",
    ] {
        let text = run(words);
        assert!(text.contains("100.0000 % of the peers kept"), "{text}");
    }
}
