//! Rules that no compiler, clippy or cargo-deny knows, one module each, with their tests.
//!
//! A rule reads the [`Tree`], nothing else, and returns [`Finding`]s. What it leaves out, it names with the
//! reason.
//!
//! Other tools hold the rest. Clippy limits the lines and parameters of functions and forbids calls in
//! core (`clippy.toml`, `core/clippy.toml`), the compiler denies unsafe code (`Cargo.toml`), and
//! cargo-deny limits which crate may depend on which (`deny.toml`).

mod budget;
mod crates;
mod documents;
mod file_length;
mod heads;
mod hygiene;
pub(crate) mod links;
mod pages;
mod phrases;
mod type_names;

use crate::tree::Tree;
use anyhow::{Result, ensure};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

type Check = fn(&Tree) -> Result<Vec<Finding>>;

/// The rules, and their names in findings.
const RULES: &[(&str, Check)] = &[
    ("file-length", file_length::check),
    ("type-names", type_names::check),
    ("phrases", phrases::check),
    ("heads", heads::check),
    ("budget", budget::check),
    ("crates", crates::check),
    ("links", links::check),
    ("documents", documents::check),
    ("pages", pages::check),
    ("hygiene", hygiene::check),
];

/// Runs every rule over the workspace and prints the findings.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read()?;
    let mut count = 0;
    for (rule, check) in RULES {
        let findings = check(&tree)?;
        count += findings.len();
        for Finding { path, line, message } in findings {
            println!("{path}:{line}: {message} [{rule}]");
        }
    }
    ensure!(count == 0, "{count} findings");
    Ok(())
}
