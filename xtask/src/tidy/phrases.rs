//! Phrases that may not come back: English that reads as translated. CONTRIBUTING.md describes the
//! style; this rule holds the part of it that a list can hold.

use super::Finding;
use crate::tree::{File, Tree};
use anyhow::Result;

/// The phrases, and what to write instead. Where one begins with a capital letter, upper and lower case
/// differ.
const PHRASES: &[(&str, &str)] = &[
    ("nobody", "name the subject: `no client`, `no user`"),
    ("whoever", "name the subject: `clients that`, `the caller`"),
    ("Who", "start the sentence with its subject: `Banned addresses are not served`"),
    ("is due", "say `expected X, found Y`, `must be X`, or when it happens"),
    ("are due", "say `expected X, found Y`, `must be X`, or when it happens"),
    ("whichever it is", "leave it out"),
    ("is said", "name the subject: `returns`, `logs`, `says`"),
    ("are said", "name the subject: `returns`, `logs`, `says`"),
    ("is told", "say `receives`, `is notified of`, or what is sent"),
    ("are told", "say `receive`, `are notified of`, or what is sent"),
    ("believed", "say `trusted`, `verified` or `accepted`"),
    ("so many", "say the number, or `this many`"),
    ("no more than that", "leave it out"),
    ("comes of it", "say `results`, or name the result"),
    ("came of it", "say `resulted`, or name the result"),
    ("hears of", "say `learns about`, or `receives`"),
    ("of whatever kind", "say `any`"),
    ("for want of", "say `because there is no`"),
    ("lest", "say `so that ... not`"),
    ("goes on", "say `continues`"),
    ("one likes", "say `any number of`"),
    ("has it that", "say `requires that`"),
    ("TODO", "do it, or open an issue: issues are not forgotten"),
    ("FIXME", "do it, or open an issue: issues are not forgotten"),
    ("XXX", "do it, or open an issue: issues are not forgotten"),
    ("HACK", "do it, or open an issue: issues are not forgotten"),
];

/// Files with prose.
const ENDINGS: &[&str] = &[
    ".rs", ".md", ".toml", ".yml", ".yaml", ".json", ".py", ".sh", ".js", ".mjs", ".html", ".css",
    ".service", ".socket", ".conf", ".scn",
];

/// Data, history, other authors' texts, and the lists of phrases and words themselves.
const EXCLUDED: &[&str] = &[
    "CHANGELOG.md",
    "bench/record/",
    "fuzz/corpus/",
    "testing/clients/web/package-lock.json",
    "xtask/src/tidy/heads.rs",
    "xtask/src/tidy/phrases.rs",
];

/// The system user of that name is not a phrase.
const USER: &str = "user nobody";

/// Texts are free of the phrases: documents, and everything in source files.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let has_prose = |file: &&File| {
        ENDINGS.iter().any(|end| file.path.ends_with(end))
            && !EXCLUDED.iter().any(|start| file.path.starts_with(start))
    };
    Ok(tree.files.iter().filter(has_prose).flat_map(check_file).collect())
}

fn check_file(File { path, text, .. }: &File) -> Vec<Finding> {
    let text = &text.replace(USER, "user");
    // Most texts contain no phrase. Searching for the longest word of each finds that out quickly.
    let lower = text.to_ascii_lowercase();
    let is_candidate = |phrase: &str| {
        let longest = phrase.split(' ').max_by_key(|word| word.len()).unwrap_or(phrase);
        lower.contains(&longest.to_ascii_lowercase())
    };
    let mut phrases = PHRASES.iter().filter(|(phrase, _)| is_candidate(phrase)).peekable();
    if phrases.peek().is_none() {
        return Vec::new();
    }
    let words = words(text);
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let mut findings = Vec::new();
    for (phrase, instead) in phrases {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        let matches = words.windows(phrase.len()).filter(|words| is_phrase(words, &phrase));
        findings.extend(matches.map(|words| {
            let message = format!("\"{}\" is not plain English: {instead}", phrase.join(" "));
            Finding::new(path, line_of(words[0].at), message)
        }));
    }
    findings
}

/// A word of a text, without the punctuation around it.
struct Word<'a> {
    at: usize,
    text: &'a str,
    /// True if punctuation follows, so that a phrase cannot continue.
    is_last: bool,
}

/// Splits a text at whitespace. Comment markers are not words, so that phrases may wrap; neither is
/// anything that begins as code does, with a backtick.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for token in text.split_whitespace() {
        // The byte offset of the token: it is a slice of the text.
        let at = token.as_ptr().addr() - text.as_ptr().addr();
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        if !word.is_empty() && !token.starts_with('`') {
            let is_last = !token.ends_with(char::is_alphanumeric);
            words.push(Word { at, text: word, is_last });
        }
    }
    words
}

fn is_phrase(words: &[Word<'_>], phrase: &[&str]) -> bool {
    let same = |(word, expected): (&Word<'_>, &&str)| match expected.starts_with(char::is_uppercase)
    {
        true => word.text == *expected,
        false => word.text.eq_ignore_ascii_case(expected),
    };
    let is_unbroken = words.split_last().is_some_and(|(_, words)| !words.iter().any(|w| w.is_last));
    is_unbroken && words.iter().zip(phrase).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Tree::of(&[(path, text)])).unwrap();
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_phrases_in_comments_literals_and_documents() {
        assert_eq!(lines("a.rs", "\n/// Nobody, that is.\nfn f() {}"), [2]);
        assert_eq!(lines("a.rs", "fn f() { g(\"a list is due\") }"), [1]);
        assert_eq!(lines("a.md", "x\n\nWho asks is told.\n"), [3, 3]);
        assert_eq!(lines("a.toml", "# so\n# many\n"), [1]);
        assert_eq!(lines("a.py", "x\n# TODO: later\n"), [2]);
    }

    #[test]
    fn passes_other_words() {
        assert_eq!(
            lines("a.rs", "// The user `nobody`. Those who ask. So xxx. tracker.user nobody"),
            [0; 0]
        );
        assert_eq!(lines("a.md", "It is. Due dates follow; blest be so, many."), [0; 0]);
        assert_eq!(lines("CHANGELOG.md", "nobody"), [0; 0]);
        assert_eq!(lines("a.bin", "nobody"), [0; 0]);
    }
}
