//! Lines of styled words.

/// A line of words with their styles.
#[derive(Debug, Default)]
pub(in crate::top) struct StyledLine(pub(in crate::top) Vec<(Style, String)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::top) enum Style {
    Plain,
    Bold,
    /// For labels.
    Dim,
    Chart,
    /// For values that should be 0, and errors.
    Warning,
}

use Style::{Dim, Plain, Warning};

/// Width of the labels before values.
pub(super) const LABEL: usize = 15;
/// Columns between values.
const GAP: usize = 3;

impl StyledLine {
    /// Returns a line that begins with a label.
    pub(super) fn labelled(label: &str) -> Self {
        Self(vec![(Dim, format!("{label:<LABEL$}"))])
    }

    pub(super) fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    pub(in crate::top) fn text(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().into()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Truncates it to `width` columns.
    pub(super) fn cut(mut self, width: usize) -> Self {
        let mut left = width;
        for (_, text) in &mut self.0 {
            if let Some((at, _)) = text.char_indices().nth(left) {
                text.truncate(at);
            }
            left -= text.chars().count();
        }
        self
    }

    /// Appends spaces up to `width` columns.
    pub(super) fn padded(self, width: usize) -> Self {
        let gap = width.saturating_sub(self.len());
        self.and(Plain, " ".repeat(gap))
    }
}

/// A label and the values behind it. What does not fit continues on further lines.
pub(super) struct Figures {
    label: &'static str,
    values: Vec<StyledLine>,
}

impl Figures {
    pub(super) fn of(label: &'static str) -> Self {
        Self { label, values: Vec::new() }
    }

    pub(super) fn value(mut self, style: Style, value: impl Into<String>) -> Self {
        self.values.push(StyledLine::default().and(style, value));
        self
    }

    /// Appends a value after its name.
    pub(super) fn named(mut self, name: &str, value: impl Into<String>) -> Self {
        self.values.push(StyledLine::default().and(Dim, format!("{name} ")).and(Plain, value));
        self
    }

    /// Appends a value after its name if there is one that should not be there.
    pub(super) fn bad(mut self, name: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.values
                .push(StyledLine::default().and(Dim, format!("{name} ")).and(Warning, value));
        }
        self
    }

    /// Returns lines of at most `width` columns, unless a single value is wider.
    pub(super) fn lines(self, width: usize) -> Vec<StyledLine> {
        let mut lines = vec![StyledLine::labelled(self.label)];
        for value in self.values {
            let last = lines.len() - 1;
            let used = lines[last].len();
            let is_first = lines[last].0.len() == 1;
            let gap = if is_first { 0 } else { GAP };
            if !is_first && used + gap + value.len() > width {
                lines.push(StyledLine::labelled(""));
            } else if let Some(line) = lines.last_mut() {
                line.0.push((Plain, " ".repeat(gap)));
            }
            if let Some(line) = lines.last_mut() {
                line.0.extend(value.0);
            }
        }
        lines
    }
}

/// Breaks a text into lines of at most `width` columns, at spaces if possible.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_continue_on_further_lines() {
        let figures = Figures::of("Requests").value(Plain, "1k/s").named("udp", "900/s");
        let lines = figures.named("http", "100/s").bad("lost", None).lines(30);
        let text: Vec<_> = lines.iter().map(StyledLine::text).collect();
        assert_eq!(
            text,
            ["Requests       1k/s", "               udp 900/s", "               http 100/s"]
        );
    }
}
