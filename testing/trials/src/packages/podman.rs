//! Podman for containers, without a network but its loopback.

use crate::command::{command, output};
use crate::venv::PACKAGE_TOOLS;
use anyhow::Result;
use harness::Directory;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Podman with a storage of its own, which is removed at the end.
pub(super) struct Podman {
    /// With a short path, because of the sockets in it.
    folder: Directory,
}

/// The commands of users, with a storage of their own, without timers of systemd for health checks.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "podman",
        "#!/bin/sh
        export CONTAINERS_CONF=FOLDER/containers.conf DISABLE_HC_SYSTEMD=true
        exec /usr/bin/podman --storage-driver=vfs --root FOLDER/root --runroot FOLDER/run \"$@\"",
    ),
    (
        "docker",
        "#!/bin/sh
        [ \"$1\" = compose ] || exec podman \"$@\"
        shift
        exec COMPOSE \"$@\"",
    ),
];

/// Settings that need neither systemd nor a right to control groups, and limits that every machine allows.
const SETTINGS: &str = r#"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"#;

/// crun refuses to start containers where both versions of control groups are mounted. The script has a namespace of
/// mounts.
const BEGIN: &str = "
ip link set lo up
umount --lazy /sys/fs/cgroup/unified 2>/dev/null || true
trap 'podman rm --all --force --time=5; podman rmi --all --force' EXIT
serves() {
    tries=0
    until podman exec $1 /usr/bin/tidegate admin health >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { podman logs $1; exit 1; }
        sleep 0.2
    done
}
set -x
";

impl Podman {
    pub(super) fn new() -> Result<Self> {
        let folder = Directory::new()?;
        let place = folder.root().display().to_string();
        let compose = PACKAGE_TOOLS.program("podman-compose")?;
        folder.write("containers.conf", SETTINGS)?;
        fs::create_dir(folder.path("bin"))?;
        for (name, text) in PROGRAMS {
            let script = folder.path("bin").join(name);
            fs::write(&script, text.replace("FOLDER", &place).replace("COMPOSE", &compose))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { folder })
    }

    /// Runs a shell script in a folder, with a network of its own. `podman`, `docker` and `serves CONTAINER`, which
    /// waits for the tracker, are its commands. Returns what it prints.
    pub(super) fn run(&self, folder: &Path, script: &str) -> Result<String> {
        let script = format!("{BEGIN}{script}");
        let mut unshare = command(&["timeout", "600", "unshare", "--net", "--mount", "bash"]);
        unshare.args(["-ec", &script]).current_dir(folder);
        let others = std::env::var("PATH").unwrap_or_default();
        unshare.env("PATH", format!("{}:{others}", self.folder.path("bin").display()));
        output(unshare)
    }
}
