//! What is logged goes to the dashboard, too.

use std::fmt::{Debug, Write};

use admin::LOG_TAIL;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Writes every line that is logged to the tail that the API shows.
pub(super) struct Tail;

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        LOG_TAIL.push(metadata.level().as_str(), metadata.target(), line.0);
    }
}

/// The message, and fields behind it.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a `String` cannot fail.
        let _ = match (field.name(), self.0.is_empty()) {
            ("message", true) => write!(self.0, "{value:?}"),
            ("message", false) => {
                self.0.insert_str(0, &format!("{value:?} "));
                Ok(())
            }
            (name, true) => write!(self.0, "{name}={value:?}"),
            (name, false) => write!(self.0, " {name}={value:?}"),
        };
    }
}
