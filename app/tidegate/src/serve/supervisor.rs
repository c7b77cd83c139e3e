//! Whoever watches over the process, systemd as a rule, and what is said to them.

use std::time::{Duration, Instant};

use net::process::{Notifier, monotonic, watchdog_time};
use tracing::{error, warn};

/// The longest that the main thread sleeps.
const REST: Duration = Duration::from_secs(1);

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
        self.say("READY=1\nSTATUS=serving");
    }

    /// Configuration and lists are being read; [`Self::ready`] ends it.
    pub(super) fn reloading(&self) {
        let now_us = monotonic().as_micros();
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading"));
    }

    /// The process is going down.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=stopping: answers under way leave");
    }

    /// From now on the process `pid` is the one to watch over.
    pub(super) fn handed_over(&self, pid: u32) {
        self.say(&format!("MAINPID={pid}\nSTATUS=handed over to process {pid}"));
    }

    /// How long the main thread may sleep.
    pub(super) fn rest(&self) -> Duration {
        self.watchdog.as_ref().map_or(REST, |watchdog| watchdog.period.min(REST))
    }

    /// Says that all is well when it is time to, unless one of `publish_counts` has stood still since.
    pub(super) fn watch(&mut self, publish_counts: impl FnOnce() -> Vec<(String, u64)>) {
        let Some(watchdog) = &mut self.watchdog else { return };
        match watchdog.look(Instant::now(), publish_counts) {
            Look::Early => {}
            Look::Well => self.say("WATCHDOG=1"),
            Look::Stuck(name) => error!("{name} stands still: the watchdog is not told otherwise"),
        }
    }

    fn say(&self, lines: &str) {
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
enum Look {
    Early,
    Well,
    Stuck(String),
}

impl Watchdog {
    /// For one who is alarmed after `time` without a word: half of that leaves time for one word
    /// that comes late.
    fn new(time: Duration) -> Self {
        Self { period: time / 2, due: None, seen: Vec::new() }
    }

    fn look(&mut self, now: Instant, publish_counts: impl FnOnce() -> Vec<(String, u64)>) -> Look {
        if self.due.is_some_and(|due| now < due) {
            return Look::Early;
        }
        self.due = Some(now + self.period);
        let publish_counts = publish_counts();
        let stuck = self.seen.iter().zip(&publish_counts).find(|(seen, (_, beat))| *seen == beat);
        if let Some((_, (name, _))) = stuck {
            return Look::Stuck(name.clone());
        }
        self.seen = publish_counts.into_iter().map(|(_, beat)| beat).collect();
        Look::Well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_stands_still_stops_the_words() {
        let mut watchdog = Watchdog::new(Duration::from_secs(4));
        let start = Instant::now();
        let mut look = |after_ms: u64, publish_counts: [u64; 2]| {
            let name = |at| format!("worker {at}");
            let publish_counts =
                publish_counts.into_iter().enumerate().map(|(at, beat)| (name(at), beat));
            watchdog.look(start + Duration::from_millis(after_ms), || publish_counts.collect())
        };
        assert_eq!(look(0, [0, 0]), Look::Well, "the first word starts the count");
        assert_eq!(look(1999, [1, 1]), Look::Early);
        assert_eq!(look(2000, [1, 1]), Look::Well);
        assert_eq!(look(4000, [2, 1]), Look::Stuck("worker 1".into()));
        assert_eq!(look(6000, [3, 1]), Look::Stuck("worker 1".into()));
        assert_eq!(look(8000, [3, 2]), Look::Well, "it was only slow");
    }
}
