//! Traffic and uptime of services over hours and days, for those who use the tracker.

use crate::load::Service;

/// Traffic of the last 24 hours of a service, and its uptime over 90 days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSummary {
    /// The service.
    pub service: Service,
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
    /// The summaries, in the order of [`Service::ALL`].
    pub services: Vec<ServiceSummary>,
}
