//! Whoever watches over the process, systemd as a rule, and what is said to them.

use std::time::{Duration, Instant};

use net::process::{Notifier, monotonic, watchdog_time};
use tracing::{error, warn};

/// The longest that the main thread sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Says how the process is, if anybody wants to know.
pub(super) struct Supervisor {
    notifier: Option<Notifier>,
    watchdog: Option<Watchdog>,
}

impl Supervisor {
    /// The one that the environment names.
    pub(super) fn from_environment() -> Self {
        let notifier = Notifier::from_environment().unwrap_or_else(|error| {
            warn!("NOTIFY_SOCKET cannot be used: {error}");
            None
        });
        let watchdog = watchdog_time().filter(|_| notifier.is_some());
        Self { notifier, watchdog: watchdog.map(Watchdog::new) }
    }

    /// Every listener serves what is in force now.
    pub(super) fn ready(&self) {
        self.notify("READY=1\nSTATUS=serving");
    }

    /// Configuration and lists are being read; [`Self::ready`] ends it.
    pub(super) fn reloading(&self) {
        let now_us = monotonic().as_micros();
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading"));
    }

    /// The process is going down.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping: answers under way leave");
    }

    /// From now on the process `pid` is the one to watch over.
    pub(super) fn handed_over(&self, pid: u32) {
        self.notify(&format!("MAINPID={pid}\nSTATUS=handed over to process {pid}"));
    }

    /// How long the main thread may sleep.
    pub(super) fn sleep_time(&self) -> Duration {
        self.watchdog.as_ref().map_or(SLEEP_MAX, |watchdog| watchdog.period.min(SLEEP_MAX))
    }

    /// Says that all is well when it is time to, unless one of `progress` has stood still since.
    pub(super) fn ping_watchdog(&mut self, progress: impl FnOnce() -> Vec<(String, u64)>) {
        let Some(watchdog) = &mut self.watchdog else { return };
        match watchdog.check(Instant::now(), progress) {
            WatchdogState::NotDue => {}
            WatchdogState::Progress => self.notify("WATCHDOG=1"),
            WatchdogState::Stuck(name) => {
                error!("{name} stands still: the watchdog is not told otherwise")
            }
        }
    }

    fn notify(&self, lines: &str) {
        let Some(notifier) = &self.notifier else { return };
        if let Err(error) = notifier.say(lines) {
            warn!("whoever watches over this process could not be told: {error}");
        }
    }
}

/// When somebody is to be told that all is well, and whether it is.
struct Watchdog {
    period: Duration,
    due: Option<Instant>,
    /// The beats when all was well last.
    seen: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum WatchdogState {
    NotDue,
    Progress,
    Stuck(String),
}

impl Watchdog {
    /// For one who is alarmed after `time` without a word: half of that leaves time for one word
    /// that comes late.
    fn new(time: Duration) -> Self {
        Self { period: time / 2, due: None, seen: Vec::new() }
    }

    fn check(
        &mut self,
        now: Instant,
        progress: impl FnOnce() -> Vec<(String, u64)>,
    ) -> WatchdogState {
        if self.due.is_some_and(|due| now < due) {
            return WatchdogState::NotDue;
        }
        self.due = Some(now + self.period);
        let progress = progress();
        let stuck = self.seen.iter().zip(&progress).find(|(seen, (_, count))| *seen == count);
        if let Some((_, (name, _))) = stuck {
            return WatchdogState::Stuck(name.clone());
        }
        self.seen = progress.into_iter().map(|(_, count)| count).collect();
        WatchdogState::Progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_stands_still_stops_the_words() {
        let mut watchdog = Watchdog::new(Duration::from_secs(4));
        let start = Instant::now();
        let mut check = |after_ms: u64, progress: [u64; 2]| {
            let name = |at| format!("worker {at}");
            let progress = progress.into_iter().enumerate().map(|(at, count)| (name(at), count));
            watchdog.check(start + Duration::from_millis(after_ms), || progress.collect())
        };
        assert_eq!(check(0, [0, 0]), WatchdogState::Progress, "the first word starts the count");
        assert_eq!(check(1999, [1, 1]), WatchdogState::NotDue);
        assert_eq!(check(2000, [1, 1]), WatchdogState::Progress);
        assert_eq!(check(4000, [2, 1]), WatchdogState::Stuck("worker 1".into()));
        assert_eq!(check(6000, [3, 1]), WatchdogState::Stuck("worker 1".into()));
        assert_eq!(check(8000, [3, 2]), WatchdogState::Progress, "it was only slow");
    }
}
