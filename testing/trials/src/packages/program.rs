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
    let is_native = architecture.is_native();
    let program = match is_native {
        true => "./tidegate".to_owned(),
        false => format!("qemu-{}-static ./tidegate", architecture.machine),
    };
    let mut unshare =
        command(&["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec"]);
    let urls: Vec<&str> =
        URLS.split(' ').filter(|url| is_native || !url.starts_with("udp:")).collect();
    unshare.arg(SCRIPT.replace("PROGRAM", &program).replace("URLS", &urls.join(" ")));
    unshare.current_dir(directory.root()).env("TIDEGATE_STATE__DIR", "state");
    if !is_native {
        // qemu translates system calls that the sandbox cannot tell from those of the program, and lacks the socket
        // options for filters, without which the tracker opens no UDP socket.
        unshare.env("TIDEGATE_PROCESS__SANDBOX", "off").env("TIDEGATE_UDP__LISTEN", "[]");
    }
    run(unshare).map(drop)
}

const SCRIPT: &str = "
ip link set lo up
PROGRAM version
PROGRAM config check --config tidegate.toml
PROGRAM serve --config tidegate.toml 2>log &
tracker=$!
tries=0
until PROGRAM admin health >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat log; exit 1; }
    sleep 0.2
done
PROGRAM check URLS || { cat log; exit 1; }
PROGRAM-import --help
kill $tracker
wait $tracker
";
