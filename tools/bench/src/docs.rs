//! `tidegate-bench docs`: writes the tables of documents from the records.
//!
//! A table stands between `<!-- figures: BENCHMARK -->` and `<!-- end of figures -->`, for example
//! `compare udp announces` or `xdp loads | Goals`: behind bars are the headings of the report whose tables are
//! shown, if not all are. It is of the benchmark's last entry in its record. `overview` is the README's table, from
//! several records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::session::print_line;
use crate::{compare, record, report};

const START: &str = "<!-- figures: ";
const END: &str = "<!-- end of figures -->";
/// The documents with tables.
const DOCUMENTS: [&str; 2] = ["docs/benchmarks.md", "README.md"];

/// Write the tables of documents from the records.
#[derive(Args)]
pub(crate) struct Docs {
    /// Documents with `<!-- figures: BENCHMARK -->` and `<!-- end of figures -->`.
    #[arg(default_values = DOCUMENTS)]
    files: Vec<PathBuf>,
    /// Directory with the definitions of trackers and loads, and the records in its `record`.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    definitions: PathBuf,
}

impl Docs {
    /// Writes the tables.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        for path in &self.files {
            let shown = path.display();
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            let new = generate(&text, &self.definitions).with_context(|| shown.to_string())?;
            fs::write(path, new).with_context(|| format!("cannot write {shown}"))?;
            print_line(&format!("written: {shown}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Replaces the tables of a document.
fn generate(text: &str, definitions: &Path) -> Result<String> {
    let (mut new, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(START) {
        let (name, behind) = behind.split_once(" -->\n").context("a marker has no end")?;
        let (_, behind) =
            behind.split_once(END).with_context(|| format!("{name}: expected `{END}`"))?;
        let figures = figures(name, definitions).with_context(|| name.to_owned())?;
        new += &format!("{before}{START}{name} -->\n\n{figures}\n{END}");
        rest = behind;
    }
    Ok(new + rest)
}

fn figures(name: &str, definitions: &Path) -> Result<String> {
    let folder = definitions.join("record");
    if name == "overview" {
        return Ok(compare::overview(&folder)?.to_string());
    }
    let mut parts = name.split(" | ");
    let benchmark = parts.next().unwrap_or_default();
    let document = report::document(&record::last(&folder, benchmark)?, definitions)?;
    document.section(&parts.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    #[test]
    fn the_committed_documents_are_generated_from_the_records() {
        for file in DOCUMENTS {
            let text = fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
            let new = generate(&text, &Path::new(ROOT).join("bench")).unwrap();
            assert!(text.contains(START), "{file} has no figures");
            assert!(new == text, "{file} differs from the records: run `tidegate-bench docs`");
        }
    }

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let bench = Path::new(ROOT).join("bench");
        let text = format!("a\n{START}overview -->\nold\n{END}\nb\n");
        let new = generate(&text, &bench).unwrap();
        assert!(new.starts_with(&format!("a\n{START}overview -->\n\n|")) && !new.contains("old"));
        assert!(new.ends_with(&format!("|\n\n{END}\nb\n")), "{new}");
        assert_eq!(generate(&new, &bench).unwrap(), new);
        for (bad, what) in [
            (format!("{START}no such -->\n{END}"), "cannot read"),
            (format!("{START}overview -->\n"), "expected `<!-- end"),
        ] {
            assert!(format!("{:#}", generate(&bad, &bench).unwrap_err()).contains(what), "{bad}");
        }
    }
}
