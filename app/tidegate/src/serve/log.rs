//! The log: lines of text or JSON on standard error; the API has the last of them.
//!
//! ```text
//!  event ─ level of its area ─▶ within the rate limit? ─ yes ─▶ line ─▶ standard error, tail
//!                                                      └ no ──▶ counted; one line later says how many
//! ```

mod line;
mod rate_limit;

use std::fs::{File, Metadata as FileMetadata};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use admin::{AUDIT, LOG_TAIL, LogLevels};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use config::{Config, LogConfig, LogFormat};
use line::{Form, LogLine};
use rate_limit::{Decision, Omitted, RateLimiter};

pub(super) struct Log {
    output: Arc<Output>,
    filter: reload::Handle<Targets, Registry>,
    levels: LogLevels,
}

impl Log {
    /// Starts logging for the whole process. Call it once.
    pub(super) fn start(config: &Config) -> Self {
        let LogConfig { levels, format, .. } = config.log.clone();
        let form = match format {
            LogFormat::Json => Form::Json,
            LogFormat::Text => Form::Text { has_colours: io::stderr().is_terminal() },
        };
        let limiter = Mutex::new(RateLimiter::new(&config.log));
        let output = Arc::new(Output { form, limiter, is_journal: is_journal() });
        let (filter, handle) = reload::Layer::new(targets(&levels));
        let layer = OutputLayer(Arc::clone(&output));
        tracing_subscriber::registry().with(filter).with(layer).init();
        Self { output, filter: handle, levels }
    }

    /// Returns the levels in use, which may differ from the configuration's.
    pub(super) fn levels(&self) -> &LogLevels {
        &self.levels
    }

    pub(super) fn set_levels(&mut self, levels: LogLevels) {
        let _ = self.filter.reload(targets(&levels));
        self.levels = levels;
    }

    pub(super) fn configure(&mut self, config: &LogConfig) {
        self.output.limiter().configure(config);
        self.set_levels(config.levels.clone());
    }

    /// Reports the lines omitted in intervals that have ended, or all of them at the end.
    pub(super) fn report_omitted(&self, is_end: bool) {
        let omitted = self.output.limiter().take_omitted(Instant::now(), is_end);
        omitted.into_iter().for_each(|omitted| self.output.report_omitted(omitted));
    }
}

fn targets(levels: &LogLevels) -> Targets {
    // The cluster's thread logs the events of its connection itself, once, so this library's lines are left out.
    Targets::new().with_targets(levels.targets()).with_target("async_nats", LevelFilter::OFF)
}

/// Returns whether standard error is the stream to the systemd journal that the environment names. The program may
/// have been started by a shell that has such a stream, with standard error elsewhere.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let file = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let same = |file: FileMetadata| format!("{}:{}", file.dev(), file.ino()) == stream;
    file.and_then(|file| file.metadata()).is_ok_and(same)
}

struct Output {
    form: Form,
    /// True if standard error is the systemd journal: it reads the priority of a line at its beginning.
    is_journal: bool,
    limiter: Mutex<RateLimiter>,
}

struct OutputLayer(Arc<Output>);

impl<S: Subscriber> Layer<S> for OutputLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let decision = match metadata.target() {
            // The audit trail must be complete.
            AUDIT => Decision::Write,
            _ => self.0.limiter().count(metadata, Instant::now()),
        };
        match decision {
            Decision::Write => self.0.write(metadata, LogLine::from_event(event)),
            Decision::Omit { is_first } => {
                LOG_TAIL.count_suppressed();
                if is_first {
                    let text = LogLine::from_event(event).text();
                    self.0.limiter().keep_example(metadata, text);
                }
            }
        }
    }
}

impl Output {
    fn limiter(&self) -> std::sync::MutexGuard<'_, RateLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, metadata: &Metadata<'_>, line: LogLine) {
        let mut bytes = String::new();
        if self.is_journal {
            bytes += line::priority(*metadata.level());
        }
        self.form.write(&mut bytes, metadata, &line);
        // An error cannot be reported anywhere. One call keeps lines of several threads whole.
        let _ = io::stderr().write_all(bytes.as_bytes());
        LOG_TAIL.push(metadata.level().as_str(), metadata.target(), line.text());
    }

    fn report_omitted(&self, omitted: Omitted) {
        let Omitted { metadata, count, time_s, example } = omitted;
        let text = format!("omitted {count} similar lines in {time_s} s, the first: {example}");
        self.write(metadata, LogLine::new(text).with("omitted", count.into()));
    }
}
