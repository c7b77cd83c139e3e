//! Limits similar lines: those that one place in the program writes. The number of places is fixed, so
//! the memory for them is bounded, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;

use config::LogRateLimit;

/// Maximum length of an example in bytes.
const EXAMPLE_MAX: usize = 300;

/// Counts the lines of each place in the program.
pub(super) struct RateLimiter {
    pub(super) limit: LogRateLimit,
    callsites: HashMap<Identifier, CallsiteCount>,
}

struct CallsiteCount {
    metadata: &'static Metadata<'static>,
    since: Instant,
    written: u32,
    omitted: u64,
    example: String,
}

/// Decision to write or to omit a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Write,
    /// The line is over the limit. The first one omitted serves as an example.
    Omit {
        is_first: bool,
    },
}

/// Lines that were not written.
pub(super) struct Omitted {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) count: u64,
    pub(super) time_s: u64,
    pub(super) example: String,
}

impl RateLimiter {
    pub(super) fn new(limit: LogRateLimit) -> Self {
        Self { limit, callsites: HashMap::new() }
    }

    /// Counts a line, and returns whether to write it.
    pub(super) fn count(&mut self, metadata: &'static Metadata<'static>, now: Instant) -> Decision {
        let LogRateLimit { lines_max, interval_s } = self.limit;
        if lines_max == 0 {
            return Decision::Write;
        }
        let fresh = || CallsiteCount {
            metadata,
            since: now,
            written: 0,
            omitted: 0,
            example: String::new(),
        };
        let callsite = self.callsites.entry(metadata.callsite()).or_insert_with(fresh);
        // An interval with omitted lines ends only when they are reported.
        if callsite.omitted == 0 && now.duration_since(callsite.since) >= seconds(interval_s) {
            (callsite.since, callsite.written) = (now, 0);
        }
        if callsite.written < lines_max {
            callsite.written += 1;
            return Decision::Write;
        }
        callsite.omitted += 1;
        Decision::Omit { is_first: callsite.omitted == 1 }
    }

    /// Keeps a line as an example of those that are omitted.
    pub(super) fn keep_example(&mut self, metadata: &Metadata<'_>, mut text: String) {
        text.truncate(text.floor_char_boundary(EXAMPLE_MAX));
        if let Some(callsite) = self.callsites.get_mut(&metadata.callsite()) {
            callsite.example = text;
        }
    }

    /// Returns the lines omitted where the interval has ended, or everywhere if `all`, and starts the
    /// next interval there.
    pub(super) fn take_omitted(&mut self, now: Instant, all: bool) -> Vec<Omitted> {
        let interval = seconds(self.limit.interval_s);
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

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    #[test]
    fn reports_how_many_lines_were_omitted() {
        let kind = |which| match which {
            0 => tracing::callsite!(name: "a", kind: tracing::metadata::Kind::EVENT, fields: )
                .metadata(),
            _ => tracing::callsite!(name: "b", kind: tracing::metadata::Kind::EVENT, fields: )
                .metadata(),
        };
        let mut limiter = RateLimiter::new(LogRateLimit { lines_max: 3, interval_s: 10 });
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        for _ in 0..3 {
            assert_eq!(limiter.count(kind(0), at(0)), Decision::Write);
        }
        assert_eq!(limiter.count(kind(0), at(1)), Decision::Omit { is_first: true });
        limiter.keep_example(kind(0), "é".repeat(EXAMPLE_MAX));
        assert_eq!(limiter.count(kind(0), at(2)), Decision::Omit { is_first: false });
        // Other callsites are counted apart.
        assert_eq!(limiter.count(kind(1), at(2)), Decision::Write);
        assert!(limiter.take_omitted(at(9), false).is_empty());
        // They are reported even if more follow.
        assert_eq!(limiter.count(kind(0), at(12)), Decision::Omit { is_first: false });
        let omitted = limiter.take_omitted(at(13), false);
        let [one] = &omitted[..] else { panic!("expected one callsite") };
        assert_eq!((one.count, one.time_s), (3, 13));
        assert!(one.example.starts_with('é') && one.example.len() <= EXAMPLE_MAX);
        assert_eq!(limiter.count(kind(0), at(13)), Decision::Write);
        // Lines within the limit are never reported.
        for second in (20..100).step_by(5) {
            assert_eq!(limiter.count(kind(1), at(second)), Decision::Write);
        }
        assert!(limiter.take_omitted(at(100), true).is_empty());
        // With `all`, it does not wait for the interval to end.
        let four = [(); 4].map(|()| limiter.count(kind(1), at(200)));
        assert_eq!(four[3], Decision::Omit { is_first: true });
        assert_eq!(limiter.take_omitted(at(200), true).len(), 1);
    }
}
