//! The archive of the static programs: unpacked, started and checked in a network of its own.

use super::{URLS, find};
use crate::artifacts::Architecture;
use crate::command::{command, run};
use anyhow::Result;
use harness::Directory;
use std::path::Path;

/// Unpacks the archive of an architecture.
pub(super) fn unpack(folder: &Path, architecture: Architecture) -> Result<Directory> {
    let archive = find(folder, &format!("-{}-linux.tar.gz", architecture.machine))?;
    let directory = Directory::new()?;
    let mut unpack = command(&["tar", "--extract", "--strip-components=1", "--file"]);
    unpack.arg(archive).arg("--directory").arg(directory.root());
    run(unpack)?;
    Ok(directory)
}

/// Starts the program, and checks it. Programs of other architectures run by qemu.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let directory = unpack(folder, architecture)?;
    let program = match architecture.is_native() {
        true => "./tidegate".to_owned(),
        false => format!("qemu-{}-static ./tidegate", architecture.machine),
    };
    let mut unshare =
        command(&["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec"]);
    let script = script(&program, "tidegate.toml", architecture);
    unshare.arg(format!("ip link set lo up\n{script}"));
    unshare.current_dir(directory.root()).env("TIDEGATE_STATE__DIR", "state");
    run(unshare)
}

/// Returns a script that starts a program with a configuration, and checks it by all protocols.
pub(super) fn script(program: &str, configuration: &str, architecture: Architecture) -> String {
    let script = SCRIPT
        .replace("CONFIGURATION", configuration)
        .replace("PROGRAM", program)
        .replace("URLS", URLS);
    match architecture.is_native() {
        true => script,
        // qemu translates system calls, which the sandbox cannot tell from those of the program.
        false => format!("export TIDEGATE_PROCESS__SANDBOX=off\n{script}"),
    }
}

const SCRIPT: &str = "
PROGRAM version
PROGRAM config check --config CONFIGURATION
PROGRAM serve --config CONFIGURATION 2>log &
tracker=$!
tries=0
until PROGRAM admin health >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat log; exit 1; }
    sleep 0.2
done
PROGRAM check URLS || { cat log; exit 1; }
PROGRAM announce --stay udp://127.0.0.1:6969/announce 0123456789abcdef0123456789abcdef01234567
PROGRAM scrape --json udp://127.0.0.1:6969/announce 0123456789abcdef0123456789abcdef01234567 | grep '\"leechers\":1'
PROGRAM-import --help
kill $tracker
wait $tracker
";
