//! Traffic and uptime of services over hours and days, for those who use the tracker.

use types::Family;

use super::Protocol;

/// A protocol over one family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceId {
    /// The protocol.
    pub protocol: Protocol,
    /// The family of the listeners.
    pub family: Family,
}

impl ServiceId {
    /// The number of services that there can be.
    pub const COUNT: usize = Protocol::ALL.len() * Family::ALL.len();

    /// Returns every service, in the order of [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |protocol| Family::ALL.map(|family| Self { protocol, family });
        Protocol::ALL.into_iter().flat_map(of)
    }

    /// Returns the index of the service into tables of [`Self::COUNT`] entries.
    pub fn index(self) -> usize {
        self.protocol.index() * Family::ALL.len() + self.family.index()
    }

    /// Returns its name in records and JSON, such as `udp4`.
    pub fn label(self) -> String {
        let version = match self.family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        format!("{}{version}", self.protocol.label())
    }
}

/// Traffic of the last 24 hours of a service, and its uptime over 90 days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSummary {
    /// The service.
    pub service: ServiceId,
    /// Announces that were answered.
    pub announces: u64,
    /// Requests of all kinds.
    pub requests: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
    /// The days until today in UTC, the oldest first.
    pub days: Vec<DayUptime>,
}

/// The seconds of a day in which a service served, and those in which it did not. The rest of the day is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayUptime {
    /// Seconds in which the service served.
    pub served_s: u64,
    /// Seconds in which it should have served, but did not.
    pub down_s: u64,
}

/// The summaries of all services that the process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicesReport {
    /// The beginning of the hour with which traffic begins: Unix time, seconds. The last hour is not over.
    pub since: u64,
    /// The summaries, in the order of [`ServiceId::index`].
    pub services: Vec<ServiceSummary>,
}
