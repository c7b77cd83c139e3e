//! The configuration: a file, variables of the environment and values from the API. Every mistake is a
//! sentence with its place, and what `config show` prints reads back as the same settings.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value as Json;

use ::config::{Config, Problem, Settings, changes, load, show};

/// Checks three parts, separated by NUL bytes: a file; variables, `NAME=VALUE` per line; and a JSON
/// object of values set through the API.
pub fn check(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let variables = variables(parts.next().unwrap_or_default());
    match load_text(file, &variables) {
        Ok(settings) => {
            check_settings(&settings);
            let overrides = parts.next().map(serde_json::from_slice::<Json>);
            if let Some(Ok(Json::Object(values))) = overrides {
                let values: Vec<_> = values.into_iter().collect();
                let mut changed = settings.clone();
                check_problems(&changed.apply_overrides(&values));
                check_settings(&changed);
                let _ = changes(&settings, &changed);
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            check_problems(&problems);
        }
    }
}

fn variables(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    // That one is for tests: `config show` does not print what it makes settable.
    let pairs = pairs.filter(|(name, _)| *name != "UNSTABLE_KEYS");
    pairs.map(|(name, value)| (format!("TIDEGATE_{name}"), value.to_owned())).collect()
}

/// Loads `text` as the tracker does: from a file.
fn load_text(text: &[u8], variables: &[(String, String)]) -> Result<Settings, Vec<Problem>> {
    let path = file_path();
    fs::write(&path, text).unwrap();
    let settings = load(Some(&path), variables.iter().cloned());
    fs::remove_file(&path).unwrap();
    settings
}

/// Returns a path that no other thread or process uses.
fn file_path() -> PathBuf {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    // In memory, where that exists.
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("tidegate-fuzz-{}-{number}.toml", std::process::id()))
}

fn check_problems(problems: &[Problem]) {
    for text in problems.iter().map(Problem::to_string) {
        assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
    }
}

fn check_settings(settings: &Settings) {
    if let Err(problems) = Config::from_settings(settings) {
        assert!(!problems.is_empty());
        check_problems(&problems);
    }
    let shown = show(settings);
    let again = load_text(shown.as_bytes(), &[]).unwrap_or_else(|problems| {
        panic!("{problems:?} in\n{shown}");
    });
    assert_eq!(changes(settings, &again), (vec![], vec![]), "{shown}");
}
