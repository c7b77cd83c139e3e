//! The lines of Rust of each crate, tests included: `budget.toml` has the most that each may have.
//!
//! A budget follows its crate down: one that leaves more room than [`SLACK`] is refused, so that lines that
//! were deleted do not come back unseen. Raising one is a line of the commit that needs it, with the reason.

use super::Finding;
use crate::tree::Tree;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const BUDGET: &str = "budget.toml";
/// Lines that a budget may leave unused: small changes need no line of `budget.toml`.
const SLACK: i64 = 100;

/// Every crate has a budget in lines, keeps it, and leaves at most [`SLACK`] of it unused.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let text = tree.file(BUDGET).map_or("", |file| &file.text);
    let budgets: toml::Table = text.parse().context(BUDGET)?;
    let lines = lines_by_crate(tree)?;
    let mut findings = Vec::new();
    for (folder, lines) in &lines {
        let message = match budgets.get(*folder).and_then(toml::Value::as_integer) {
            None => format!("{folder} has no budget: expected `\"{folder}\" = {lines}`"),
            Some(budget) if *lines > budget => format!(
                "{folder} has {lines} lines, {budget} are its budget: delete lines, or raise the \
                 budget with the reason"
            ),
            Some(budget) if *lines + SLACK < budget => {
                format!("{folder} has {lines} lines, {budget} are its budget: lower it")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(BUDGET, 0, message));
    }
    let unknown = budgets.keys().filter(|folder| !lines.contains_key(folder.as_str()));
    findings.extend(unknown.map(|folder| Finding::new(BUDGET, 0, format!("no crate at {folder}"))));
    Ok(findings)
}

/// Returns the lines of all Rust files of each crate. A file counts for the innermost crate around it.
fn lines_by_crate(tree: &Tree) -> Result<BTreeMap<&str, i64>> {
    let manifests = tree.with_extension("/Cargo.toml");
    let mut lines: BTreeMap<&str, i64> =
        manifests.filter_map(|file| Some((file.path.strip_suffix("/Cargo.toml")?, 0))).collect();
    for file in tree.rust() {
        let ancestors = file.path.match_indices('/').map(|(end, _)| &file.path[..end]);
        let folder = ancestors.rev().find(|folder| lines.contains_key(folder));
        let folder = folder.with_context(|| format!("{} belongs to no crate", file.path))?;
        *lines.entry(folder).or_default() += file.text.lines().count() as i64;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(budget: &str, lines: usize) -> Vec<String> {
        let code = "x();\n".repeat(lines);
        let files = [
            (BUDGET, budget),
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", &code),
            ("a/b/Cargo.toml", ""),
            ("a/b/src/lib.rs", "x();\n"),
        ];
        let findings = check(&Tree::of(&files)).unwrap();
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn holds_each_crate_to_its_budget() {
        let budget = "\"a\" = 300\n\"a/b\" = 1\n";
        assert_eq!(messages(budget, 300), [""; 0]);
        assert_eq!(messages(budget, 200), [""; 0]);
        assert!(messages(budget, 301)[0].starts_with("a has 301 lines, 300 are"));
        assert_eq!(messages(budget, 199), ["a has 199 lines, 300 are its budget: lower it"]);
    }

    #[test]
    fn finds_crates_without_a_budget_and_budgets_without_a_crate() {
        let expected = ["a/b has no budget: expected `\"a/b\" = 1`", "no crate at c"];
        assert_eq!(messages("a = 300\nc = 1", 300), expected);
    }
}
