//! Unsafe code is in `edge/net` and in three modules of `core/primitives`. Every other crate root
//! forbids it, so that the compiler holds what this rule reads.

use super::Finding;
use super::source::{Source, line_of, words};
use crate::workspace::Tree;
use anyhow::Result;

const ROOM: &str = "edge/net/";
/// The modules of [`CRATE`] that allow it.
const FILES: [&str; 3] = [
    "core/primitives/src/memory.rs",
    "core/primitives/src/prefetch.rs",
    "core/primitives/src/words.rs",
];
/// Its root denies what the modules allow, since `forbid` cannot be lifted.
const CRATE: &str = "core/primitives/";

/// No `unsafe` elsewhere, and a lint in every crate root.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with(ROOM)) {
        let code = Source::new(&file.text).code;
        if !FILES.contains(&file.path.as_str()) {
            let places = words(&code, "unsafe").into_iter();
            let message =
                "unsafe is allowed in edge/net only: move it there behind a safe function";
            findings.extend(places.map(|at| Finding::new(&file.path, line_of(&code, at), message)));
        }
        if is_crate_root(&file.path) {
            findings.extend(missing_lint(&file.path, &code));
        }
    }
    Ok(findings)
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn missing_lint(path: &str, code: &str) -> Option<Finding> {
    let lint = match path.starts_with(CRATE) {
        true => "#![deny(unsafe_code)]",
        false => "#![forbid(unsafe_code)]",
    };
    (!code.contains(lint)).then(|| Finding::new(path, 1, format!("the crate root lacks {lint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn unsafe_has_its_places() {
        assert_eq!(count("edge/net/src/lib.rs", "unsafe {}"), 0);
        assert_eq!(count("core/primitives/src/memory.rs", "unsafe {}"), 0);
        assert_eq!(count("core/swarm/src/table.rs", "unsafe {}"), 1);
        assert_eq!(count("edge/front/src/udp.rs", "// unsafe\nunsafe_name();"), 0);
    }

    #[test]
    fn crate_roots_forbid_it() {
        assert_eq!(count("core/wire/src/lib.rs", "#![forbid(unsafe_code)]"), 0);
        assert_eq!(count("core/wire/src/lib.rs", "// #![forbid(unsafe_code)]"), 1);
        assert_eq!(count("core/primitives/src/lib.rs", "#![deny(unsafe_code)]"), 0);
        assert_eq!(count("core/wire/src/lib.rs", "#![deny(unsafe_code)]"), 1);
    }
}
