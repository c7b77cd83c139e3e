//! Upgrades: a new process takes over the sockets of the old one. No connection is refused, and no
//! datagram that waits in a socket is lost.
//!
//! ```text
//! old                         launcher                 new
//!  │ SIGUSR2
//!  ├─ sockets, two streams ─────▶ fork, exec ──────────▶ LISTEN_FDS: sockets, `swarms`, `upgrade`
//!  ├─ handoff state ───────── upgrade ─────────────────▶ reads lists, takes the sockets
//!  ├─ all peers, then changes ─ swarms ────────────────▶ merges, serves
//!  │◀──────────────────────────────────────── ready PID ┤
//!  ├─ MAINPID to systemd, then go ─────────────────────▶ READY to systemd
//!  ├ drains                                              │
//!  ├─ last changes, sessions ── swarms ────────────────▶ merges
//!  └ ends                                                └ serves alone
//! ```
//!
//! If anything fails before `ready`, the old process continues to serve. If swarms cannot be sent
//! ([`super::transfer`]), the upgrade continues without them: clients announce again within an interval.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::Api;
use anyhow::{Context, Result, bail};
use net::process::{InheritedSockets, Launcher};
use tracing::{info, warn};

use super::handoff::HandoffState;
use super::transfer::{self, SwarmSender, SwarmSource, SwarmTarget};

/// The name of the stream between the two processes among the inherited sockets.
const STREAM_NAME: &str = "upgrade";
/// Longest time until the new process serves. Lists of millions of hashes take seconds.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time from its start that the new process waits for all swarms before it serves with some of them.
const WALK_TIMEOUT: Duration = Duration::from_secs(270);
/// Longest time to record waiting changes before the new process starts.
const RECORD_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes that the two processes say to each other at most. They are some hundred thousand; but code that broke into the
/// old process may order a start, and say what it likes.
const TEXT_MAX: u64 = 4 << 20;
/// Longest time until the old process replies, which it does at once.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The new process's side: the connection to the old process.
pub(super) struct OldProcess {
    stream: BufReader<UnixStream>,
    swarms: Option<UnixStream>,
    /// The sessions and figures that its dashboard hands over.
    dashboard: String,
    started: Instant,
}

impl OldProcess {
    pub(super) fn from_inherited(inherited: &mut InheritedSockets) -> Option<Self> {
        let stream = inherited.take_stream(STREAM_NAME)?;
        let swarms = inherited.take_stream(transfer::STREAM_NAME);
        let (stream, dashboard) = (BufReader::new(stream), String::new());
        Some(Self { stream, swarms, dashboard, started: Instant::now() })
    }

    pub(super) fn handoff(&mut self) -> Result<HandoffState> {
        self.stream.get_ref().set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut lines = self.stream.by_ref().take(TEXT_MAX);
        HandoffState::read(&mut lines, &mut self.dashboard)
            .context("cannot take over from the old process")
    }

    /// Returns what the old process's dashboard hands over, once, if it does.
    pub(super) fn take_dashboard(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.dashboard)).filter(|text| !text.is_empty())
    }

    /// Receives the swarms of the old process, if it sends them: see [`SwarmTarget::start`].
    pub(super) fn receive_swarms(&mut self, target: SwarmTarget, bytes: u64) -> Result<bool> {
        let Some(stream) = self.swarms.take() else { return Ok(false) };
        target.start(stream, bytes, self.started + WALK_TIMEOUT)
    }

    /// Tells the old process that this one serves, so that it stops. Fails if the old process has cancelled
    /// the upgrade. It is fine if the old process is already gone.
    pub(super) fn take_over(mut self) -> Result<()> {
        let ready = format!("ready {}\n", std::process::id());
        let mut word = String::new();
        // If the old process is gone, it may still have left a reply.
        let _ = self.stream.get_mut().write_all(ready.as_bytes());
        if let Err(error) = self.stream.by_ref().take(TEXT_MAX).read_line(&mut word) {
            warn!(%error, "the old process did not reply");
        }
        if word == "stop\n" {
            bail!("the old process cancelled the upgrade and continues to serve");
        }
        info!("took over from the old process");
        Ok(())
    }
}

/// The old process's side: starts the new process.
pub(crate) struct Upgrader {
    launcher: io::Result<Launcher>,
    /// Copies of the descriptors that a new process inherits, with their names.
    pub(super) descriptors: Vec<(String, OwnedFd)>,
    handoff: HandoffState,
    swarms: SwarmSource,
    attempt: Option<UnixStream>,
    sender: Option<SwarmSender>,
    /// Has the sessions and figures that the dashboard hands over.
    api: Arc<Api>,
    requested: Option<Instant>,
}

impl Upgrader {
    /// `sockets` are copies of those of all listeners.
    pub(super) fn new(
        launcher: io::Result<Launcher>,
        sockets: Vec<(String, OwnedFd)>,
        handoff: HandoffState,
        swarms: SwarmSource,
        api: Arc<Api>,
    ) -> Self {
        Self {
            launcher,
            descriptors: sockets,
            handoff,
            swarms,
            attempt: None,
            sender: None,
            api,
            requested: None,
        }
    }

    /// Has the launcher, which is outside the sandbox, exchange the XDP program of a link.
    pub(super) fn exchange_program(
        &self,
        link: BorrowedFd<'_>,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match &self.launcher {
            Ok(launcher) => launcher.exchange_program(link, program),
            Err(error) => Err(io::Error::other(format!("no launcher: {error}"))),
        }
    }

    /// Returns why this process cannot be upgraded, if it cannot.
    pub(super) fn obstacle(&self) -> Option<String> {
        if std::process::id() == 1 {
            let text = "process 1 cannot be upgraded, because its end is the end of the container: replace the \
                        container instead";
            return Some(text.into());
        }
        let error = self.launcher.as_ref().err()?;
        Some(format!("the launcher could not be started: {error}"))
    }

    /// Requests a new process. Returns false if one is already requested or starting.
    pub(super) fn request(&mut self) -> bool {
        if self.attempt.is_some() || self.requested.is_some() {
            return false;
        }
        self.requested = Some(Instant::now());
        true
    }

    /// Returns true if [`Self::start`] should be called as soon as changes are recorded.
    pub(super) fn is_requested(&self) -> bool {
        self.requested.is_some()
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.requested.is_some_and(|since| since.elapsed() >= RECORD_TIMEOUT)
    }

    /// Starts the new process. `done` gets its id when it serves, or the reason why it does not. If this fails, the
    /// upgrade is to be cancelled.
    pub(super) fn start(
        &mut self,
        done: impl FnOnce(Result<u32, String>) + Send + 'static,
    ) -> Result<()> {
        self.requested = None;
        let launcher = match (self.obstacle(), &self.launcher) {
            (None, Ok(launcher)) => launcher,
            (obstacle, _) => bail!(obstacle.unwrap_or_default()),
        };
        let (ours, theirs) = UnixStream::pair()?;
        let handoff = HandoffState { swarms: self.swarms.memory_bytes(), ..self.handoff };
        let text = handoff.lines(&self.api.hand_over());
        let copy =
            |(name, descriptor): &'_ (String, OwnedFd)| Ok((name.clone(), descriptor.try_clone()?));
        let mut descriptors = self.descriptors.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
        match self.swarms.send() {
            Ok((sender, stream)) => {
                descriptors.push((transfer::STREAM_NAME.to_owned(), stream));
                self.sender = Some(sender);
            }
            Err(error) => warn!("upgrading without swarms: {error:#}"),
        }
        // The last one: failures to start are reported on it.
        descriptors.push((STREAM_NAME.to_owned(), theirs.into()));
        launcher.launch(&descriptors).context("the launcher has ended")?;
        let stream = ours.try_clone()?;
        self.attempt = Some(ours);
        let wait = move || {
            // More than the socket holds, so the new process must read meanwhile. If it does not, it ends.
            let _ = stream.set_write_timeout(Some(REPLY_TIMEOUT));
            let _ = (&stream).write_all(text.as_bytes());
            done(await_ready(&stream));
        };
        std::thread::Builder::new().name("upgrade".into()).spawn(wait)?;
        info!("upgrade: started a new process with the same sockets");
        Ok(())
    }

    pub(super) fn confirm(&mut self) {
        self.answer("go\n");
    }

    /// Closes its copies of descriptors: sockets would accept connections that no worker serves. Returns what
    /// still sends swarms to the new process.
    pub(super) fn into_sender(self) -> Option<SwarmSender> {
        self.sender
    }

    pub(super) fn cancel(&mut self) {
        self.requested = None;
        if let Some(sender) = self.sender.take() {
            sender.cancel();
        }
        self.answer("stop\n");
    }

    fn answer(&mut self, word: &str) {
        if let Some(mut stream) = self.attempt.take() {
            let _ = stream.write_all(word.as_bytes());
        }
    }
}

fn await_ready(stream: &UnixStream) -> Result<u32, String> {
    let mut line = String::new();
    let read = stream
        .set_read_timeout(Some(START_TIMEOUT))
        .and_then(|()| BufReader::new(stream.take(TEXT_MAX)).read_line(&mut line));
    match read {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            return Err(format!(
                "the new process does not serve after {} s",
                START_TIMEOUT.as_secs()
            ));
        }
        // A reset, if it ended before it read the state.
        Ok(0) | Err(_) => {
            return Err("the new process ended before it served (see its messages above)".into());
        }
        Ok(_) => {}
    }
    match line.trim_end().split_once(' ') {
        Some(("ready", pid)) => {
            pid.parse().map_err(|_| format!("expected a process id, found: {}", line.trim_end()))
        }
        Some(("failed", reason)) => Err(reason.to_owned()),
        _ => Err(format!("unexpected message from the new process: {}", line.trim_end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_process_can_cancel() {
        for (word, goes_on) in [("go\n", true), ("stop\n", false), ("", true)] {
            let (old, new) = UnixStream::pair().unwrap();
            (&old).write_all(word.as_bytes()).unwrap();
            old.shutdown(std::net::Shutdown::Write).unwrap();
            let stream = BufReader::new(new);
            let (dashboard, started) = (String::new(), Instant::now());
            let old_process = OldProcess { stream, swarms: None, dashboard, started };
            assert_eq!(old_process.take_over().is_ok(), goes_on);
            let mut said = String::new();
            BufReader::new(old).read_line(&mut said).unwrap();
            assert_eq!(said, format!("ready {}\n", std::process::id()));
        }
    }
}
