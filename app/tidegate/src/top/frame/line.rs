//! Lines of styled words.

#[derive(Debug, Default)]
pub(in crate::top) struct StyledLine(pub(in crate::top) Vec<(Style, String)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::top) enum Style {
    Plain,
    Bold,
    Dim,
    Chart,
    Warning,
}

use Style::{Dim, Plain};

pub(super) const LABEL: usize = 15;

impl StyledLine {
    pub(super) fn labelled(label: &str) -> Self {
        Self(vec![(Dim, format!("{label:<LABEL$}"))])
    }

    pub(super) fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Appends a value, with a gap behind it.
    pub(super) fn value(self, style: Style, value: impl Into<String>) -> Self {
        self.and(style, value).and(Plain, "   ")
    }

    pub(super) fn named(self, name: &str, value: impl Into<String>) -> Self {
        self.and(Dim, format!("{name} ")).value(Plain, value)
    }

    /// Appends a value after its name if there is one that should not be there.
    pub(super) fn bad(self, name: &str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.and(Dim, format!("{name} ")).value(Style::Warning, value),
            None => self,
        }
    }

    pub(in crate::top) fn text(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().into()
    }

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
}

/// Breaks a text into lines of at most `width` columns, at spaces.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
