//! Removes keys from a configuration of an earlier tidegate that are no longer settings.
//!
//! The tracker's program says which these are, and which value is used instead. A key on lines of its own becomes a
//! comment with that value; one within an inline table is cut out. Everything else stays byte for byte.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use toml::de::{DeTable, DeValue};

use crate::check::{self, Problem};

/// Remove keys from a configuration of tidegate that are no longer settings.
///
/// Prints the configuration with a comment in place of each removed key, which names the value that is used now.
/// Comments and all other keys stay as they are.
#[derive(Args)]
pub(super) struct Rewrite {
    /// Configuration of tidegate (tidegate.toml).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file instead of printing its new text.
    #[arg(long)]
    write: bool,
}

impl Rewrite {
    /// Rewrites the file. Returns what is wrong, if anything; nothing has been written then.
    pub(super) fn run(&self) -> Result<(), Vec<String>> {
        let name = self.file.display();
        let text = fs::read_to_string(&self.file)
            .map_err(|error| vec![format!("cannot read {name}: {error}")])?;
        let removed = removed_keys(&text).map_err(|problems| {
            problems.iter().map(|problem| problem.within(&name.to_string())).collect::<Vec<_>>()
        })?;
        let rewritten =
            remove(&text, &removed).map_err(|error| vec![format!("{name}: {error}")])?;
        if !removed_keys(&rewritten).is_ok_and(|left| left.is_empty()) {
            return Err(vec![format!("{name}: removing {} keys breaks it", removed.len())]);
        }
        if !self.write {
            crate::print(&rewritten)?;
        } else if rewritten != text {
            // In place, so that owner and mode stay.
            fs::write(&self.file, &rewritten)
                .map_err(|error| vec![format!("cannot write {name}: {error}")])?;
        }
        for key in &removed {
            crate::print_error(format_args!("{name}:{}: {}", key.line, key.remark()));
        }
        if removed.is_empty() {
            crate::print_error(format_args!("{name}: all keys are settings; nothing to remove"));
        }
        Ok(())
    }
}

/// A key that is no longer a setting.
#[derive(Debug, PartialEq, Eq)]
struct RemovedKey {
    /// The line, from 1.
    line: usize,
    /// The name with its section.
    name: String,
    /// The value that is used now, or its description.
    in_use: String,
}

impl RemovedKey {
    /// Parses a warning of the tracker; returns `None` if it is about something else.
    fn parse(warning: Problem) -> Option<Self> {
        let (name, rest) = warning.text.split_once(" is no longer a setting: remove it; ")?;
        let (in_use, _) = rest.rsplit_once(" is used")?;
        Some(Self { line: warning.line, name: name.to_owned(), in_use: in_use.to_owned() })
    }

    fn remark(&self) -> String {
        format!("{} is no longer a setting: {} is used", self.name, self.in_use)
    }
}

/// Returns the keys of a configuration that are no longer settings.
///
/// # Errors
///
/// Returns the mistakes of the configuration if it is not valid, or an error if the tracker's program cannot be run.
fn removed_keys(text: &str) -> Result<Vec<RemovedKey>, Vec<Problem>> {
    let problems = check::problems(text).map_err(|error| vec![Problem { line: 0, text: error }])?;
    if !problems.is_empty() {
        return Err(problems);
    }
    let warnings = check::warnings(text).map_err(|error| vec![Problem { line: 0, text: error }])?;
    Ok(warnings.into_iter().filter_map(RemovedKey::parse).collect())
}

/// Returns the configuration without these keys.
///
/// # Errors
///
/// Returns an error if a key is not where the tracker has found it.
fn remove(text: &str, removed: &[RemovedKey]) -> Result<String, String> {
    let root = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let mut entries = Vec::new();
    collect(root.get_ref(), "", &mut entries);
    let mut found = Vec::new();
    for key in removed {
        let entry = entries
            .iter()
            .find(|entry| entry.path == key.name && line_of(text, entry.span.start) == key.line)
            .ok_or_else(|| format!("expected {} in line {}", key.name, key.line))?;
        found.push((entry.span.clone(), key));
    }
    // From the end, so that the places of those that follow stay.
    found.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut rewritten = text.to_owned();
    for (span, key) in found {
        match lines_of_its_own(&rewritten, &span) {
            Some((lines, note)) => {
                let note = if note.is_empty() { note } else { format!(" ({note})") };
                rewritten.replace_range(lines, &format!("# {}.{note}", key.remark()));
            }
            None => rewritten.replace_range(pair_with_comma(&rewritten, &span), ""),
        }
    }
    Ok(rewritten)
}

/// A key with its place in the text.
struct Entry {
    /// The name with its section. Within `[[listener]]`, as in the sections.
    path: String,
    /// From the last part of the name to the end of the value.
    span: Range<usize>,
}

fn collect(table: &DeTable<'_>, path: &str, entries: &mut Vec<Entry>) {
    for (name, value) in table {
        let path = match path {
            "" => name.get_ref().to_string(),
            path => format!("{path}.{}", name.get_ref()),
        };
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &path, entries),
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| item.get_ref().as_table())
                .for_each(|item| collect(item, "", entries)),
            _ => {}
        }
        entries.push(Entry { path, span: name.span().start..value.span().end });
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// Returns the range of the lines that a key and its value have for themselves, without indentation and line end, and
/// the comment behind the value. Returns `None` if these lines have other keys or brackets, too.
fn lines_of_its_own(text: &str, span: &Range<usize>) -> Option<(Range<usize>, String)> {
    let line_start = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let before = &text[line_start..span.start];
    let start = line_start + (before.len() - before.trim_start().len());
    let end = text[span.end..].find('\n').map_or(text.len(), |length| span.end + length);
    let after = text[span.end..end].trim();
    let note = after.strip_prefix(',').unwrap_or(after).trim_start();
    let is_alone = !before.contains(['{', '}', ',']) && (note.is_empty() || note.starts_with('#'));
    let carriage_return = usize::from(text[..end].ends_with('\r'));
    let note = note.trim_start_matches('#').trim().to_owned();
    is_alone.then_some((start..end - carriage_return, note))
}

/// Returns the range of a key and its value in an inline table, with the comma behind it or else before it.
fn pair_with_comma(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = text[..span.start].rfind(['{', ',', '\n']).map_or(0, |before| before + 1);
    let rest = &text[span.end..];
    if let Some(behind) = rest.trim_start().strip_prefix(',') {
        return start..text.len() - behind.len();
    }
    let before = text[..start].trim_end();
    let start = if before.ends_with(',') { before.len() - 1 } else { start };
    start..span.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(line: usize, name: &str) -> RemovedKey {
        RemovedKey { line, name: name.into(), in_use: "60".into() }
    }

    #[test]
    fn parses_warnings_of_removed_keys_only() {
        let warning = |text: &str| RemovedKey::parse(Problem { line: 3, text: text.into() });
        assert_eq!(
            warning("http.a_s is no longer a setting: remove it; 60 is used"),
            Some(removed(3, "http.a_s"))
        );
        assert_eq!(warning("http.a_s in a [[listener]] is deprecated"), None);
    }

    #[test]
    fn replaces_lines_and_cuts_inline_pairs() {
        let remark = "# http.a is no longer a setting: 60 is used.";
        for (before, after) in [
            (
                "[http]\nb = 1\n  a = 2 # why\nc = 3\n",
                format!("[http]\nb = 1\n  {remark} (why)\nc = 3\n"),
            ),
            ("b = 1\nx = 2\nhttp.a = \"\"\"\nx\n\"\"\"", format!("b = 1\nx = 2\n{remark}")),
            ("\r\n\r\nhttp.\"a\" = 2\r\nb = 1\r\n", format!("\r\n\r\n{remark}\r\nb = 1\r\n")),
            ("\n\nhttp = { a = 2 }\n", "\n\nhttp = { }\n".into()),
            ("\n\nhttp = { a = 2, b = 3 }\n", "\n\nhttp = { b = 3 }\n".into()),
            ("\n\nhttp = { b = 3, a = 2 }\n", "\n\nhttp = { b = 3 }\n".into()),
            ("\n[[listener]]\nhttp.a = 2\n", format!("\n[[listener]]\n{remark}\n")),
        ] {
            assert_eq!(remove(before, &[removed(3, "http.a")]).unwrap(), after, "{before}");
        }
    }

    #[test]
    fn removes_several_keys_of_one_line() {
        let keys = [removed(1, "http.a"), removed(1, "http.b")];
        assert_eq!(remove("http = { a = 1, b = 2 }", &keys).unwrap(), "http = { }");
        assert_eq!(remove("http = { a = 1, c = 3, b = 2 }", &keys).unwrap(), "http = { c = 3 }");
        let error = remove("http.c = 1", &keys).unwrap_err();
        assert_eq!(error, "expected http.a in line 1");
    }
}
