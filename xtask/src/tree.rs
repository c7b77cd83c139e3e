//! The files of the workspace: all that git tracks or would add, read once.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use trials::command::{command, output};
use trials::workspace::root;

/// Larger files are not read; tidy reports them.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file of the workspace.
#[derive(Debug)]
pub(crate) struct File {
    /// The path from the root, with `/`.
    pub(crate) path: String,
    /// The content, empty if it is not text or too large.
    pub(crate) text: String,
    /// The size in bytes.
    pub(crate) bytes: u64,
}

/// All files, sorted by path. Tests create small trees.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the workspace from disk.
    pub(crate) fn read() -> Result<Self> {
        let words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let list = output(command(&words))?;
        let paths: BTreeSet<&str> = list.split('\0').filter(|path| !path.is_empty()).collect();
        let mut files = Vec::new();
        for path in paths {
            // Skip tracked files that are deleted, and links.
            let on_disk = root().join(path);
            let Ok(meta) = fs::symlink_metadata(&on_disk) else { continue };
            if !meta.is_file() {
                continue;
            }
            let mut text = String::new();
            if meta.len() <= FILE_BYTES_MAX {
                let bytes = fs::read(&on_disk).with_context(|| format!("cannot read {path}"))?;
                text = String::from_utf8(bytes).unwrap_or_default();
            }
            files.push(File { path: path.to_owned(), text, bytes: meta.len() });
        }
        Ok(Self { files })
    }

    /// Returns the file at this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns all Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.with_extension(".rs")
    }

    /// Returns all files whose names end with `end`.
    pub(crate) fn with_extension(&self, end: &'static str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }

    /// Returns folder and package name of each crate that the root manifest lists.
    pub(crate) fn members(&self) -> Result<Vec<(String, String)>> {
        let manifest = |path: &str| -> Result<toml::Table> {
            let file = self.file(path).with_context(|| format!("no {path}"))?;
            file.text.parse().with_context(|| path.to_owned())
        };
        let root = manifest("Cargo.toml")?;
        let folders = root.get("workspace").and_then(|table| table.get("members")?.as_array());
        let folders = folders.context("no workspace.members")?.iter();
        let member = |folder: &str| {
            let manifest = manifest(&format!("{folder}/Cargo.toml"))?;
            let name = manifest.get("package").and_then(|table| table.get("name")?.as_str());
            Ok((folder.to_owned(), name.unwrap_or_default().to_owned()))
        };
        folders.filter_map(toml::Value::as_str).map(member).collect()
    }
}

#[cfg(test)]
impl Tree {
    /// Creates a tree from paths and contents.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            bytes: text.len() as u64,
        };
        Self { files: files.iter().map(file).collect() }
    }
}
