//! The files of the workspace: all that git tracks or would add, read once.

use crate::command::{command, output};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;

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

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    /// The folder, from the root.
    pub(crate) folder: String,
    /// The parsed `Cargo.toml`.
    pub(crate) manifest: toml::Table,
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

    /// Returns the crates that the root manifest lists.
    pub(crate) fn members(&self) -> Result<Vec<Member>> {
        let root = self.file("Cargo.toml").context("no Cargo.toml in the root")?;
        let root: toml::Table = root.text.parse().context("Cargo.toml")?;
        let members = root.get("workspace").and_then(|workspace| workspace.get("members"));
        let members = members.and_then(toml::Value::as_array).context("no workspace.members")?;
        members.iter().filter_map(toml::Value::as_str).map(|folder| self.member(folder)).collect()
    }

    fn member(&self, folder: &str) -> Result<Member> {
        let path = format!("{folder}/Cargo.toml");
        let file = self.file(&path).with_context(|| format!("member {folder} has no {path}"))?;
        let manifest = file.text.parse().with_context(|| path)?;
        Ok(Member { folder: folder.to_owned(), manifest })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_workspace() {
        let tree = Tree::read().unwrap();
        let folders: Vec<_> = tree.members().unwrap().into_iter().map(|m| m.folder).collect();
        assert!(folders.contains(&"xtask".to_owned()));
        assert!(tree.file("xtask/src/tree.rs").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
