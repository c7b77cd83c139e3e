//! Citations: `//= bepNN#id` comments.

use crate::tree::{File, Tree};

/// A line that claims to meet a requirement, or a test that claims to prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Citation {
    pub(super) id: String,
    /// `path:line`.
    pub(super) place: String,
    pub(super) is_test: bool,
}

/// Returns the citations of all Rust files.
pub(super) fn find(tree: &Tree) -> Vec<Citation> {
    tree.rust().flat_map(find_in).collect()
}

/// Returns the citations of a file. They form blocks of `//=` lines; `type=test` applies to its whole
/// block.
fn find_in(file: &File) -> Vec<Citation> {
    let mut found: Vec<Citation> = Vec::new();
    let mut block = 0;
    for (line, text) in (1..).zip(file.text.lines()) {
        let Some(text) = text.trim().strip_prefix("//= ") else {
            block = found.len();
            continue;
        };
        if text == "type=test" {
            found.iter_mut().skip(block).for_each(|citation| citation.is_test = true);
        } else {
            let place = format!("{}:{line}", file.path);
            found.push(Citation { id: text.to_owned(), place, is_test: false });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_either_code_or_test() {
        let text =
            "//= bep1#a\nx();\n    //= bep1#b\n    //= bep1#c\n    //= type=test\n    #[test]\n";
        let found = find(&Tree::of(&[("a.rs", text)]));
        let found: Vec<_> = found.iter().map(|c| (&*c.id, &*c.place, c.is_test)).collect();
        let expected =
            [("bep1#a", "a.rs:1", false), ("bep1#b", "a.rs:3", true), ("bep1#c", "a.rs:4", true)];
        assert_eq!(found, expected);
    }
}
