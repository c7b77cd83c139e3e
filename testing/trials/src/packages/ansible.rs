//! The Ansible role: it deploys a tracker with TLS, Prometheus and backups into a booted Debian, changes nothing when it
//! runs again, and applies a change without a restart.

use super::find;
use super::guest::{Guest, Running};
use crate::artifacts::Architecture;
use crate::command::{command, output, run};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Folders of `dist` that the role reads.
const FOLDERS: [&str; 3] = ["ansible", "prometheus", "grafana"];
/// The machine has no network, so what the role installs is fetched before. Ansible runs on the machine itself.
const PREPARE: &str = "
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends ansible-core python3-apt openssl >/dev/null
apt-get -qq install -y --no-install-recommends --download-only prometheus
mkdir /srv/tls && cd /srv/tls
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=ca -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out request.pem 2>/dev/null
echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names
openssl x509 -req -days 30 -in request.pem -CA ca.pem -CAkey ca.key -extfile names -out chain.pem 2>/dev/null";
const VARIABLES: &str = r#"{"tidegate_package": "PACKAGE", "tidegate_tls_listen": ["127.0.0.1:443"],
 "tidegate_tls_chain": "/srv/tls/chain.pem", "tidegate_tls_key": "/srv/tls/key.pem", "tidegate_more": "MORE"}"#;
const URLS: &str = "udp://127.0.0.1:6969/announce http://127.0.0.1:6969/announce \
                    https://127.0.0.1/announce wss://127.0.0.1/";
const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

/// Deploys the Debian package in `folder`.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let package = find(folder, &format!("_{}.deb", architecture.debian))?;
    let guest = prepared(&package)?.boot()?;
    let name = package.file_name().context("no file name")?.to_string_lossy().into_owned();
    let variables = VARIABLES.replace("PACKAGE", &format!("/packages/{name}"));
    let first = play(&guest, &variables.replace("MORE", ""))?;
    ensure!(changes(&first) > 10, "{first}");
    println!("{}", guest.run(&format!("tidegate check --ca /srv/tls/ca.pem {URLS}"))?);
    guest.wait(&asked("query?query=tidegate_build_info", "tidegate_build_info"))?;
    guest.run(&asked("rules", "TidegateRestarted"))?;
    guest.run("systemctl is-active tidegate-backup.timer && systemctl start tidegate-backup")?;
    guest.run("tar --list --file /var/backups/tidegate/tidegate-*.tar | grep -x backup.json")?;
    guest.run("grep -q tidegate /var/lib/grafana/dashboards/tidegate/tidegate.json")?;
    let again = play(&guest, &variables.replace("MORE", ""))?;
    ensure!(changes(&again) == 0, "the second run changes something:\n{again}");
    changes_without_restart(&guest, &variables)
}

/// Makes a system with Ansible, the role, and what the role installs.
fn prepared(package: &Path) -> Result<Guest> {
    let guest = Guest::new("ansible")?;
    guest.add(package)?;
    let mut chroot = command(&["chroot"]);
    chroot.arg(guest.path("")).args(["sh", "-ec", PREPARE]);
    run(chroot)?;
    let mut copy = command(&["cp", "--recursive"]);
    copy.args(FOLDERS.map(|name| root().join("dist").join(name))).arg(guest.path("srv"));
    output(copy)?;
    Ok(guest)
}

/// Another interval is in force afterwards, and a peer is still there.
fn changes_without_restart(guest: &Running, variables: &str) -> Result<()> {
    let udp = "udp://127.0.0.1:6969/announce";
    guest.run(&format!("tidegate announce --stay {udp} {HASH}"))?;
    let changed = play(guest, &variables.replace("MORE", "[tracker]\\ninterval_s = 900"))?;
    ensure!(changes(&changed) > 0, "{changed}");
    // Intervals vary by some seconds.
    let again = format!("tidegate announce --stay --json {udp} {HASH}");
    guest.run(&format!("{again} | grep -E '\"interval_s\":9[0-9]{{2}},'"))?;
    guest.wait(&format!("tidegate scrape --json {udp} {HASH} | grep '\"leechers\":1'"))?;
    let restarts = guest.run("systemctl show -p NRestarts --value tidegate")?;
    ensure!(restarts.trim() == "0", "the change restarted the unit: {restarts}");
    // Another address for a port that is in use: the new process cannot have it.
    let refused = variables.replace("MORE", "").replace("127.0.0.1:443", "0.0.0.0:443");
    // A second run does not take the file for what runs.
    for run in ["first", "second"] {
        let failed = play(guest, &refused).err();
        let failed = failed.with_context(|| format!("the {run} run sees no failed upgrade"))?;
        ensure!(format!("{failed:#}").contains("Upgrade the tracker"), "{failed:#}");
    }
    guest.run("tidegate admin health").map(drop)?;
    let variables = variables.replace("MORE", "");
    ensure!(changes(&play(guest, &variables)?) > 0, "the old configuration is not in force again");
    // As after a package whose new process did not come to serve.
    guest.run("cd /usr/bin && cp tidegate tidegate.new && mv tidegate.new tidegate")?;
    let upgraded = play(guest, &variables)?;
    ensure!(changes(&upgraded) == 2, "the program is not upgraded:\n{upgraded}");
    guest.run(
        "test /proc/$(systemctl show -p MainPID --value tidegate)/exe -ef /usr/bin/tidegate",
    )?;
    let again = play(guest, &variables)?;
    ensure!(changes(&again) == 0, "the last run changes something:\n{again}");
    Ok(())
}

/// Runs the playbook, and returns what Ansible prints.
fn play(guest: &Running, variables: &str) -> Result<String> {
    guest.run(&format!(
        "cd /srv/ansible && export HOME=/srv LC_ALL=C.UTF-8
        ansible-playbook --connection local --inventory localhost, --extra-vars '{variables}' site.yml \
            >/srv/play.log 2>&1 || {{ cat /srv/play.log >&2; exit 1; }}
        cat /srv/play.log"
    ))
}

/// Returns the number of changes in Ansible's recap.
fn changes(printed: &str) -> u32 {
    let number = |text: &str| text.split(' ').next()?.parse().ok();
    printed.split("changed=").last().and_then(number).unwrap_or(u32::MAX)
}

/// Returns a script that fails unless Prometheus' answer contains a text.
fn asked(target: &str, text: &str) -> String {
    format!(
        "python3 -c 'import urllib.request; assert b\"{text}\" in \
         urllib.request.urlopen(\"http://127.0.0.1:9090/api/v1/{target}\").read()'"
    )
}
