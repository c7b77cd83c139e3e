//! The file with the bytes of today, so that a restart does not renew the budget of a day.
//!
//! During an upgrade two processes have the file: the old one still serves its connections when the new one has read
//! what it had counted. Neither lowers a count.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracker::{BytesOfDay, Service};

/// The name within `state.dir`.
const NAME: &str = "bytes-of-day.json";
/// No file of ours is longer.
const LEN_MAX: u64 = 4096;
/// A kill loses the bytes of this time at most.
const LOST_MAX: Duration = Duration::from_secs(60);

/// The file. Plain form: a JSON object.
#[derive(Debug)]
pub struct DayFile {
    path: PathBuf,
    /// When the file was last written, since the start.
    written: Duration,
}

#[derive(Serialize, Deserialize)]
struct Content {
    /// Counted from 1970 in UTC.
    day: u64,
    services: Vec<ServiceBytes>,
}

#[derive(Serialize, Deserialize)]
struct ServiceBytes {
    service: String,
    bytes: u64,
}

impl DayFile {
    /// Returns the file of a state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(NAME), written: Duration::ZERO }
    }

    /// Reads the bytes; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is none of ours.
    pub fn read(&self) -> io::Result<Option<BytesOfDay>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.len() > LEN_MAX => {
                return Err(io::Error::new(ErrorKind::InvalidData, "the file is too long"));
            }
            Ok(_) => {}
        }
        let content: Content = serde_json::from_slice(&fs::read(&self.path)?)?;
        let mut read = BytesOfDay { day: content.day, ..BytesOfDay::default() };
        for entry in content.services {
            if let Some(service) = Service::ALL.into_iter().find(|it| it.label() == entry.service) {
                read.bytes[service.index()] = entry.bytes;
            }
        }
        Ok(Some(read))
    }

    /// Writes the bytes of today, unless it is early enough to do so at the next call. `now` is the time since the start,
    /// and calls are `step` apart.
    ///
    /// # Errors
    ///
    /// If the file cannot be written. Later calls try again.
    pub fn keep(&mut self, now: Duration, step: Duration, today: &BytesOfDay) -> io::Result<()> {
        if now.saturating_sub(self.written) + step < LOST_MAX {
            return Ok(());
        }
        self.written = now;
        self.write(today)
    }

    /// Replaces the file as a whole. A power failure may leave the one before. Where the file has more bytes of the same
    /// day, these stay: another process has counted them.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, today: &BytesOfDay) -> io::Result<()> {
        let mut today = *today;
        // A file that cannot be read is replaced.
        if let Ok(Some(before)) = self.read()
            && before.day == today.day
        {
            for (bytes, before) in today.bytes.iter_mut().zip(before.bytes) {
                *bytes = before.max(*bytes);
            }
        }
        let entry = |service: Service| ServiceBytes {
            service: service.label().to_owned(),
            bytes: today.bytes[service.index()],
        };
        let services = Service::ALL.into_iter().map(entry).collect();
        let content = Content { day: today.day, services };
        // A name for each process: both may write at once.
        let fresh = self.path.with_extension(process::id().to_string());
        fs::write(&fresh, serde_json::to_vec(&content)?)?;
        fs::rename(&fresh, &self.path)
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use harness::Directory;
    use tracker::{Budget, Controller, LoadMeasured, LoadRules, LoadTime, SERVICES, Stretch};

    use super::*;

    #[test]
    fn returns_what_was_written_last() {
        let directory = Directory::new().unwrap();
        let file = DayFile::new(directory.root());
        assert_eq!(file.read().unwrap(), None);
        let mut today = BytesOfDay { day: 20_000, ..BytesOfDay::default() };
        for bytes in [7, 1 << 60] {
            today.bytes[Service::Ws6.index()] = bytes;
            file.write(&today).unwrap();
            assert_eq!(file.read().unwrap(), Some(today));
        }
        assert_eq!(fs::read_dir(directory.root()).unwrap().count(), 1);
    }

    /// The old process of an upgrade ends when the new one has counted more.
    #[test]
    fn a_lower_count_of_the_same_day_changes_nothing() {
        let directory = Directory::new().unwrap();
        let file = DayFile::new(directory.root());
        let of = |day: u64, udp4: u64, ws6: u64| {
            let mut today = BytesOfDay { day, ..BytesOfDay::default() };
            today.bytes[Service::Udp4.index()] = udp4;
            today.bytes[Service::Ws6.index()] = ws6;
            today
        };
        file.write(&of(20_000, 500, 70)).unwrap();
        file.write(&of(20_000, 400, 80)).unwrap();
        assert_eq!(file.read().unwrap(), Some(of(20_000, 500, 80)));
        file.write(&of(20_001, 3, 0)).unwrap();
        assert_eq!(file.read().unwrap(), Some(of(20_001, 3, 0)));
        directory.write(NAME, "no JSON").unwrap();
        file.write(&of(20_001, 4, 0)).unwrap();
        assert_eq!(file.read().unwrap(), Some(of(20_001, 4, 0)));
    }

    fn rules() -> LoadRules {
        LoadRules {
            interval_s: [1800; SERVICES],
            stretch_max: Stretch::NONE,
            cpu_percent: 70,
            budgets: [Budget::default(); SERVICES],
            lifetime_s: 2700,
            web_lifetime_s: 180,
            keeps_longest: false,
        }
    }

    /// Whenever a process is killed, the next one continues with all bytes but those of the last minute.
    #[test]
    fn a_kill_loses_the_bytes_of_a_minute_at_most() {
        const PER_S: u64 = 1000;
        // Steps as the tracker makes them, which are a little late, and others.
        for step_ms in [1000, 10_400, 25_000, 60_000] {
            let directory = Directory::new().unwrap();
            let mut file = DayFile::new(directory.root());
            let rules = rules();
            let at = |ms: u64| LoadTime { steady_ms: ms, unix_s: 1_700_000_000 + ms / 1000 };
            let mut controller = Controller::new(&rules, at(0));
            let mut writes = 0;
            let mut left = 0;
            for now_ms in (step_ms..600_000).step_by(step_ms as usize) {
                // Just before the step.
                assert!(left + 60 * PER_S >= now_ms * PER_S / 1000, "{step_ms}: {left}, {now_ms}");
                let bytes = [step_ms * PER_S / 1000; SERVICES];
                controller.step(&rules, at(now_ms), &LoadMeasured { bytes, ..Default::default() });
                let [now, step] = [now_ms, step_ms].map(Duration::from_millis);
                file.keep(now, step, &controller.bytes_of_day()).unwrap();
                let Some(kept) = file.read().unwrap() else { continue };
                let mut next = Controller::new(&rules, at(now_ms));
                next.resume(&kept);
                assert_eq!(next.bytes_of_day(), kept);
                writes += u64::from(kept.bytes[0] > left);
                left = kept.bytes[0];
            }
            assert!(writes <= 600_000 / step_ms.max(30_000), "{writes} writes");
        }
    }

    #[test]
    fn refuses_what_is_no_file_of_bytes() {
        let directory = Directory::new().unwrap();
        let file = DayFile::new(directory.root());
        let long = format!("{{\"day\":1,\"services\":[]}}{}", " ".repeat(5000));
        for text in ["", "{", "{\"day\":-1,\"services\":[]}", &long] {
            directory.write(NAME, text).unwrap();
            assert!(file.read().is_err(), "{text}");
        }
        directory
            .write(NAME, "{\"day\":3,\"services\":[{\"service\":\"later\",\"bytes\":1}]}")
            .unwrap();
        assert_eq!(file.read().unwrap(), Some(BytesOfDay { day: 3, ..BytesOfDay::default() }));
    }
}
