//! A line of the log, as text or JSON.

use std::fmt::{Debug, Write};

use admin::area_of;
use config::escaped;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

#[derive(Debug, Default)]
pub(super) struct LogLine {
    message: String,
    fields: Map<String, Value>,
}

impl LogLine {
    pub(super) fn new(message: String) -> Self {
        Self { message, fields: Map::new() }
    }

    pub(super) fn from_event(event: &Event<'_>) -> Self {
        let mut line = Self::default();
        event.record(&mut line);
        line
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.into(), value);
        self
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.into(),
            name => drop(self.fields.insert(name.into(), value.into())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().into(), value.into());
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Text { has_colours: bool },
    Json,
}

impl Form {
    pub(super) fn write(self, out: &mut String, metadata: &Metadata<'_>, line: &LogLine) {
        let mut timestamp = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
        let (level, area) = (metadata.level(), area_of(metadata.target()));
        match self {
            Self::Json => {
                let mut fields = line.fields.clone();
                fields.insert("message".into(), line.message.as_str().into());
                let json = json!({
                    "timestamp": timestamp,
                    "level": level.as_str(),
                    "area": area,
                    "target": metadata.target(),
                    "fields": fields,
                });
                *out += &json.to_string();
            }
            Self::Text { has_colours } => {
                let (on, off) = if has_colours { (colour(*level), "\x1b[0m") } else { ("", "") };
                let _ = write!(out, "{timestamp} {on}{level:>5}{off} {area}: ");
                *out += &escaped(&line.text());
            }
        }
        out.push('\n');
    }
}

/// Returns what the journal reads as the priority of a line (sd-daemon(3)).
pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[2m",
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    fn metadata() -> &'static Metadata<'static> {
        let place = tracing::callsite! {
            name: "x",
            kind: tracing::metadata::Kind::EVENT,
            target: "tidegate_admin::records",
            level: Level::INFO,
            fields:
        };
        place.metadata()
    }

    fn written(form: Form, line: &LogLine) -> String {
        let mut out = String::new();
        form.write(&mut out, metadata(), line);
        out
    }

    #[test]
    fn escapes_control_characters_in_text() {
        let line = LogLine::new("a\nb\u{1b}[31mc é".into()).with("omitted", 7.into());
        let text = written(Form::Text { has_colours: false }, &line);
        let (_, rest) = text.split_once(' ').unwrap();
        assert_eq!(rest, " INFO records: a\\nb\\u{1b}[31mc é omitted=7\n");
        let text = written(Form::Text { has_colours: true }, &line);
        assert!(text.contains(" \u{1b}[32m INFO\u{1b}[0m records: a"), "{text}");
    }
}
