//! Writes comparisons into a document: each section lies between two comments and is replaced as a
//! whole by the
//! next comparison of the same protocol and load.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};

use crate::definition::Protocol;

/// The comment that ends every section.
const END: &str = "<!-- compared -->";

/// Protocol and load of a section.
type Name<'a> = (Protocol, &'a str);

/// Fails if the document has no such section.
pub(crate) fn check(path: &Path, name: Name<'_>) -> Result<()> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    place(&text, name).map(drop).with_context(|| path.display().to_string())
}

/// Replaces a section of the file.
pub(crate) fn put(path: &Path, name: Name<'_>, section: &str) -> Result<()> {
    let shown = path.display();
    let mut text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let place = place(&text, name).with_context(|| shown.to_string())?;
    text.replace_range(place, &format!("\n{section}"));
    fs::write(path, text).with_context(|| format!("cannot write {shown}"))
}

/// Returns the range between the comments.
fn place(text: &str, (protocol, load): Name<'_>) -> Result<Range<usize>> {
    let start = format!("<!-- compare {protocol} {load} -->\n");
    let place = text.find(&start).and_then(|at| {
        let from = at + start.len();
        Some(from..from + text[from..].find(END)?)
    });
    place.with_context(|| {
        format!("no section that starts with `{}` and ends with `{END}`", start.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\n<!-- compare udp x -->\nold\n<!-- compared -->\nb\n\
                        <!-- compare udp y -->\n<!-- compared -->\n<!-- compare ws x -->\n";

    #[test]
    fn only_the_named_section_is_replaced() {
        let name = format!("compare-docs-{}.md", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, TEXT).unwrap();
        put(&path, (Protocol::Udp, "x"), "first\n").unwrap();
        put(&path, (Protocol::Udp, "x"), "new\n").unwrap();
        put(&path, (Protocol::Udp, "y"), "other\n").unwrap();
        let error = check(&path, (Protocol::Ws, "x")).unwrap_err();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let expected = TEXT.replace("old", "\nnew").replace("y -->\n", "y -->\n\nother\n");
        assert_eq!(text, expected);
        assert!(format!("{error:#}").contains("starts with `<!-- compare ws x -->`"), "{error:#}");
        assert!(
            format!("{:#}", check(&path, (Protocol::Ws, "x")).unwrap_err()).contains("cannot read")
        );
    }
}
