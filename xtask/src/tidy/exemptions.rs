//! `xtask/tidy.toml`: what is knowingly left untidy, for now.

use super::Finding;
use crate::workspace::Tree;
use anyhow::{Context, Result, ensure};

const PATH: &str = "xtask/tidy.toml";

/// The list, and which of its lines were needed.
#[derive(Debug, Default)]
pub(super) struct Exemptions {
    lines: Vec<Exemption>,
}

#[derive(Debug)]
struct Exemption {
    rule: String,
    path: String,
    used: bool,
}

/// Reads the list: `[[exempt]]` tables with `rule`, `path` and `why`.
pub(super) fn read(tree: &Tree) -> Result<Exemptions> {
    let Some(file) = tree.file(PATH) else { return Ok(Exemptions::default()) };
    let table: toml::Table = file.text.parse().context(PATH)?;
    let list = table.get("exempt").and_then(toml::Value::as_array);
    let mut lines = Vec::new();
    for entry in list.into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        ensure!(!text("why").is_empty(), "{PATH}: an exemption without `why`: {entry:?}");
        let (rule, path) = (text("rule").to_owned(), text("path").to_owned());
        lines.push(Exemption { rule, path, used: false });
    }
    Ok(Exemptions { lines })
}

impl Exemptions {
    /// Whether this rule does not hold for this file.
    pub(super) fn cover(&mut self, rule: &str, path: &str) -> bool {
        let covers = |line: &&mut Exemption| line.rule == rule && line.path == path;
        match self.lines.iter_mut().find(covers) {
            Some(line) => line.used = true,
            None => return false,
        }
        true
    }

    /// Lines that covered nothing.
    pub(super) fn idle(&self) -> Vec<Finding> {
        let idle = self.lines.iter().filter(|line| !line.used);
        idle.map(|Exemption { rule, path, .. }| {
            Finding::new(PATH, 0, format!("{path} keeps {rule} by now: remove its exemption"))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exemption_covers_one_rule_in_one_file_and_must_be_needed() {
        let text = "[[exempt]]\nrule = 'bans'\npath = 'a.rs'\nwhy = 'old'\n";
        let mut list = read(&Tree::of(&[(PATH, text)])).unwrap();
        assert_eq!(list.idle().len(), 1);
        assert!(!list.cover("bans", "b.rs"));
        assert!(!list.cover("links", "a.rs"));
        assert!(list.cover("bans", "a.rs"));
        assert!(list.idle().is_empty());
    }

    #[test]
    fn an_exemption_needs_a_reason() {
        let text = "[[exempt]]\nrule = 'bans'\npath = 'a.rs'\n";
        assert!(read(&Tree::of(&[(PATH, text)])).is_err());
    }
}
