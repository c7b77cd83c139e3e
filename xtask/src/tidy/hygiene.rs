//! Finds what does not belong into a repository: large files, file names without meaning, paths of one machine,
//! trailing blanks, examples that are not tested.

use super::Finding;
use crate::tree::{FILE_BYTES_MAX, File, Tree};
use anyhow::Result;

/// Top folders that exist only on some machines.
const MACHINE_FOLDERS: &[&str] = &["root", "work", "home", "Users"];

/// Names of Rust files and folders that say nothing about the content. Clippy forbids `mod.rs`.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "manager", "service"];

/// Files are small, and named for their content. Texts have no machine paths and no trailing blanks.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    Ok(tree.files.iter().flat_map(check_file).collect())
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.bytes > FILE_BYTES_MAX {
        let message =
            format!("{} bytes, of at most {FILE_BYTES_MAX}: store it elsewhere", file.bytes);
        findings.push(Finding::new(&file.path, 0, message));
    }
    let stem = file.path.strip_suffix(".rs").unwrap_or_default();
    if let Some(name) = stem.split('/').find(|name| EMPTY_NAMES.contains(name)) {
        let message = format!("`{name}` says nothing: name the concept");
        findings.push(Finding::new(&file.path, 0, message));
    }
    // Fuzz corpora contain any bytes; LICENSE, libraries and dumps of databases are unchanged.
    if ["/corpus/", "/vendor/"].iter().any(|folder| file.path.contains(folder))
        || file.path == "LICENSE"
        || file.path.ends_with(".sql")
    {
        return findings;
    }
    let mut in_block = false;
    for (line, text) in (1..).zip(file.text.lines()) {
        if let Some(kind) =
            text.trim_start().trim_start_matches(['/', '!', ' ']).strip_prefix("```")
            && file.path.ends_with(".rs")
        {
            in_block = !in_block;
            // The step "client library" runs those of the client.
            if in_block && kind != "text" && !file.path.starts_with("tools/client/") {
                let message = "examples in documentation are not run: write a test, or ```text";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
        if text.trim_end() != text {
            findings.push(Finding::new(&file.path, line, "trailing blanks"));
        }
        if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_path(text, folder)) {
            let message = format!("a path of one machine (below /{folder}): use a relative path");
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::new(&file.path, 0, "no newline at the end of the file"));
    }
    findings
}

/// Returns whether an absolute path below `/folder/` starts anywhere in the text.
fn names_path(text: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    let begins = |at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-~}/*".contains(c))
    };
    text.match_indices(&path).any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn clean_texts_pass() {
        assert_eq!(count("a.md", "See docs/work/x and $HOME.\n"), 0);
        assert_eq!(count("fuzz/corpus/udp/1", "x "), 0);
        assert_eq!(count("empty", ""), 0);
    }

    #[test]
    fn finds_empty_names_and_untested_examples() {
        assert_eq!(count("core/swarm/src/pick.rs", "//! ```text\n//! ```\n"), 0);
        assert_eq!(count("core/swarm/src/utils.rs", ""), 1);
        assert_eq!(count("core/common/src/lib.rs", "/// ```\n/// f();\n/// ```\n"), 2);
    }

    #[test]
    fn finds_blanks_paths_and_large_files() {
        assert_eq!(count("a.md", "x \n"), 1);
        assert_eq!(count("a.md", "x"), 1);
        assert_eq!(count("a.sh", concat!("cd '/ro", "ot/x'\n")), 1);
        let mut tree = Tree::of(&[("big", "")]);
        tree.files[0].bytes = FILE_BYTES_MAX + 1;
        assert_eq!(check(&tree).unwrap().len(), 1);
    }
}
