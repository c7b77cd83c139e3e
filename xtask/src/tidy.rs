//! The rules that compilers do not know, one module each, with their own tests.
//!
//! A rule looks at the [`Tree`] and gives [`Finding`]s; it reads nothing else. What cannot be mended
//! at once is exempted by a line in `xtask/tidy.toml`, with the reason; a line that exempts nothing
//! any more is a finding itself, so that list only shrinks.

mod arrows;
mod bans;
mod documents;
mod exemptions;
mod hygiene;
mod leftovers;
mod lengths;
mod links;
mod names;
mod source;
mod unsafe_room;

use crate::command::Tally;
use crate::workspace::Tree;
use anyhow::Result;

/// Something that a rule does not like.
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

/// The rules by the names that `tidy.toml` knows them by.
const RULES: &[(&str, Check)] = &[
    ("function-length", lengths::functions),
    ("parameters", lengths::parameters),
    ("file-length", lengths::files),
    ("arrows", arrows::check),
    ("bans", bans::check),
    ("unsafe", unsafe_room::check),
    ("leftovers", leftovers::check),
    ("links", links::check),
    ("documents", documents::check),
    ("names", names::check),
    ("hygiene", hygiene::check),
];

/// Runs every rule over the workspace and prints what they find.
pub(crate) fn run() -> Result<Tally> {
    let tree = Tree::read()?;
    let mut tally = Tally::default();
    for (rule, findings) in check(&tree)? {
        match findings.len() {
            0 => tally.passed += 1,
            _ => tally.failed += 1,
        }
        for Finding { path, line, message } in findings {
            println!("{path}:{line}: {message} [{rule}]");
        }
    }
    Ok(tally)
}

/// Every rule with what it finds beyond the exemptions, and the list of exemptions as a rule itself.
fn check(tree: &Tree) -> Result<Vec<(&'static str, Vec<Finding>)>> {
    let mut exemptions = exemptions::read(tree)?;
    let mut results = Vec::new();
    for (rule, check) in RULES {
        let mut findings = check(tree)?;
        findings.retain(|finding| !exemptions.cover(rule, &finding.path));
        results.push((*rule, findings));
    }
    results.push(("exemptions", exemptions.idle()));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test` alone finds what `cargo xtask tidy` finds.
    #[test]
    fn the_workspace_is_tidy() {
        let tree = Tree::read().unwrap();
        let results = check(&tree).unwrap();
        let found: Vec<_> = results.iter().filter(|(_, findings)| !findings.is_empty()).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}
