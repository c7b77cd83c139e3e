//! The log: lines of text or JSON on standard error, and the last of them for the API.
//!
//! ```text
//!  event ─ level of its area ─▶ too many of its kind? ─ no ─▶ line ─▶ standard error, tail
//!                                                     └ yes ─▶ counted; one line tells later how many
//! ```

mod line;
mod repeats;

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use admin::{AUDIT, LOG_TAIL, LogLevels};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

use crate::config::{Config, LogConfig};
use line::{Form, Line};
use repeats::{LeftOut, Repeats, Verdict};

/// The log of this process, once it is started.
pub(super) struct Log {
    sink: Arc<Sink>,
    filter: reload::Handle<Targets, Registry>,
    levels: LogLevels,
}

impl Log {
    /// Starts it, for the whole process.
    pub(super) fn start(config: &Config) -> Self {
        let LogConfig { levels, is_json, repeats } = config.log.clone();
        let form = match is_json {
            true => Form::Json,
            false => Form::Text { has_colours: io::stderr().is_terminal() },
        };
        let sink = Arc::new(Sink { form, repeats: Mutex::new(Repeats::new(repeats)) });
        let (filter, handle) = reload::Layer::new(targets(&levels));
        let output = Output(Arc::clone(&sink));
        tracing_subscriber::registry().with(filter).with(output).init();
        Self { sink, filter: handle, levels }
    }

    /// The levels in force, which may be others than the configuration's.
    pub(super) fn levels(&self) -> &LogLevels {
        &self.levels
    }

    /// Logs more from now on, or less.
    pub(super) fn set_levels(&mut self, levels: LogLevels) {
        // Fails only once the subscriber is gone, with the process.
        let _ = self.filter.reload(targets(&levels));
        self.levels = levels;
    }

    /// Puts in force what a reload can.
    pub(super) fn configure(&mut self, config: &LogConfig) {
        self.sink.repeats().rule = config.repeats;
        self.set_levels(config.levels.clone());
    }

    /// Tells what was left out of kinds whose interval is over; or of all kinds, at the end.
    pub(super) fn tell_left_out(&self, is_end: bool) {
        let told = self.sink.repeats().take_left_out(Instant::now(), is_end);
        told.into_iter().for_each(|left_out| self.sink.tell_left_out(left_out));
    }
}

fn targets(levels: &LogLevels) -> Targets {
    Targets::new().with_targets(levels.targets())
}

/// Where lines go.
struct Sink {
    form: Form,
    repeats: Mutex<Repeats>,
}

/// Takes events for it.
struct Output(Arc<Sink>);

impl<S: Subscriber> Layer<S> for Output {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let verdict = match metadata.target() {
            AUDIT => Verdict::Tell,
            _ => self.0.repeats().judge(metadata, Instant::now()),
        };
        match verdict {
            Verdict::Tell => self.0.write(metadata, Line::of(event)),
            Verdict::LeaveOut { is_first } => {
                LOG_TAIL.count_suppressed();
                if is_first {
                    let text = Line::of(event).text();
                    self.0.repeats().keep(metadata, text);
                }
            }
        }
    }
}

impl Sink {
    fn repeats(&self) -> std::sync::MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, metadata: &Metadata<'_>, line: Line) {
        let mut bytes = String::new();
        self.form.write(&mut bytes, metadata, &line);
        // Where nobody reads there is nobody to tell. One call: lines of several threads stay whole.
        let _ = io::stderr().write_all(bytes.as_bytes());
        LOG_TAIL.push(metadata.level().as_str(), metadata.target(), line.text());
    }

    fn tell_left_out(&self, left_out: LeftOut) {
        let LeftOut { metadata, count, time_s, example } = left_out;
        let text = format!("{count} more lines like this in {time_s} s were left out: {example}");
        self.write(metadata, Line::new(text).with("left_out", count.into()));
    }
}
