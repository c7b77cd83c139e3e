//! Notifies the supervisor of the process, usually systemd (sd_notify), and its watchdog.

use std::time::{Duration, Instant};

use net::process::{Notifier, monotonic, watchdog_interval};
use tracing::{error, warn};

const SLEEP_MAX: Duration = Duration::from_secs(1);

pub(super) struct Supervisor {
    notifier: Option<Notifier>,
    failed_upgrades: u32,
    watchdog: Option<Watchdog>,
}

impl Supervisor {
    pub(super) fn from_environment() -> Self {
        let notifier = Notifier::from_environment().unwrap_or_else(|error| {
            warn!(%error, "cannot use NOTIFY_SOCKET: the supervisor is not notified");
            None
        });
        let watchdog = watchdog_interval().filter(|_| notifier.is_some());
        Self { notifier, failed_upgrades: 0, watchdog: watchdog.map(Watchdog::new) }
    }

    pub(super) fn ready(&self) {
        self.notify("READY=1\nSTATUS=serving");
    }

    /// Configuration and lists are being read. [`Self::ready`] ends this state.
    pub(super) fn reloading(&self) {
        let now_us = monotonic().as_micros();
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading"));
    }

    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping: sending the last responses");
    }

    pub(super) fn handed_over(&self, pid: u32) {
        self.notify(&format!("MAINPID={pid}\nSTATUS=handed over to process {pid}"));
    }

    /// An upgrade has failed. The text differs each time, so that `dist/hand-over` sees a second failure, too.
    pub(super) fn upgrade_failed(&mut self) {
        self.failed_upgrades += 1;
        self.notify(&format!("STATUS=serving; failed upgrades: {}", self.failed_upgrades));
    }

    pub(super) fn sleep_time(&self) -> Duration {
        self.watchdog.as_ref().map_or(SLEEP_MAX, |watchdog| watchdog.period.min(SLEEP_MAX))
    }

    /// Pings the watchdog when it is time to, unless a counter of `progress` has not changed since.
    pub(super) fn ping_watchdog(&mut self, progress: impl FnOnce() -> Vec<(String, u64)>) {
        let Some(watchdog) = &mut self.watchdog else { return };
        match watchdog.check(Instant::now(), progress) {
            None => {}
            Some(Ok(())) => self.notify("WATCHDOG=1"),
            Some(Err(name)) => {
                error!(worker = name, "worker is stuck; withholding the watchdog ping")
            }
        }
    }

    fn notify(&self, lines: &str) {
        let Some(notifier) = &self.notifier else { return };
        if let Err(error) = notifier.notify(lines) {
            warn!(%error, "cannot notify the supervisor");
        }
    }
}

/// Decides when to ping the watchdog, and whether every worker has made progress.
struct Watchdog {
    period: Duration,
    due: Option<Instant>,
    seen: Vec<u64>,
}

impl Watchdog {
    /// `time` is the watchdog's timeout. Pings at half of it tolerate one that is late.
    fn new(time: Duration) -> Self {
        Self { period: time / 2, due: None, seen: Vec::new() }
    }

    /// Returns `None` until it is time for the next ping, and the name of a worker that is stuck as an error.
    fn check(
        &mut self,
        now: Instant,
        progress: impl FnOnce() -> Vec<(String, u64)>,
    ) -> Option<Result<(), String>> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(now + self.period);
        let progress = progress();
        let stuck = self.seen.iter().zip(&progress).find(|(seen, (_, count))| *seen == count);
        if let Some((_, (name, _))) = stuck {
            return Some(Err(name.clone()));
        }
        self.seen = progress.into_iter().map(|(_, count)| count).collect();
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withholds_ping_while_a_worker_is_stuck() {
        let mut watchdog = Watchdog::new(Duration::from_secs(4));
        let start = Instant::now();
        let mut check = |after_ms: u64, progress: [u64; 2]| {
            let name = |at| format!("worker {at}");
            let progress = progress.into_iter().enumerate().map(|(at, count)| (name(at), count));
            watchdog.check(start + Duration::from_millis(after_ms), || progress.collect())
        };
        assert_eq!(check(0, [0, 0]), Some(Ok(())), "the first ping starts the count");
        assert_eq!(check(1999, [1, 1]), None);
        assert_eq!(check(2000, [1, 1]), Some(Ok(())));
        assert_eq!(check(4000, [2, 1]), Some(Err("worker 1".into())));
        assert_eq!(check(6000, [3, 1]), Some(Err("worker 1".into())));
        assert_eq!(check(8000, [3, 2]), Some(Ok(())), "it was only slow");
    }
}
