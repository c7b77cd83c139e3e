//! Limits similar lines: those that one place in the program writes. The number of places is fixed, so
//! the memory for them is bounded, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;

use config::LogConfig;

const EXAMPLE_MAX: usize = 300;

pub(super) struct RateLimiter {
    lines_max: u32,
    interval: Duration,
    callsites: HashMap<Identifier, CallsiteCount>,
}

struct CallsiteCount {
    metadata: &'static Metadata<'static>,
    since: Instant,
    written: u32,
    omitted: u64,
    example: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Write,
    /// The line is over the limit. The first one omitted serves as an example.
    Omit {
        is_first: bool,
    },
}

pub(super) struct Omitted {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) count: u64,
    pub(super) time_s: u64,
    pub(super) example: String,
}

impl RateLimiter {
    pub(super) fn new(config: &LogConfig) -> Self {
        let (lines_max, interval) = (config.rate_limit_lines, seconds(config.rate_limit_s));
        Self { lines_max, interval, callsites: HashMap::new() }
    }

    pub(super) fn configure(&mut self, config: &LogConfig) {
        (self.lines_max, self.interval) = (config.rate_limit_lines, seconds(config.rate_limit_s));
    }

    pub(super) fn count(&mut self, metadata: &'static Metadata<'static>, now: Instant) -> Decision {
        let fresh = || CallsiteCount {
            metadata,
            since: now,
            written: 0,
            omitted: 0,
            example: String::new(),
        };
        let callsite = self.callsites.entry(metadata.callsite()).or_insert_with(fresh);
        // An interval with omitted lines ends only when they are reported.
        if callsite.omitted == 0 && now.duration_since(callsite.since) >= self.interval {
            (callsite.since, callsite.written) = (now, 0);
        }
        if self.lines_max == 0 || callsite.written < self.lines_max {
            callsite.written += 1;
            return Decision::Write;
        }
        callsite.omitted += 1;
        Decision::Omit { is_first: callsite.omitted == 1 }
    }

    pub(super) fn keep_example(&mut self, metadata: &Metadata<'_>, mut text: String) {
        text.truncate(text.floor_char_boundary(EXAMPLE_MAX));
        if let Some(callsite) = self.callsites.get_mut(&metadata.callsite()) {
            callsite.example = text;
        }
    }

    /// Returns the lines omitted where the interval has ended, or everywhere if `all`.
    pub(super) fn take_omitted(&mut self, now: Instant, all: bool) -> Vec<Omitted> {
        let interval = self.interval;
        let has_ended = |callsite: &&mut CallsiteCount| {
            callsite.omitted > 0 && (all || now.duration_since(callsite.since) >= interval)
        };
        let take = |callsite: &mut CallsiteCount| {
            let time_s = now.duration_since(callsite.since).as_secs();
            let (count, example) = (callsite.omitted, std::mem::take(&mut callsite.example));
            (callsite.since, callsite.written, callsite.omitted) = (now, 0, 0);
            Omitted { metadata: callsite.metadata, count, time_s, example }
        };
        self.callsites.values_mut().filter(has_ended).map(take).collect()
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
