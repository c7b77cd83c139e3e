//! The programs of a release: linked statically with musl, by zig, which compiles C for every architecture.

use super::{Architecture, PROGRAMS, Release};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use trials::command::{command, output, run};
use trials::venv::RELEASE_TOOLS;
use trials::workspace::root;

/// Builds the programs of an architecture.
pub(super) fn build(release: &Release, architecture: Architecture) -> Result<()> {
    let Architecture { target, .. } = architecture;
    let zigbuild = RELEASE_TOOLS.program("cargo-zigbuild")?;
    add_target(target)?;
    let mut cargo = command(&[&zigbuild, "zigbuild", "--locked", "--profile", "dist"]);
    cargo.args(PROGRAMS.iter().map(|name| format!("--package={name}")));
    cargo.args(["--target", target, "--target-dir"]).arg(&release.work);
    let remaps = remaps(&release.work)?;
    let flags =
        remaps.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\x1f"));
    let flags =
        remaps.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    let name = format!("CFLAGS_{}", target.replace('-', "_"));
    cargo.env(name, flags.collect::<Vec<_>>().join(" "));
    cargo
        .env("CARGO_ZIGBUILD_ZIG_PATH", zig()?)
        .env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string());
    // Packages have no debug information: it would triple them.
    cargo.envs([
        ("CARGO_PROFILE_DIST_DEBUG", "false"),
        ("CARGO_PROFILE_DIST_SPLIT_DEBUGINFO", "off"),
        ("CARGO_PROFILE_DIST_STRIP", "symbols"),
        ("CARGO_INCREMENTAL", "0"),
    ]);
    cargo.env("TIDEGATE_COMMIT", &release.commit.id);
    cargo.env("TIDEGATE_COMMIT_DATE", &release.commit.date);
    run(cargo)?;
    PROGRAMS.iter().try_for_each(|name| check(release, &release.program(architecture, name)))?;
    if architecture.is_native() { check_version(release, architecture) } else { Ok(()) }
}

/// Checks that a program is static and has no path of this machine.
fn check(release: &Release, path: &Path) -> Result<()> {
    let bytes = fs::read(path)?;
    let interpreter = b"/ld-musl-";
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    ensure!(!has(interpreter), "{} is not linked statically", path.display());
    for (from, _) in remaps(&release.work)? {
        let from = from.display().to_string();
        ensure!(!has(from.as_bytes()), "{} contains the path {from}", path.display());
    }
    Ok(())
}

/// Checks that the tracker names the commit and the version that are released.
fn check_version(release: &Release, architecture: Architecture) -> Result<()> {
    let program = release.program(architecture, "tidegate").display().to_string();
    let version = output(command(&[&program, "version", "--json"]))?;
    let version: serde_json::Value = serde_json::from_str(&version)?;
    ensure!(
        version["commit"] == release.commit.id.as_str(),
        "the program names another commit: {version}"
    );
    ensure!(
        version["version"] == release.version.as_str(),
        "the program has another version: {version}"
    );
    Ok(())
}

/// Returns folders of this machine that the program must not name, and what stands for them. Of several that fit, the
/// last one is used.
fn remaps(work: &Path) -> Result<Vec<(PathBuf, String)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let sysroot = output(command(&["rustc", "--print", "sysroot"]))?;
    let mut remaps = vec![
        (root(), "/tidegate".to_owned()),
        (home.clone(), "/cargo".to_owned()),
        (PathBuf::from(sysroot.trim()), "/rust".to_owned()),
        (work.to_owned(), "/target".to_owned()),
    ];
    // The folder of a registry has the name of its host.
    let sources = fs::read_dir(home.join("registry/src")).context("no crates are downloaded")?;
    for source in sources {
        remaps.push((source?.path(), "/cargo/registry".to_owned()));
    }
    Ok(remaps)
}

/// Adds Rust's library for a target by rustup, unless it is there.
fn add_target(target: &str) -> Result<()> {
    let folder = output(command(&["rustc", "--print", "target-libdir", "--target", target]))?;
    if !Path::new(folder.trim()).is_dir() {
        run(command(&["timeout", "300", "rustup", "target", "add", target]))?;
    }
    Ok(())
}

/// Returns the path of zig in the package of PyPI.
fn zig() -> Result<String> {
    let python = RELEASE_TOOLS.program("python3")?;
    let script =
        "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))";
    Ok(output(command(&[&python, "-c", script]))?.trim().to_owned())
}
