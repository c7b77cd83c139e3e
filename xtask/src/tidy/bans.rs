//! What core may not do: look at the clock, draw entropy, touch files, sockets, threads, the
//! environment, or talk. All of that comes in as an argument, or is the edge's business.

use super::Finding;
use super::source::{Source, line_of, words};
use crate::workspace::Tree;
use anyhow::Result;

/// What may not be named, and what to do instead.
const BANS: &[(&str, &str)] = &[
    ("Instant::now", "take `now: Tick`"),
    ("SystemTime", "take `now: Tick`"),
    ("rand::", "take `random: &mut Random`, seeded by the app"),
    ("getrandom", "take the bytes: entropy comes from the app"),
    ("RandomState", "take the key: entropy comes from the app"),
    ("thread::spawn", "let the app start threads"),
    ("thread::scope", "let the app start threads"),
    ("thread::sleep", "take `now: Tick` and be called again"),
    ("UdpSocket", "take bytes: sockets live in edge/net"),
    ("TcpStream", "take bytes: sockets live in edge/net"),
    ("TcpListener", "take bytes: sockets live in edge/net"),
    ("std::fs", "take `impl BufRead`: the app opens files"),
    ("fs::", "take `impl BufRead`: the app opens files"),
    ("std::env", "take a plain option struct: the app reads the configuration"),
    ("env::var", "take a plain option struct: the app reads the configuration"),
    ("std::process", "give back an error: only the app ends the process"),
    ("println!", "give back a value, or count: core does not talk"),
    ("print!", "give back a value, or count: core does not talk"),
    ("eprintln!", "give back a value, or count: core does not talk"),
    ("eprint!", "give back a value, or count: core does not talk"),
    ("tracing::", "count it in `counters`: core does not log"),
    ("log::", "count it in `counters`: core does not log"),
];

/// Core's code, its tests aside, names none of them.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| is_core(&file.path)) {
        let code = Source::new(&file.text).code_without_tests();
        for (banned, instead) in BANS {
            for at in words(&code, banned) {
                let message = format!("core may not use `{banned}`: {instead}");
                findings.push(Finding::new(&file.path, line_of(&code, at), message));
            }
        }
    }
    findings.dedup_by_key(|finding| (finding.path.clone(), finding.line));
    Ok(findings)
}

fn is_core(path: &str) -> bool {
    path.starts_with("core/") && path.contains("/src/") && !path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Tree::of(&[(path, text)])).unwrap();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn core_may_not() {
        for bad in [
            "let now = std::time::Instant::now();",
            "use std::net::{IpAddr, UdpSocket};",
            "eprintln!(\"oh\");",
            "let seed = rand::random();",
            "let text = std::fs::read(path);",
        ] {
            assert_eq!(lines("core/wire/src/a.rs", &format!("\n{bad}")), [2], "{bad}");
        }
    }

    #[test]
    fn others_and_tests_and_words_may() {
        let call = "let now = Instant::now();";
        assert_eq!(lines("edge/net/src/a.rs", call), [0; 0]);
        assert_eq!(lines("core/wire/src/tests.rs", call), [0; 0]);
        let inline = format!("#[cfg(test)]\nmod tests {{ {call} }}");
        assert_eq!(lines("core/wire/src/a.rs", &inline), [0; 0]);
        assert_eq!(lines("core/wire/src/a.rs", "// Instant::now\ncatalog::x; my_rand::y;"), [0; 0]);
    }
}
