//! Going on in a new process, which has the same sockets: nobody is refused, and nothing that waits
//! in them is lost.
//!
//! ```text
//! old                         launcher                 new
//!  │ SIGUSR2
//!  ├─ sockets, a stream ────────▶ fork, exec ──────────▶ LISTEN_FDS: sockets, `upgrade`
//!  ├─ legacy ───────────────── stream ─────────────────▶ reads lists, takes the sockets, serves
//!  │◀──────────────────────────────────────── ready PID ┤
//!  ├─ MAINPID to systemd, then go ─────────────────────▶ READY to systemd
//!  └ drains, ends                                        └ serves alone
//! ```
//!
//! What goes wrong before `ready` leaves the old process as it was. The swarms do not go over:
//! clients announce again within an interval.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use net::process::{Inherited, Launcher, monotonic};
use tracing::{info, warn};

use super::Event;

/// What the stream between the two processes is called among the sockets handed over.
const STREAM_NAME: &str = "upgrade";
/// How long the new process may take until it serves. Lists of millions of hashes take seconds.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long changes may take to be recorded before that.
const RECORD_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the old process may take to say a word, which it does at once.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// What the new process has from the old one, beside the sockets, so that connection ids that one
/// of them gives are good for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandoffState {
    /// Keys the connection ids.
    pub(super) connection_ids: [u8; 16],
    /// When the tracker's clock stood at 0, on the system's monotonic one.
    pub(super) epoch: Duration,
}

impl HandoffState {
    /// That of a process that has it from nobody.
    pub(super) fn fresh() -> Result<Self> {
        let mut connection_ids = [0; 16];
        getrandom::fill(&mut connection_ids).context("the system gives no random numbers")?;
        Ok(Self { connection_ids, epoch: monotonic() })
    }

    /// A line for each thing, and an empty one.
    fn lines(&self) -> String {
        let key = u128::from_be_bytes(self.connection_ids);
        format!("connection_ids {key:032x}\nepoch_ns {}\n\n", self.epoch.as_nanos())
    }

    /// Reads what [`Self::lines`] of this or another version wrote: lines that are unknown mean
    /// nothing, and what is missing is as in a fresh process.
    fn read(lines: &mut impl BufRead) -> Result<Self> {
        let mut handoff = Self::fresh()?;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("the process to take over from is gone");
            }
            let (name, value) = match line.trim_end().split_once(' ') {
                Some(pair) => pair,
                None if line == "\n" => return Ok(handoff),
                None => continue,
            };
            match name {
                "connection_ids" => {
                    let key = u128::from_str_radix(value, 16).context("connection_ids")?;
                    handoff.connection_ids = key.to_be_bytes();
                }
                "epoch_ns" => {
                    handoff.epoch = Duration::from_nanos(value.parse().context(name.to_owned())?)
                }
                _ => {}
            }
        }
    }
}

/// The old process, as the new one sees it.
pub(super) struct OldProcess {
    stream: BufReader<UnixStream>,
}

impl OldProcess {
    /// The one that started this process, if it was one of ours.
    pub(super) fn from_inherited(inherited: &mut Inherited) -> Option<Self> {
        let stream = inherited.take_stream(STREAM_NAME)?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// What it leaves.
    pub(super) fn handoff(&mut self) -> Result<HandoffState> {
        self.stream.get_ref().set_read_timeout(Some(REPLY_TIMEOUT))?;
        HandoffState::read(&mut self.stream).context("cannot take over")
    }

    /// Says that this process serves, so that the old one can go. An error if it does not want to
    /// any more; if it is gone already, so much the better.
    pub(super) fn take_over(mut self) -> Result<()> {
        let ready = format!("ready {}\n", std::process::id());
        let mut word = String::new();
        // One that is gone hears nothing, but may have left a word.
        let _ = self.stream.get_mut().write_all(ready.as_bytes());
        if let Err(error) = self.stream.read_line(&mut word) {
            warn!("no word from the process taken over from: {error}");
        }
        if word == "stop\n" {
            bail!("the process to take over from serves on");
        }
        info!("took over");
        Ok(())
    }
}

/// The old process's side.
pub(super) struct Upgrader {
    launcher: io::Result<Launcher>,
    /// All that this process listens on.
    sockets: Vec<(&'static str, OwnedFd)>,
    handoff: HandoffState,
    /// The way to a new process that does not serve yet.
    attempt: Option<UnixStream>,
    /// Since when one is to be started.
    requested: Option<Instant>,
}

impl Upgrader {
    pub(super) fn new(
        launcher: io::Result<Launcher>,
        sockets: Vec<(&'static str, OwnedFd)>,
        handoff: HandoffState,
    ) -> Self {
        Self { launcher, sockets, handoff, attempt: None, requested: None }
    }

    /// Remembers that a new process is to be started; gives whether none is wanted or starting already.
    pub(super) fn request(&mut self) -> bool {
        if self.attempt.is_some() || self.requested.is_some() {
            return false;
        }
        self.requested = Some(Instant::now());
        true
    }

    /// Whether [`Self::start`] is due.
    pub(super) fn is_requested(&self) -> bool {
        self.requested.is_some()
    }

    /// Whether it has been for too long.
    pub(super) fn is_overdue(&self) -> bool {
        self.requested.is_some_and(|since| since.elapsed() >= RECORD_TIMEOUT)
    }

    /// Starts a new process. What becomes of it happens as [`Event::NewProcess`].
    pub(super) fn start(&mut self, events: &Sender<Event>) -> Result<()> {
        self.requested = None;
        self.launch(events)?;
        info!("SIGUSR2: upgrading; a new process starts with the same sockets");
        Ok(())
    }

    fn launch(&mut self, events: &Sender<Event>) -> Result<()> {
        if std::process::id() == 1 {
            bail!("as process 1 this one must stay: replace the container instead");
        }
        let launcher = self.launcher.as_ref();
        let launcher =
            launcher.map_err(|error| anyhow::anyhow!("there is no launcher: {error}"))?;
        let (ours, theirs) = UnixStream::pair()?;
        (&ours).write_all(self.handoff.lines().as_bytes())?;
        let copy = |(name, socket): &(&'static str, OwnedFd)| Ok((*name, socket.try_clone()?));
        let mut descriptors = self.sockets.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
        descriptors.push((STREAM_NAME, theirs.into()));
        launcher.launch(&descriptors).context("the launcher is gone")?;
        let (stream, events) = (ours.try_clone()?, events.clone());
        self.attempt = Some(ours);
        let wait = move || {
            // Nobody listens any more once this process is going down.
            let _ = events.send(Event::NewProcess(await_ready(&stream)));
        };
        std::thread::Builder::new().name("upgrade".into()).spawn(wait)?;
        Ok(())
    }

    /// The new process serves: it is the one from now on.
    pub(super) fn confirm(&mut self) {
        self.answer("go\n");
    }

    /// There is no new process, or it is not wanted any more.
    pub(super) fn cancel(&mut self) {
        self.requested = None;
        self.answer("stop\n");
    }

    fn answer(&mut self, word: &str) {
        if let Some(mut stream) = self.attempt.take() {
            // Whoever is gone needs no answer.
            let _ = stream.write_all(word.as_bytes());
        }
    }
}

/// Waits until the new process serves, and gives its id, or why it does not.
fn await_ready(stream: &UnixStream) -> Result<u32, String> {
    let mut line = String::new();
    let read = stream
        .set_read_timeout(Some(START_TIMEOUT))
        .and_then(|()| BufReader::new(stream).read_line(&mut line));
    match read {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            return Err(format!(
                "the new process does not serve after {} s",
                START_TIMEOUT.as_secs()
            ));
        }
        // A reset, if it has not even read what was left to it.
        Ok(0) | Err(_) => {
            return Err("the new process ended before it served; what it said is above".into());
        }
        Ok(_) => {}
    }
    match line.trim_end().split_once(' ') {
        Some(("ready", pid)) => pid.parse().map_err(|_| format!("no process id: {line}")),
        Some(("failed", reason)) => Err(reason.to_owned()),
        _ => Err(format!("the new process said: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legacy_goes_over_whatever_the_version() {
        let handoff = HandoffState {
            connection_ids: [0xa7; 16],
            epoch: Duration::from_nanos(123_456_789_012),
        };
        let read = |text: &str| HandoffState::read(&mut text.as_bytes());
        assert_eq!(read(&handoff.lines()).unwrap(), handoff);
        let newer = format!("swarms elsewhere\nalone\n{}", handoff.lines());
        assert_eq!(read(&newer).unwrap(), handoff);
        assert_ne!(read("\n").unwrap().connection_ids, read("\n").unwrap().connection_ids);
        for broken in ["", "epoch_ns 5\n", "epoch_ns soon\n\n", "connection_ids xyz\n\n"] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_the_new_process_says_is_understood() {
        let hear = |text: &str| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&theirs).write_all(text.as_bytes()).unwrap();
            drop(theirs);
            await_ready(&ours)
        };
        assert_eq!(hear("ready 77\n"), Ok(77));
        assert_eq!(hear("failed cannot start x\n"), Err("cannot start x".into()));
        assert!(hear("").unwrap_err().contains("ended before it served"));
        assert!(hear("ready soon\n").unwrap_err().contains("no process id"));
        assert!(hear("hello\n").unwrap_err().contains("said: hello"));
    }

    #[test]
    fn the_old_process_may_change_its_mind() {
        for (word, goes_on) in [("go\n", true), ("stop\n", false), ("", true)] {
            let (old, new) = UnixStream::pair().unwrap();
            (&old).write_all(word.as_bytes()).unwrap();
            old.shutdown(std::net::Shutdown::Write).unwrap();
            let old_process = OldProcess { stream: BufReader::new(new) };
            assert_eq!(old_process.take_over().is_ok(), goes_on);
            let mut said = String::new();
            BufReader::new(old).read_line(&mut said).unwrap();
            assert_eq!(said, format!("ready {}\n", std::process::id()));
        }
    }
}
