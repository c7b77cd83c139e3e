//! Licences of what is linked into the program: a list for the dashboard, and all texts for packages.

use super::dependencies::{Dependency, linked};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use trials::workspace::root;

/// The list that the dashboard shows, committed so that a build needs no task before it.
const LIST: &str = "edge/admin/assets/licences.json";

/// Files with terms, by the beginnings of their names.
const TERMS: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Writes the list.
pub(crate) fn write() -> Result<()> {
    fs::write(root().join(LIST), list()?)?;
    Ok(())
}

/// Compares the list with the dependencies.
pub(crate) fn check() -> Result<()> {
    let committed = fs::read_to_string(root().join(LIST)).context(LIST)?;
    ensure!(committed == list()?, "{LIST} is not up to date: run `cargo xtask licences`");
    Ok(())
}

/// Returns name, version and licence of each crate, one a line.
fn list() -> Result<String> {
    let rows =
        foreign()?.into_iter().map(|it| json!([it.name, it.version, it.license]).to_string());
    Ok(format!("[\n{}\n]\n", rows.collect::<Vec<_>>().join(",\n")))
}

/// Returns the crates of others, sorted by name.
fn foreign() -> Result<Vec<Dependency>> {
    let mut foreign: Vec<_> = linked()?.into_values().filter(|it| !it.is_own).collect();
    foreign.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(foreign)
}

/// Returns the crates with their licences, and each text once.
pub(super) fn texts() -> Result<String> {
    let mut crates =
        String::from("tidegate contains these libraries. The numbers name the texts below.\n\n");
    let mut texts: BTreeMap<String, usize> = BTreeMap::new();
    for dependency in foreign()? {
        let mut numbers = Vec::new();
        for file in files(&dependency.folder)? {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            let next = texts.len() + 1;
            numbers
                .push(texts.entry(text.trim_matches('\n').to_owned()).or_insert(next).to_string());
        }
        let Dependency { name, version, license, repository, .. } = dependency;
        let source = repository.unwrap_or_default();
        let numbers = if numbers.is_empty() { "none".into() } else { numbers.join(", ") };
        writeln!(crates, "{name} {version}: {license}; texts: {numbers}; {source}")?;
    }
    let mut numbered: Vec<_> = texts.into_iter().map(|(text, number)| (number, text)).collect();
    numbered.sort();
    for (number, text) in numbered {
        write!(crates, "\n{}\n[{number}]\n\n{text}\n", "=".repeat(80))?;
    }
    Ok(crates)
}

/// Returns the files with terms in the folder of a crate, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if TERMS.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
