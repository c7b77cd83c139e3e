//! The file with the bytes of today, so that a restart does not renew the budget of a day.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracker::{BytesOfDay, Service};

/// The name within `state.dir`.
const NAME: &str = "bytes-of-day.json";
/// No file of ours is longer.
const LEN_MAX: u64 = 4096;

/// The file. Plain form: a JSON object.
#[derive(Debug)]
pub struct DayFile {
    path: PathBuf,
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
        Self { path: state_dir.join(NAME) }
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

    /// Replaces the file as a whole. A power failure may leave the one before.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, today: &BytesOfDay) -> io::Result<()> {
        let entry = |service: Service| ServiceBytes {
            service: service.label().to_owned(),
            bytes: today.bytes[service.index()],
        };
        let services = Service::ALL.into_iter().map(entry).collect();
        let content = Content { day: today.day, services };
        let fresh = self.path.with_extension("new");
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
