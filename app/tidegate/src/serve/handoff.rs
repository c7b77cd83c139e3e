//! The state that the old process of an upgrade hands to the new one as text.

use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use front::Clock;
use net::process::monotonic;

/// Ages of peers are counted in units of this.
const PERIOD_MS: i64 = 16_000;
/// The name of the line with what the dashboard needs.
const DASHBOARD: &str = "dashboard";

/// The connection ids, sessions and clock of the old process, which the new one gets beside sockets and swarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandoffState {
    pub(super) connection_ids: [u8; 16],
    pub(super) sessions: [u8; 16],
    /// When the tracker's clock was 0, in nanoseconds of the system's monotonic clock. Negative if the
    /// machine has started since: a journal continues the clock of an earlier process.
    pub(super) epoch_ns: i64,
    pub(super) swarms: u64,
}

impl HandoffState {
    pub(super) fn fresh() -> Result<Self> {
        let mut keys = [[0; 16]; 2];
        getrandom::fill(keys.as_flattened_mut())
            .context("cannot get random numbers from the system")?;
        let [connection_ids, sessions] = keys;
        Ok(Self { connection_ids, sessions, epoch_ns: monotonic_ns(), swarms: 0 })
    }

    pub(super) fn clock(&self) -> Clock {
        let elapsed_ns = monotonic_ns().saturating_sub(self.epoch_ns);
        Clock::after(Duration::from_nanos(u64::try_from(elapsed_ns).unwrap_or_default()))
    }

    pub(super) fn set_clock(&mut self, elapsed: Duration) {
        let elapsed_ns = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        self.epoch_ns = monotonic_ns().saturating_sub(elapsed_ns);
    }

    /// Moves the tracker's clock, so that ticks begin with the seconds of unix time, and tick 0 with a multiple
    /// of [`PERIOD_MS`]: all nodes of a cluster then count seconds, and ages of peers, alike. `unix_ms` is now.
    pub(super) fn align_clock(&mut self, unix_ms: u64) {
        let elapsed_ms = monotonic_ns().saturating_sub(self.epoch_ns) / 1_000_000;
        let epoch_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX) - elapsed_ms;
        let over_ms = epoch_ms.rem_euclid(PERIOD_MS);
        // The clock of a process that came before has been moved already. It differs by a little, in either
        // direction.
        let missing_ms = PERIOD_MS - over_ms;
        let is_behind = missing_ms <= over_ms && missing_ms <= elapsed_ms;
        let back_ms = if is_behind { -missing_ms } else { over_ms };
        self.epoch_ns = self.epoch_ns.saturating_sub(back_ms * 1_000_000);
    }

    /// Writes a line per value, and an empty line at the end. `dashboard` is JSON without line breaks.
    pub(super) fn lines(&self, dashboard: &str) -> String {
        let [connection_ids, sessions] =
            [self.connection_ids, self.sessions].map(u128::from_be_bytes);
        format!(
            "connection_ids {connection_ids:032x}\nsessions {sessions:032x}\nepoch_ns {}\nswarms_bytes {}\n\
             {DASHBOARD} {dashboard}\n\n",
            self.epoch_ns, self.swarms
        )
    }

    /// Reads what [`Self::lines`] of this or another version wrote. Unknown lines are ignored; missing
    /// values are as in a fresh process. `dashboard` gets the line of that name.
    pub(super) fn read(lines: &mut impl BufRead, dashboard: &mut String) -> Result<Self> {
        let mut handoff = Self::fresh()?;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("the old process ended during the upgrade");
            }
            let (name, value) = match line.trim_end().split_once(' ') {
                Some(pair) => pair,
                None if line == "\n" => return Ok(handoff),
                None => continue,
            };
            match name {
                "connection_ids" => handoff.connection_ids = key(name, value)?,
                "sessions" => handoff.sessions = key(name, value)?,
                "swarms_bytes" => handoff.swarms = value.parse().context(name.to_owned())?,
                DASHBOARD => value.clone_into(dashboard),
                "epoch_ns" => handoff.epoch_ns = value.parse().context(name.to_owned())?,
                _ => {}
            }
        }
    }
}

fn key(name: &str, value: &str) -> Result<[u8; 16]> {
    Ok(u128::from_str_radix(value, 16).context(name.to_owned())?.to_be_bytes())
}

fn monotonic_ns() -> i64 {
    // 2^63 nanoseconds are 292 years.
    i64::try_from(monotonic().as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_handoff_state_of_any_version() {
        let handoff = HandoffState {
            connection_ids: [0xa7; 16],
            sessions: [0x0b; 16],
            epoch_ns: -123_456_789_012,
            swarms: 77 << 30,
        };
        let mut dashboard = String::new();
        let lines = handoff.lines("{\"sessions\": []}");
        assert_eq!(HandoffState::read(&mut lines.as_bytes(), &mut dashboard).unwrap(), handoff);
        assert_eq!(dashboard, "{\"sessions\": []}");
        let read = |text: &str| HandoffState::read(&mut text.as_bytes(), &mut String::new());
        let newer = format!("peers elsewhere\nalone\n{lines}");
        assert_eq!(read(&newer).unwrap(), handoff);
        assert_ne!(read("\n").unwrap().connection_ids, read("\n").unwrap().connection_ids);
        for broken in
            ["", "epoch_ns 5\n", "epoch_ns soon\n\n", "connection_ids x\n\n", "sessions y\n\n"]
        {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_node_counts_seconds_like_the_others() {
        let now_ms = 1_800_000_000_000;
        let unix_ms = || now_ms + monotonic_ns() as u64 / 1_000_000;
        for elapsed_ms in [0, 1, 999, 1000, 15_999, 16_000, 20_000, 1_000_000_123] {
            let mut handoff = HandoffState::fresh().unwrap();
            handoff.set_clock(Duration::from_millis(elapsed_ms));
            let before_ns = handoff.epoch_ns;
            handoff.align_clock(unix_ms());
            let is_aligned = |handoff: &HandoffState| {
                let epoch_ms = now_ms as i64 + handoff.epoch_ns.div_euclid(1_000_000);
                let over_ms = epoch_ms.rem_euclid(PERIOD_MS);
                // Clocks are read one after the other.
                over_ms.min(PERIOD_MS - over_ms) < 1000
            };
            assert!(is_aligned(&handoff), "{elapsed_ms}");
            assert!(before_ns - handoff.epoch_ns < 16_001_000_000, "{elapsed_ms}");
            // The next process differs by a little, not by a period.
            for step_ms in [-5, 0, 5] {
                let mut next = handoff;
                next.align_clock(unix_ms().saturating_add_signed(step_ms));
                let moved_ms = (next.epoch_ns - handoff.epoch_ns).abs() / 1_000_000;
                assert!(moved_ms < 1000 || elapsed_ms < 1000, "{elapsed_ms}: {moved_ms}");
            }
        }
    }
}
