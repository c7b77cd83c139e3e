//! Writes the Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

use tracker::counters::Listener;

/// A page of metrics, written family by family. Label values are constants, addresses and versions, which
/// need no escaping; callers escape others with [`escape`]. Writing to a `String` cannot fail.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    /// Starts a metric family.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample of a listener, with further labels.
    pub(super) fn listener_sample(
        &mut self,
        name: &str,
        listener: &Listener,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let (address, protocol) = (listener.address, listener.protocol.label());
        let _ = write!(self.text, "{name}{{listener=\"{address}\",protocol=\"{protocol}\"");
        for (key, text) in labels {
            let _ = write!(self.text, ",{key}=\"{text}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    /// Writes a sample with any labels, at least one.
    pub(super) fn labelled_sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let labels: Vec<_> = labels.iter().map(|(key, text)| format!("{key}=\"{text}\"")).collect();
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }

    /// Writes a sample with one label.
    pub(super) fn sample(&mut self, name: &str, (key, text): (&str, &str), value: impl Display) {
        let _ = writeln!(self.text, "{name}{{{key}=\"{text}\"}} {value}");
    }

    /// Writes a sample with two labels.
    pub(super) fn sample2(&mut self, name: &str, labels: [(&str, &str); 2], value: impl Display) {
        let [(key1, text1), (key2, text2)] = labels;
        let _ = writeln!(self.text, "{name}{{{key1}=\"{text1}\",{key2}=\"{text2}\"}} {value}");
    }

    /// Writes a family with a single sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.plain_sample(name, value);
    }

    /// Writes a sample without labels.
    pub(super) fn plain_sample(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.text, "{name} {value}");
    }
}

/// Escapes a label value.
pub(super) fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
