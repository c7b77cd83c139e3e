//! Installs other trackers from packages, for `tidegate compare`: `cargo xtask rivals [NAME...]
//! [--into FOLDER]`. `bench/trackers.toml` lists them and their packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{Tally, command, run};
use crate::setup;
use crate::workspace::root;

const DEFINITIONS: &str = "bench/trackers.toml";

/// How to install a tracker.
#[derive(Debug, Default, PartialEq)]
struct Rival {
    name: String,
    /// For trackers without a package: what the path given to `tidegate compare` must be.
    by_path: String,
    /// Arguments for each of [`INSTALLERS`].
    words: [Vec<String>; INSTALLERS.len()],
}

/// In this order, because other packages may need Debian's to build.
const INSTALLERS: [&str; 4] = ["debian", "cargo", "npm", "pypi"];

/// Installs the named trackers, or all. If one fails, the others are still installed.
pub(crate) fn install(arguments: &[&str]) -> Result<Tally> {
    let (names, folder) = parse(arguments)?;
    let text = fs::read_to_string(root().join(DEFINITIONS)).context(DEFINITIONS)?;
    let rivals = read(&text)?;
    if let Some(name) = names.iter().find(|name| rivals.iter().all(|rival| rival.name != **name)) {
        let all: Vec<_> = rivals.iter().map(|rival| &*rival.name).collect();
        bail!("unknown tracker {name}: expected one of {}", all.join(", "));
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut tally = Tally::default();
    for rival in rivals.iter().filter(|rival| names.is_empty() || names.contains(&&*rival.name)) {
        if !rival.by_path.is_empty() {
            let Rival { name, by_path, .. } = rival;
            println!(
                "{name}: has no package; use `tidegate compare --program {name}=PATH`, {by_path}"
            );
            continue;
        }
        match rival.install(&folder) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                eprintln!("{}: {error:#}", rival.name);
                tally.failed += 1;
            }
        }
    }
    println!("installed: {}; tidegate compare --rivals {}", tally.passed, folder.display());
    Ok(tally)
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(Vec<&'a str>, PathBuf)> {
    let (mut names, mut folder) = (Vec::new(), root().join("target/rivals"));
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match *word {
            "--into" => {
                folder = std::path::absolute(words.next().context("--into needs a folder")?)?
            }
            option if option.starts_with('-') => {
                bail!("unknown option {option}: expected --into FOLDER")
            }
            name => names.push(name),
        }
    }
    Ok((names, folder))
}

/// Parses the definitions. Returns the trackers and TLS proxies that can be installed.
fn read(text: &str) -> Result<Vec<Rival>> {
    let table: toml::Table = text.parse().context(DEFINITIONS)?;
    let trackers = table.get("tracker").and_then(toml::Value::as_array);
    let all = trackers.into_iter().flatten().chain(table.get("front"));
    let mut rivals = Vec::new();
    for entry in all {
        let name =
            entry.get("name").and_then(toml::Value::as_str).context("a tracker without name")?;
        let Some(install) = entry.get("install") else { continue };
        let words = |key: &str| -> Result<Vec<String>> {
            let list = install.get(key).and_then(toml::Value::as_array);
            let words = list.into_iter().flatten().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<_>>().with_context(|| {
                format!("{DEFINITIONS}: {name}: {key}: expected a list of strings")
            })
        };
        let mut rival = Rival { name: name.to_owned(), ..Rival::default() };
        for (words_of, key) in rival.words.iter_mut().zip(INSTALLERS) {
            *words_of = words(key)?;
        }
        let by_path = install.get("by_path").and_then(toml::Value::as_str);
        by_path.unwrap_or_default().clone_into(&mut rival.by_path);
        let has_words = rival.words.iter().any(|words| !words.is_empty());
        ensure!(
            has_words != by_path.is_some(),
            "{DEFINITIONS}: {name}: expected either packages or `by_path`"
        );
        rivals.push(rival);
    }
    Ok(rivals)
}

impl Rival {
    fn install(&self, folder: &Path) -> Result<()> {
        for (words, installer) in self.words.iter().zip(INSTALLERS) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if words.is_empty() {
                continue;
            }
            if installer == "debian" {
                setup::install_packages(&words)?;
                continue;
            }
            let start: &[&str] = match installer {
                "cargo" => &["cargo", "install", "--root"],
                "npm" => &["npm", "install", "--no-audit", "--no-fund", "--prefix"],
                _ => &["python3", "-m", "pip", "install", "--prefix"],
            };
            let mut command = command(start);
            // Do not build in our own target folder.
            command.env_remove("CARGO_TARGET_DIR").arg(folder).args(&words);
            run(command)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_repositorys_definitions() {
        let text = fs::read_to_string(root().join(DEFINITIONS)).unwrap();
        let rivals = read(&text).unwrap();
        let find = |name: &str| rivals.iter().find(|rival| rival.name == name).unwrap();
        assert_eq!(find("opentracker").words[0], ["opentracker"]);
        assert!(find("aquatic_http").words[1][0].starts_with("aquatic_http@"));
        assert!(find("bittorrent-tracker").words[2][0].starts_with("bittorrent-tracker@"));
        assert!(!find("chihaya").by_path.is_empty());
        assert_eq!(find("hitch").words[0], ["hitch"]);
        assert!(rivals.iter().all(|rival| rival.name != "tidegate"));
    }

    #[test]
    fn rejects_invalid_definitions() {
        let read =
            |install: &str| read(&format!("[[tracker]]\nname = 'a'\n[tracker.install]\n{install}"));
        assert!(read("cargo = ['x']").is_ok() && read("by_path = 'x'").is_ok());
        for bad in ["", "cargo = [1]", "cargo = ['x']\nby_path = 'y'", "cargo = 'x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(parse(&["--onto", "x"]).is_err() && parse(&["--into"]).is_err());
        let (names, folder) = parse(&["a", "--into", "/x", "b"]).unwrap();
        assert_eq!((names, folder), (vec!["a", "b"], PathBuf::from("/x")));
    }
}
