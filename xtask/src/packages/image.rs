//! The container image: loaded and started by Podman, without a network but its loopback.

use super::{URLS, find};
use crate::command::{command, output, run};
use crate::release::{Architecture, version};
use anyhow::{Context, Result, ensure};
use harness::{Directory, PATIENCE, wait_for};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Podman with a storage of its own, which is removed at the end.
pub(super) struct Podman {
    /// With a short path, because of the sockets in it.
    folder: Directory,
}

/// Commands that begin with `podman` or `docker`, with the storage and the settings that need neither systemd nor
/// control groups.
const SCRIPTS: [(&str, &str); 2] = [
    (
        "podman",
        "#!/bin/sh
        CONTAINERS_CONF=FOLDER/containers.conf DISABLE_HC_SYSTEMD=true
        export CONTAINERS_CONF DISABLE_HC_SYSTEMD
        exec /usr/bin/podman --storage-driver=vfs --root FOLDER/root --runroot FOLDER/run \"$@\"",
    ),
    (
        "docker",
        "#!/bin/sh
        [ \"$1\" = compose ] || exec podman \"$@\"
        shift
        exec podman-compose \"$@\"",
    ),
];
const SETTINGS: &str = "
[containers]
cgroups = \"disabled\"
log_driver = \"k8s-file\"
[engine]
cgroup_manager = \"cgroupfs\"
events_logger = \"file\"
runtime = \"crun\"
";

impl Podman {
    pub(super) fn new() -> Result<Self> {
        let folder = Directory::new()?;
        let place = folder.root().display().to_string();
        folder.write("containers.conf", SETTINGS)?;
        fs::create_dir(folder.path("bin"))?;
        for (name, text) in SCRIPTS {
            let script = folder.path("bin").join(name);
            fs::write(&script, text.replace("FOLDER", &place))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { folder })
    }

    /// Returns where programs are found, its own first.
    pub(super) fn path(&self) -> String {
        let others = std::env::var("PATH").unwrap_or_default();
        format!("{}:{others}", self.folder.path("bin").display())
    }

    fn command(&self, words: &[&str]) -> Command {
        let program = self.folder.path("bin/podman").display().to_string();
        command(&[&[&*program], words].concat())
    }

    fn output(&self, words: &[&str]) -> Result<String> {
        output(self.command(words))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = output(self.command(&["rm", "--all", "--force", "--time=5"]));
        let _ = output(self.command(&["rmi", "--all", "--force"]));
    }
}

/// Loads, runs and checks the image.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let podman = Podman::new()?;
    let file =
        find(folder, &format!("-image-{}.tar.gz", architecture.debian))?.display().to_string();
    println!("{}", podman.output(&["load", "--input", &file])?);
    let image = format!("tidegate:{}", version()?);
    let limits = ["--network=none", "--read-only", "--cap-drop=ALL"];
    let start = ["run", "--detach", "--name=tracker", "--volume=state:/var/lib/tidegate"];
    podman.output(&[&start[..], &limits, &[&image]].concat())?;
    let inside =
        |words: &[&str]| podman.output(&[&["exec", "tracker", "tidegate"], words].concat());
    wait_for(PATIENCE, "the tracker in the container", || {
        inside(&["admin", "health"]).map(|_| true)
    })
    .with_context(|| podman.output(&["logs", "tracker"]).unwrap_or_default())?;
    let urls: Vec<&str> = URLS.split(' ').collect();
    println!("{}", inside(&[&["check"], &urls[..]].concat())?);
    inside(&["admin", "--token-file", "/var/lib/tidegate/first-token", "stats"])?;
    podman.output(&["healthcheck", "run", "tracker"])?;
    let user =
        podman.output(&["inspect", "--format", "{{.Config.User}} {{.Architecture}}", &image])?;
    ensure!(user.starts_with("65532:65532"), "the image runs as {user}");
    let hash = "0123456789abcdef0123456789abcdef01234567";
    inside(&["announce", "--stay", "udp://127.0.0.1:6969/announce", hash])?;
    // A new container with the old one's volume has its peers.
    podman.output(&["rm", "--force", "--time=20", "tracker"])?;
    podman.output(&[&start[..], &limits, &[&image]].concat())?;
    wait_for(PATIENCE, "the peer", || {
        let counts = inside(&["scrape", "--json", "udp://127.0.0.1:6969/announce", hash])?;
        Ok(counts.contains("\"leechers\":1"))
    })?;
    run(podman.command(&["stop", "--time=20", "tracker"])).map(drop)
}
