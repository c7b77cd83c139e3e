//! Tips for arguments that other programs have and tidegate does not.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Other programs' options for addresses and ports.
const OF_ADDRESSES: [&str; 7] =
    ["--port", "-p", "--listen", "--address", "--addr", "--bind", "--host"];
/// Other programs' options for the directory of their data, and ours before the command.
const OF_STATE: [&str; 6] =
    ["--state-dir", "--state", "--data-dir", "--datadir", "--memory", "--in-memory"];
/// Other programs' options for the configuration file.
const OF_FILE: [&str; 4] = ["-c", "-f", "--conf", "--config-file"];

const ADDRESSES: &str = "addresses and ports are settings: listen in [udp] and [http] of the configuration, or \
                         TIDEGATE_UDP__LISTEN=0.0.0.0:6969 and TIDEGATE_HTTP__LISTEN=0.0.0.0:6969 in the environment";
const STATE: &str = "'tidegate serve --state DIR' names the directory of the state, and 'tidegate serve --memory' keeps \
                     nothing";
const FILE: &str = "'--config FILE' names the configuration file";

/// Adds a tip to an error of the command line, if one is known. It replaces similar names that clap has found.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    if !is_about_tracker(&error) {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(kind) else { return error };
    let Some(tip) = tip(word) else { return error };
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Returns whether an error is about the tracker or its configuration. Other commands are clients, whose options mean
/// something else.
fn is_about_tracker(error: &clap::Error) -> bool {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return false };
    // "Usage: tidegate COMMAND …", or what options there are if the command is missing.
    let usage = usage.to_string();
    let command = usage.split_whitespace().nth(2).unwrap_or_default();
    let is_command = command.starts_with(|first: char| first.is_ascii_lowercase());
    !is_command || ["serve", "config"].contains(&command)
}

/// Returns the tip for a word that the command line does not know.
fn tip(word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or_default();
    let path = Path::new(word);
    let is_file = || path.extension().is_some_and(|end| end == "toml") || path.is_file();
    if OF_ADDRESSES.contains(&name) {
        Some(ADDRESSES)
    } else if OF_STATE.contains(&name) {
        Some(STATE)
    } else if OF_FILE.contains(&name) || is_file() {
        Some(FILE)
    } else {
        None
    }
}
