//! Writes the Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

/// A page of metrics, written family by family. Label values are constants, addresses and versions, which
/// need no escaping; callers escape others with [`escape`]. Writing to a `String` cannot fail.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Returns the text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Starts a metric family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a family with a single sample without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.plain_sample(name, value);
    }

    /// Writes a family with a sample for each value of a label.
    pub fn by_label(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, impl Display)>,
    ) {
        self.family(name, kind, help);
        for (text, value) in samples {
            self.sample(name, (label, text.as_ref()), value);
        }
    }

    /// Writes a sample without labels.
    pub fn plain_sample(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.text, "{name} {value}");
    }

    /// Writes a sample with one label.
    pub fn sample(&mut self, name: &str, label: (&str, &str), value: impl Display) {
        self.labelled_sample(name, &[label], value);
    }

    /// Writes a sample with any labels, at least one.
    pub fn labelled_sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let mut before = '{';
        self.text.push_str(name);
        for (key, text) in labels {
            let _ = write!(self.text, "{before}{key}=\"{text}\"");
            before = ',';
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

/// Escapes a label value.
pub fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
