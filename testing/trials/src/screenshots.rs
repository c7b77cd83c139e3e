//! Pictures of every page of the dashboard, wide and narrow, light and dark, in states that a real tracker is in:
//! busy, with a full disk, and nodes of a cluster during a partition.
//!
//! All of it runs in a network without a route out, as the tests with real clients do.

mod scenes;

use crate::clients::namespace;
use crate::command::{command, run as run_command};
use crate::debian;
use crate::workspace::{root, target};
use anyhow::{Context, Result, bail, ensure};
use scenes::SCENES;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Pictures of the documentation, and which of those taken they are.
const PICTURES: [(&str, &str); 6] = [
    ("dashboard", "lead-wide-light-busy"),
    ("dashboard-dark", "overview-wall-dark-busy"),
    ("dashboard-phone", "lead-narrow-dark-busy"),
    ("dashboard-torrent", "torrent-wide-light-busy"),
    ("dashboard-broken", "overview-wide-light-disk-full"),
    ("dashboard-partition", "nodes-wide-light-partition"),
];

/// Takes the pictures of these scenes, or of all, and writes them to `target/screenshots`. The word `--docs` also
/// copies the best to `docs/images`.
///
/// # Errors
///
/// Returns an error if there is no such scene, or one fails.
pub fn run(words: &[&str]) -> Result<()> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let known = || SCENES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    if let Some(name) = names.iter().find(|name| !known().contains(name)) {
        bail!("no scene {name:?} among {:?}", known());
    }
    let folder = target().join("screenshots");
    fs::create_dir_all(&folder)?;
    for (name, _) in SCENES.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        let at = target().join(format!("screenshots-{name}-{}", std::process::id()));
        fs::create_dir_all(&at)?;
        let mut inside = namespace(&std::env::current_exe()?);
        inside.args(["screenshots-scene", name]).args([&folder, &at]);
        run_command(inside).with_context(|| format!("{name}: see {}", at.display()))?;
        fs::remove_dir_all(&at)?;
    }
    if options.contains(&"--docs") {
        copy_to_docs(&folder)?;
    }
    println!("{}", folder.display());
    Ok(())
}

/// Takes the pictures of one scene. This process must be the first of its namespaces.
///
/// # Errors
///
/// Returns an error if the scene fails.
pub fn run_scene(name: &str, folder: &Path, at: &Path) -> Result<()> {
    let (_, play) = SCENES.iter().find(|(known, _)| *known == name).context("no such scene")?;
    play(folder, at)
}

/// Takes pictures of a dashboard: of these pages, or of all.
fn take(folder: &Path, admin: &str, state: &str, pages: &[&str]) -> Result<()> {
    let mut script = Command::new("node");
    script.arg(root().join("testing/clients/web/screenshots.mjs")).args([admin]).arg(folder);
    script.arg(state).args(pages).env("TIDEGATE_ADMIN_TOKEN", crate::tracker::TOKEN);
    run_command(script)
}

/// Copies the pictures of the documentation, with colours reduced to 256.
fn copy_to_docs(folder: &Path) -> Result<()> {
    if run_command(command(&["pngquant", "--version"])).is_err() {
        debian::install(&["pngquant"])?;
    }
    for (name, taken) in PICTURES {
        let from = folder.join(format!("{taken}.png"));
        ensure!(from.is_file(), "{} is missing: take all scenes", from.display());
        let mut pngquant = command(&["pngquant", "--force", "--strip", "--speed", "1", "--output"]);
        pngquant.arg(root().join(format!("docs/images/{name}.png"))).arg(from);
        run_command(pngquant)?;
    }
    Ok(())
}
