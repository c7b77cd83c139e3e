//! Debian systems in containers: files of their own by debootstrap, and processes and network by systemd-nspawn.

use crate::command::{command, output, run};
use crate::workspace::target;
use anyhow::{Context, Result, ensure};
use harness::{PATIENCE, Process, Signal, signal, wait_for};
use std::fs;
use std::path::{Path, PathBuf};

const SUITE: &str = "bookworm";
/// Packages of a server that a minimal system lacks, then a web server with its client, and the package managers of other
/// systems with what they need.
const INCLUDE: &str = "systemd,systemd-sysv,dbus,adduser,iproute2,procps,sudo,busybox,wget,libarchive-tools,makepkg,\
                       pacman-package-manager,rpm";

/// The files of a fresh system.
#[derive(Debug)]
pub(super) struct Guest {
    root: PathBuf,
}

impl Guest {
    /// Makes a system of this machine's architecture, by a copy of one that debootstrap has made once.
    pub(super) fn new(name: &str) -> Result<Self> {
        let folder = target().join("packages");
        let base = folder.join(SUITE);
        let marker = base.join("etc/tidegate-base");
        if !fs::read_to_string(&marker).is_ok_and(|made_with| made_with == INCLUDE) {
            remove(&base)?;
            fs::create_dir_all(&folder)?;
            let packages = format!("--include={INCLUDE}");
            let mut bootstrap = command(&["debootstrap", "--variant=minbase", &packages]);
            bootstrap.arg(SUITE).arg(&base).args(mirror());
            run(bootstrap)?;
            fs::write(marker, INCLUDE)?;
        }
        let root = folder.join(name);
        remove(&root)?;
        let mut copy = command(&["cp", "--archive", "--reflink=auto"]);
        copy.arg(&base).arg(&root);
        run(copy)?;
        Ok(Self { root })
    }

    /// Copies a file into the system's `/packages`.
    pub(super) fn add(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("no file name")?;
        fs::create_dir_all(self.path("packages"))?;
        fs::copy(file, self.path("packages").join(name))?;
        Ok(())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs a shell script in the system, with nothing started: a build of an image, or a rescue.
    pub(super) fn run_offline(&self, script: &str) -> Result<String> {
        let flags = [
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let mut unshare = command(&[&["unshare"], &flags[..]].concat());
        unshare.arg(format!("--root={}", self.root.display())).args(["sh", "-ec", script]);
        unshare.env_clear().env("PATH", PATH).env("DEBIAN_FRONTEND", "noninteractive");
        output(unshare)
    }

    /// Boots the system.
    pub(super) fn boot(self) -> Result<Running> {
        let mut nspawn =
            command(&["systemd-nspawn", "--quiet", "--boot", "--private-network", "--register=no"]);
        nspawn.args(["--keep-unit", "--console=pipe"]).arg("--directory").arg(&self.root);
        // The kernel here has one of them: the first version of control groups, or the second.
        let process = Process::start_with_one_log(nspawn, &target().join("packages"), "boot")?;
        let running = Running { leader: leader(process.id())?, process, guest: self };
        wait_for(PATIENCE, "the boot", || {
            let state = running.run("systemctl is-system-running || true")?;
            Ok(["running", "degraded"].contains(&state.trim()))
        })?;
        Ok(running)
    }
}

const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A system that was booted, until this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    leader: u32,
    #[expect(dead_code, reason = "systemd-nspawn ends when it is dropped")]
    process: Process,
    #[expect(dead_code, reason = "whose files these are")]
    guest: Guest,
}

impl Drop for Running {
    /// Kills the first process of the system, and with it all others. They would outlive systemd-nspawn.
    fn drop(&mut self) {
        if let Err(error) = signal(self.leader, Signal::SIGKILL) {
            println!("a system in a container did not end: {error:#}");
        }
    }
}

impl Running {
    /// Runs a shell script in the system, and returns its standard output.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let leader = self.leader.to_string();
        let within = ["timeout", "600", "nsenter", "--all", "--target", &leader];
        let mut enter = command(&[&within[..], &["sh", "-ec", script]].concat());
        enter.env_clear().env("PATH", PATH).env("DEBIAN_FRONTEND", "noninteractive");
        output(enter)
    }

    /// Runs a script until it succeeds.
    pub(super) fn wait(&self, script: &str) -> Result<()> {
        wait_for(PATIENCE, script, || self.run(script).map(|_| true))
    }
}

/// Returns the first process of the container that systemd-nspawn has started. Its other children only prepare that one.
fn leader(nspawn: u32) -> Result<u32> {
    let is_first = |child: &u32| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let mut ids = status.lines().filter_map(|line| line.strip_prefix("NSpid:"));
        ids.any(|ids| ids.ends_with("\t1"))
    };
    let mut first = None;
    wait_for(PATIENCE, "the first process", || {
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children"))?;
        first = children.split_whitespace().filter_map(|it| it.parse().ok()).find(is_first);
        Ok(first.is_some())
    })?;
    first.context("no process")
}

/// Returns the mirror that apt uses here.
fn mirror() -> Option<String> {
    let words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let found = output(command(&[&words[..], &[&format!("Codename: {SUITE}")]].concat())).ok()?;
    found.lines().next().map(str::to_owned)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        let mut remove = command(&["rm", "--recursive", "--force", "--one-file-system"]);
        remove.arg(folder);
        run(remove)?;
    }
    ensure!(!folder.exists(), "cannot remove {}", folder.display());
    Ok(())
}
