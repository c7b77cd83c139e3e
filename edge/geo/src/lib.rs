//! Where addresses belong: autonomous systems and countries, from MMDB files that the operator brings.
//!
//! The file may be damaged, or made to do harm: reading it costs at most [`limits::GEO_FILE_MAX`] of memory,
//! and visits at most [`limits::GEO_NETWORKS_MAX`] networks. Knows no tracker and no request.
#![forbid(unsafe_code)]

mod status;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod writer;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use maxminddb::{LookupResult, MaxMindDbError, Reader, WithinOptions};
use primitives::IpPrefix;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use types::limits;

pub use status::{CountryPeers, NetworkFile, NetworkStatus, ROWS_MAX, SystemPeers};

/// An MMDB file, in memory.
pub struct Database {
    reader: Reader<Vec<u8>>,
}

/// An autonomous system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Its number.
    pub number: u32,
    /// Its name, at most 64 characters and without control characters; empty if the file has none.
    pub name: String,
}

/// The two capital letters of a country (ISO 3166-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

/// Why a file cannot be used: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeoError(String);

/// Characters of a system's name.
const NAME_MAX: usize = 64;
/// Records that are remembered. The internet has 80,000 systems.
const KNOWN_MAX: usize = 1 << 18;

/// Fields of files about a network's system: MaxMind's and DB-IP's names, then IPinfo's.
#[derive(Deserialize)]
struct SystemRecord<'a> {
    autonomous_system_number: Option<u32>,
    #[serde(borrow)]
    autonomous_system_organization: Option<&'a str>,
    #[serde(borrow)]
    asn: Option<&'a str>,
    #[serde(borrow, alias = "as_name")]
    name: Option<&'a str>,
}

/// Fields of files about a network's country, in the same order.
#[derive(Deserialize)]
struct CountryRecord<'a> {
    #[serde(borrow)]
    country: Option<CountryField<'a>>,
    #[serde(borrow)]
    country_code: Option<&'a str>,
}

/// The code of a country: the field itself, or its `iso_code`.
struct CountryField<'a>(Option<&'a str>);

/// Not derived: an untagged enum would first keep the whole field, however deep a damaged file has it.
impl<'de: 'a, 'a> Deserialize<'de> for CountryField<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Field;

        impl<'de> Visitor<'de> for Field {
            type Value = Option<&'de str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a country's code, or a map with its iso_code")
            }

            fn visit_borrowed_str<E>(self, code: &'de str) -> Result<Self::Value, E> {
                Ok(Some(code))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut code = None;
                while let Some(key) = map.next_key::<&str>()? {
                    match key {
                        "iso_code" => code = map.next_value()?,
                        _ => map.next_value::<IgnoredAny>().map(drop)?,
                    }
                }
                Ok(code)
            }
        }

        deserializer.deserialize_any(Field).map(Self)
    }
}

impl Database {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is too large or is not an MMDB file.
    pub fn read(path: &Path) -> Result<Self, GeoError> {
        let bad = |why: &dyn fmt::Display| GeoError(format!("{}: {why}", path.display()));
        let mut bytes = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take(limits::GEO_FILE_MAX + 1).read_to_end(&mut bytes));
        match read {
            Err(error) => Err(bad(&format_args!("cannot read the file: {error}"))),
            Ok(len) if len as u64 > limits::GEO_FILE_MAX => {
                Err(bad(&format_args!("larger than {} bytes", limits::GEO_FILE_MAX)))
            }
            Ok(_) => Self::from_bytes(bytes).map_err(|why| bad(&why)),
        }
    }

    /// Takes the contents of a file.
    ///
    /// # Errors
    ///
    /// If they are not those of an MMDB file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GeoError> {
        Ok(Self { reader: Reader::from_source(bytes)? })
    }

    /// Returns the type that the file names for itself, such as `GeoLite2-ASN`, at most 64 characters.
    pub fn kind(&self) -> String {
        plain(&self.reader.metadata().database_type)
    }

    /// Returns when the file was made, if it says so.
    pub fn built(&self) -> Option<SystemTime> {
        self.reader.metadata().build_time().ok()
    }

    /// Returns the system that an address belongs to.
    pub fn system(&self, ip: IpAddr) -> Option<System> {
        let result = self.reader.lookup(ip.to_canonical()).ok()?;
        system(&result.decode::<SystemRecord<'_>>().ok()??)
    }

    /// Returns the country that an address belongs to.
    pub fn country(&self, ip: IpAddr) -> Option<Country> {
        let result = self.reader.lookup(ip.to_canonical()).ok()?;
        country(&result.decode::<CountryRecord<'_>>().ok()??)
    }

    /// Visits the networks of which the file knows the system, in its order, each with the system's number. Reads all of
    /// it, which takes a second or so.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or has more than `most` networks: [`limits::GEO_NETWORKS_MAX`].
    pub fn each_system(
        &self,
        most: usize,
        visit: impl FnMut(IpPrefix, u32),
    ) -> Result<(), GeoError> {
        let number = |found: &LookupResult<'_, Vec<u8>>| {
            Ok(found.decode::<SystemRecord<'_>>()?.as_ref().and_then(system_number))
        };
        self.each_network(most, number, visit)
    }

    /// Visits the networks of which the file knows the country, as [`Self::each_system`] does for systems.
    ///
    /// # Errors
    ///
    /// As [`Self::each_system`].
    pub fn each_country(
        &self,
        most: usize,
        visit: impl FnMut(IpPrefix, Country),
    ) -> Result<(), GeoError> {
        let code = |found: &LookupResult<'_, Vec<u8>>| {
            Ok(found.decode::<CountryRecord<'_>>()?.as_ref().and_then(country))
        };
        self.each_network(most, code, visit)
    }

    /// Visits the networks whose record has a value that `read` returns. Reads each record once: a damaged file may have one
    /// that takes long, for many networks.
    fn each_network<T: Copy>(
        &self,
        most: usize,
        read: impl Fn(&LookupResult<'_, Vec<u8>>) -> Result<Option<T>, MaxMindDbError>,
        mut visit: impl FnMut(IpPrefix, T),
    ) -> Result<(), GeoError> {
        let mut known: HashMap<usize, Option<T>> = HashMap::new();
        // With the networks without data: else a damaged tree of empty paths could not be left.
        let options = WithinOptions::default().include_networks_without_data();
        for (count, network) in self.reader.networks(options)?.enumerate() {
            if count >= most {
                return Err(GeoError(format!("more than {most} networks: the file is damaged")));
            }
            let network = network?;
            let Some(offset) = network.offset() else { continue };
            let value = match known.get(&offset) {
                Some(value) => *value,
                None => {
                    let value = read(&network)?;
                    if known.len() < KNOWN_MAX {
                        known.insert(offset, value);
                    }
                    value
                }
            };
            if let Some(value) = value {
                let network = network.network()?;
                visit(IpPrefix::new(network.network(), network.prefix()), value);
            }
        }
        Ok(())
    }
}

impl Country {
    /// Returns the country of a code, or `None` if that is not two capital letters.
    pub fn parse(code: &str) -> Option<Self> {
        let code: [u8; 2] = code.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }
}

fn country(record: &CountryRecord<'_>) -> Option<Country> {
    let code = record.country.as_ref().and_then(|CountryField(code)| *code);
    code.or(record.country_code).and_then(Country::parse)
}

fn system(record: &SystemRecord<'_>) -> Option<System> {
    let name = record.autonomous_system_organization.or(record.name).unwrap_or_default();
    Some(System { number: system_number(record)?, name: plain(name) })
}

fn system_number(record: &SystemRecord<'_>) -> Option<u32> {
    let text = || record.asn?.strip_prefix("AS")?.parse().ok();
    record.autonomous_system_number.or_else(text)
}

/// Returns the beginning of a text without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(NAME_MAX).collect()
}

impl From<MaxMindDbError> for GeoError {
    fn from(error: MaxMindDbError) -> Self {
        Self(format!("not a usable MMDB file: {}", plain(&error.to_string())))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Database {}", self.kind())
    }
}

impl fmt::Display for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{}", char::from(*byte)))
    }
}
