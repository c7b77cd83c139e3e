//! Clients of the management API that are generated from its document, in the languages of most web sites. Each runs a
//! script of `testing/api`: it lists torrents, adds a key, and reads what has changed.

use crate::command::{command, output};
use crate::tracker::{self, TOKEN, address, escaped};
use crate::venv::GENERATORS;
use crate::workspace::{root, target};
use anyhow::{Context, Result, ensure};
use harness::{Tracker, http};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENT: &str = "edge/admin/src/api/openapi.json";
const TORRENT: [u8; 20] = *b"a torrent of clients";
const PRIVATE: &str = "[access]\nprivate = true\n";

/// A language with a generator and a script.
struct Language {
    name: &'static str,
    /// Generates a client from the document, in an empty folder.
    generate: fn(folder: &Path) -> Result<()>,
    /// Returns the command that runs the script with the client in that folder, without its arguments.
    script: fn(folder: &Path) -> Result<Command>,
}

const LANGUAGES: [Language; 2] = [
    Language { name: "Python", generate: generate_python, script: python },
    Language { name: "PHP", generate: generate_php, script: php },
];

/// Generates the clients, and runs each against a tracker of its own.
///
/// # Errors
///
/// Returns an error if a client cannot be generated, or does not do what its script says.
pub fn try_clients() -> Result<()> {
    GENERATORS.install()?;
    for language in LANGUAGES {
        try_client(&language).with_context(|| format!("the client in {}", language.name))?;
    }
    Ok(())
}

fn try_client(language: &Language) -> Result<()> {
    let folder = target().join(format!("client-{}-{}", std::process::id(), language.name));
    fs::create_dir_all(&folder)?;
    (language.generate)(&folder)?;
    let tracker = tracker::start_managed(&folder, PRIVATE)?;
    let lines = run_script(language, &folder, &tracker, "bob", 0)?;
    let [line] = &with_first_word(&lines, "key")[..] else {
        anyhow::bail!("expected a key, found {lines:?}");
    };
    let (id, key) = line.split_once(' ').context("expected number and key")?;
    ensure!(with_first_word(&lines, "torrent").is_empty(), "{lines:?}");
    ensure!(with_first_word(&lines, "changed") == [format!("{id} bob 0 0")], "{lines:?}");
    announce(&tracker, key, "&uploaded=0&event=started")?;
    announce(&tracker, key, "&uploaded=4096&event=completed")?;
    let expected = format!("{id} bob 4096 0");
    let what = "the totals of the key in the answers of the client";
    harness::wait_for(tracker::ANNOUNCE_MAX, what, || {
        let lines = run_script(language, &folder, &tracker, "", 0)?;
        let torrents = [format!("{} 1 0", TORRENT.map(|byte| format!("{byte:02x}")).concat())];
        Ok(with_first_word(&lines, "changed") == [expected.clone()]
            && with_first_word(&lines, "torrent") == torrents)
    })?;
    // Nothing has changed since a time to come.
    let lines = run_script(language, &folder, &tracker, "", 4_000_000_000)?;
    ensure!(with_first_word(&lines, "changed").is_empty(), "{lines:?}");
    tracker.stop()?;
    Ok(fs::remove_dir_all(folder)?)
}

fn announce(tracker: &Tracker, key: &str, more: &str) -> Result<()> {
    let hash = escaped(&TORRENT);
    let target = format!(
        "/{key}/announce?info_hash={hash}&peer_id=-GC0001-000000000000&port=7000&left=0{more}"
    );
    let response = http::get(address(tracker, "http")?, &target)?;
    let is_refused = http::contains(&response.body, "failure");
    ensure!(response.status == 200 && !is_refused, "refused: {}", response.text());
    Ok(())
}

/// Runs a script and returns the lines that it prints.
fn run_script(
    language: &Language,
    folder: &Path,
    tracker: &Tracker,
    new_key: &str,
    since: u64,
) -> Result<Vec<String>> {
    let mut script = (language.script)(folder)?;
    script.arg(format!("http://{}", address(tracker, "admin")?));
    script.args([TOKEN, new_key, &since.to_string()]);
    Ok(output(script)?.lines().map(str::to_owned).collect())
}

/// Returns the rest of each line that begins with this word.
fn with_first_word(lines: &[String], word: &str) -> Vec<String> {
    let rests = lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    rests.map(str::to_owned).collect()
}

fn generate_python(folder: &Path) -> Result<()> {
    let generator = GENERATORS.program("openapi-python-client")?;
    let package = package(folder).display().to_string();
    let words = [&generator, "generate", "--path", DOCUMENT, "--meta", "none"];
    // It prints that it leaves out plain text where JSON does the same.
    output(command(&[&words[..], &["--output-path", &package]].concat())).map(drop)
}

fn python(folder: &Path) -> Result<Command> {
    let python = GENERATORS.program("python3")?;
    let mut command = command(&[&python, "testing/api/client.py"]);
    command.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// The Python package in the folder of its client.
fn package(folder: &Path) -> PathBuf {
    folder.join("tidegate_api")
}

fn generate_php(folder: &Path) -> Result<()> {
    let generator = GENERATORS.program("openapi-generator-cli")?;
    let place = folder.join("php").display().to_string();
    let words = [&generator, "generate", "-i", DOCUMENT, "-g", "php", "-o", &place];
    // It prints a line for each of some 300 files.
    output(command(&[&words[..], &["--additional-properties", "invokerPackage=Tidegate"]].concat()))
        .map(drop)
}

fn php(folder: &Path) -> Result<Command> {
    let script = root().join("testing/api/client.php").display().to_string();
    let lib = folder.join("php/lib").display().to_string();
    Ok(command(&["php", &script, &lib]))
}
