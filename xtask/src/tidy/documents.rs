//! The documents that newcomers read first are short and complete.

use super::Finding;
use crate::tree::Tree;
use anyhow::Result;

const README: &str = "README.md";
const README_LINES_MAX: usize = 150;
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// README.md is short; ARCHITECTURE.md names every member of the workspace.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let text = |path| tree.file(path).map(|file| file.text.as_str());
    let mut findings = Vec::new();
    match text(README).map(|text| text.lines().count()) {
        None => findings.push(Finding::new(README, 0, "the file is missing")),
        Some(lines) if lines > README_LINES_MAX => {
            let message =
                format!("{lines} lines, of at most {README_LINES_MAX}: move details to docs/");
            findings.push(Finding::new(README, 0, message));
        }
        Some(_) => {}
    }
    let Some(architecture) = text(ARCHITECTURE) else {
        findings.push(Finding::new(ARCHITECTURE, 0, "the file is missing"));
        return Ok(findings);
    };
    let members = tree.members()?;
    let unnamed = members.iter().filter(|member| !architecture.contains(&member.folder));
    findings.extend(unnamed.map(|member| {
        Finding::new(ARCHITECTURE, 0, format!("{} is not mentioned", member.folder))
    }));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(readme: &str, architecture: &str) -> usize {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\nmembers = ['core/types']"),
            ("core/types/Cargo.toml", ""),
            (README, readme),
            (ARCHITECTURE, architecture),
        ]);
        check(&tree).unwrap().len()
    }

    #[test]
    fn passes_short_and_complete_documents() {
        assert_eq!(count(&"x\n".repeat(150), "`core/types`: the vocabulary"), 0);
    }

    #[test]
    fn finds_long_and_incomplete_documents() {
        assert_eq!(count(&"x\n".repeat(151), "core/wire"), 2);
        assert_eq!(check(&Tree::of(&[])).unwrap().len(), 2);
    }
}
