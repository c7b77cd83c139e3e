//! Tests of configurations as a whole, by topic, and what they share.

mod keys;
mod listeners;
mod sources;
mod values;

use crate::{Config, Problem, Settings, load};

/// Reads a file with the constants as settings.
pub(super) fn read(text: &str) -> Result<Settings, Vec<Problem>> {
    let unstable = ("TIDEGATE_UNSTABLE_KEYS".to_owned(), "1".to_owned());
    read_with(text, std::iter::once(unstable))
}

fn read_as_user(text: &str) -> Result<Settings, Vec<Problem>> {
    read_with(text, std::iter::empty())
}

fn read_with(
    text: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Settings, Vec<Problem>> {
    let directory = harness::Directory::new().unwrap();
    let path = directory.write("tidegate.toml", text).unwrap();
    load(Some(&path), variables)
}

/// Returns the messages about a file, without its path.
pub(super) fn says(text: &str) -> Vec<String> {
    let problems = read(text).and_then(|settings| Config::from_settings(&settings));
    let problems = problems.unwrap_err();
    let line = |problem: &Problem| {
        let text = problem.to_string();
        text.split_once(".toml:").map_or_else(|| text.clone(), |(_, rest)| rest.to_owned())
    };
    problems.iter().map(line).collect()
}
