//! Upgrades to programs that do not work as they should. Either the old process serves on, or the new one
//! serves with the peers of the journal; no announce stays unanswered.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::{PATIENCE, Signal, Tracker, is_alive, signal, wait_for};

use super::{Upgrade, Upgraded};
use crate::record::Figures;
use crate::session::{RunKey, Session, print_line};
use crate::swarms::{self, figure};

/// Behaviour of a faulty new program. `serves` is true if it serves in the end.
struct Broken {
    name: &'static str,
    /// Python, with `swarms` as the number of the descriptor of the swarms, or `None`.
    script: &'static str,
    serves: bool,
}

const ALL: [Broken; 4] = [
    Broken {
        name: "crashes while it receives",
        script: "read(swarms); os.kill(os.getpid(), signal.SIGSEGV)",
        serves: false,
    },
    Broken { name: "hangs while it receives", script: "read(swarms); hang()", serves: false },
    Broken { name: "closes the swarms", script: "close(swarms); go_on()", serves: true },
    Broken { name: "is older", script: "rename(swarms); go_on()", serves: true },
];

/// Beginning of all scripts.
const HEAD: &str = r#"#!/usr/bin/env python3
import os, signal, socket, sys, time
names = os.environ.get("LISTEN_FDNAMES", "").split(":")
swarms = 3 + names.index("swarms") if "swarms" in names else None

def read(number):
    if number is not None:
        swarms = socket.socket(fileno=os.dup(number))
        # The old process sends once the new one says that it reads.
        swarms.send(b"s")
        swarms.recv(1 << 16)

def hang():
    with open(PLACE + "/hung.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(PLACE + "/hung.new", PLACE + "/hung")
    time.sleep(600)

def close(number):
    if number is not None:
        socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)

def rename(number):
    if number is not None:
        names[number - 3] = "later"
        os.environ["LISTEN_FDNAMES"] = ":".join(names)

def go_on():
    for number in range(3, 3 + len(names)):
        os.set_inheritable(number, True)
    os.execv(PROGRAM, [PROGRAM] + sys.argv[1:])

"#;
/// Part of the peers that a new process has that got them from the journal, in percent.
const KEPT_MIN: f64 = 99.9;
/// A program that hangs does so for this long before it is killed.
const HANG: Duration = Duration::from_secs(2);

/// Upgrades to each of them, and to the right program in between.
pub(super) fn try_all(
    command: &Upgrade,
    upgraded: &mut Upgraded,
    session: &mut Session,
    link: &Path,
) -> Result<()> {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        session.fail("python3 is needed for --broken".into());
        return Ok(());
    }
    let real = fs::read_link(link)?;
    // A program starts its successor by the path that it was started by, which is one of two links.
    let (mut link, mut other) = (link.to_owned(), link.with_extension("other"));
    symlink(&real, &other)?;
    for (round, broken) in (1..).zip(&ALL) {
        if session.is_stopped() {
            break;
        }
        let folder = link.parent().context("no folder")?;
        let head = HEAD.replace("PLACE", &format!("{folder:?}"));
        let head = head.replace("PROGRAM", &format!("{other:?}"));
        let script = link.with_extension("py");
        fs::write(&script, format!("{head}{}\n", broken.script))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::rename(&script, &link)?;
        let tried = broken.run(command, upgraded, (session, round));
        fs::remove_file(&link)?;
        symlink(&real, &link)?;
        tried.with_context(|| format!("a new program that {}", broken.name))?;
        if broken.serves {
            std::mem::swap(&mut link, &mut other);
        }
    }
    // A good one after all of them.
    upgraded.tracker.upgrade().context("an upgrade after the broken ones").map(drop)
}

impl Broken {
    fn run(
        &self,
        command: &Upgrade,
        upgraded: &mut Upgraded,
        (session, round): (&mut Session, u32),
    ) -> Result<()> {
        let Upgraded { tracker, roster, task, .. } = upgraded;
        let old = tracker.pid();
        let act = || if self.serves { tracker.upgrade().map(drop) } else { self.fail(tracker) };
        let (ended, counters) = match *task {
            None => (act().map(|()| Instant::now())?, Vec::new()),
            Some(task) => {
                let all = swarms::announce_while(roster, task, 1, swarms::PATIENT, |_| {
                    act()?;
                    // Those of the time after it count, too.
                    thread::sleep(HANG / 2);
                    Ok(Instant::now())
                })?;
                (all.1, all.0)
            }
        };
        if self.serves {
            swarms::wait_until_restored(tracker)?;
        }
        let found = swarms::compare(roster, swarms::api(tracker)?, ended, |torrent| {
            torrent.is_multiple_of(roster_step(command))
        })?;
        let lost: u64 = counters.iter().map(|phase| phase.lost).sum();
        let figures = Figures::default()
            .with(figure::KEPT, found.kept_percent())
            .with(figure::LOST, found.lost as f64)
            .with(figure::UNANSWERED, lost as f64);
        let case = format!("a new program that {}", self.name);
        let key = RunKey::tidegate(&case, 2, round);
        session.add(key, figures, &format!("{lost} unanswered; {found}"))?;
        let is_good = if self.serves {
            found.kept_percent() >= KEPT_MIN && found.ghosts + found.unknown == 0
        } else {
            found.is_equal() && tracker.pid() == old
        };
        if !is_good || lost > 0 {
            session.fail(format!("{case}: {lost} unanswered; {found}"));
        }
        Ok(())
    }

    /// Begins an upgrade, and waits until it has failed. A program that hangs is killed.
    fn fail(&self, tracker: &Tracker) -> Result<()> {
        let failures = |log: &str| log.matches("upgrade failed").count();
        let before = failures(&tracker.stderr());
        tracker.signal(Signal::SIGUSR2)?;
        if self.script.contains("hang()") {
            let file = self.hung(tracker)?;
            // A second signal is not a second upgrade.
            tracker.signal(Signal::SIGUSR2)?;
            thread::sleep(HANG);
            let text = fs::read_to_string(&file)?;
            fs::remove_file(&file)?;
            signal(text.trim().parse()?, Signal::SIGKILL)?;
        }
        wait_for(PATIENCE, "the upgrade to fail", || {
            if !is_alive(tracker.pid()) {
                bail!("the old process has ended");
            }
            Ok(failures(&tracker.stderr()) > before)
        })?;
        print_line(&format!("  {}: the old process serves on", self.name));
        Ok(())
    }

    /// Waits until the program hangs. Returns the file with its process id.
    fn hung(&self, tracker: &Tracker) -> Result<std::path::PathBuf> {
        let folder = tracker.folder().context("no folder")?;
        let file = folder.join("hung");
        wait_for(PATIENCE, "the new program to hang", || Ok(file.exists()))?;
        Ok(file)
    }
}

/// One in this many torrents is compared.
fn roster_step(command: &Upgrade) -> u32 {
    (command.peers / 5 / command.sample.max(1)).max(1)
}
