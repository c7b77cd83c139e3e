//! Fuzzing: searching for new inputs, and packing the corpora, which the tests of `fuzz` replay.

mod minimize;
mod nightly;

pub use minimize::minimize;
pub use nightly::nightly;

use crate::archive;
use crate::command::{command, output, run};
use crate::workspace::root;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// SQLite, compiled as several units, has constants of one name.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "detect_odr_violation=0");

/// Searches for new inputs by cargo-fuzz on nightly, for 60 s by default. It starts from the committed
/// corpus; new interesting inputs are stored in `fuzz/target`. No test depends on it, so the nightly toolchain is not
/// pinned.
///
/// # Errors
///
/// Fails without a nightly toolchain and cargo-fuzz, and if the target finds a defect.
pub fn search(name: &str, seconds: Option<u32>) -> Result<()> {
    let mut program = Program::build()?.search(name, seconds.unwrap_or(60))?;
    program.arg("-print_final_stats=1");
    run(program)?;
    Ok(())
}

/// The program of all targets.
struct Program(PathBuf);

impl Program {
    fn build() -> Result<Self> {
        if output(command(&["cargo", "+nightly", "fuzz", "--version"])).is_err() {
            bail!(
                "fuzzing needs a nightly toolchain and cargo-fuzz: \
                 rustup toolchain install nightly && cargo install cargo-fuzz@0.13.2 --locked"
            );
        }
        let mut build = command(&[
            "cargo",
            "+nightly",
            "fuzz",
            "build",
            "--target-dir",
            "fuzz/target",
            "--features",
            "search",
        ]);
        build.env(SANITIZER.0, SANITIZER.1);
        run(build)?;
        let version = output(command(&["rustc", "+nightly", "-vV"]))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("expected a line `host:` of rustc -vV")?;
        Ok(Self(root().join("fuzz/target").join(host).join("release/parser")))
    }

    /// Returns the program for a target, which fails if an input takes long or much memory.
    fn command(&self, name: &str) -> Result<Command> {
        let artifacts = format!("fuzz/target/artifacts/{name}/");
        fs::create_dir_all(root().join(&artifacts))?;
        let mut command = command(&[&self.0.display().to_string()]);
        command.env("TIDEGATE_FUZZ", name);
        command.arg(format!("-artifact_prefix={artifacts}"));
        // Wall time; all targets share the processors.
        command.args(["-timeout=300", "-report_slow_units=120", "-rss_limit_mb=3000"]);
        command.env(SANITIZER.0, SANITIZER.1);
        Ok(command)
    }

    /// Returns a search for new inputs.
    fn search(&self, name: &str, seconds: u32) -> Result<Command> {
        let mut command = self.command(name)?;
        command.arg(format!("-max_total_time={seconds}"));
        let words = format!("fuzz/dictionaries/{name}.dict");
        if root().join(&words).is_file() {
            command.arg(format!("-dict={words}"));
        }
        fs::create_dir_all(root().join(found(name)))?;
        command.args([found(name), unpack(name)?]);
        Ok(command)
    }
}

/// Where inputs that a search finds are stored.
fn found(name: &str) -> String {
    format!("fuzz/target/corpus/{name}")
}

/// Returns the archive with the committed inputs of a target.
fn committed(name: &str) -> PathBuf {
    root().join(format!("fuzz/corpus/{name}.tar"))
}

/// Unpacks the committed inputs of a target, and returns their folder.
fn unpack(name: &str) -> Result<String> {
    let folder = format!("fuzz/target/committed/{name}");
    archive::unpack(&committed(name), &root().join(&folder))?;
    Ok(folder)
}

/// Packs the files of a folder as the committed inputs of a target.
fn pack(name: &str, folder: &str) -> Result<()> {
    archive::tar_plain(&root().join(folder), &committed(name), 0, archive::OWNED_BY_ROOT)
}

/// Adds files to the committed inputs of a target, under their names.
///
/// # Errors
///
/// Fails if there is no such target or file.
pub fn add(name: &str, files: &[&str]) -> Result<()> {
    ensure!(!files.is_empty(), "expected `fuzz add NAME FILE...`");
    let folder = unpack(name)?;
    for file in files {
        let file_name = Path::new(file).file_name().with_context(|| format!("{file}: no file"))?;
        fs::copy(file, root().join(&folder).join(file_name)).context((*file).to_owned())?;
    }
    pack(name, &folder)
}

/// Returns the names of all targets, in order: those with committed inputs.
fn targets() -> Result<Vec<String>> {
    let files = fs::read_dir(root().join("fuzz/corpus"))?;
    let names = files.map(|file| {
        let name = file?.path().with_extension("");
        Ok(name.file_name().unwrap_or_default().to_string_lossy().into_owned())
    });
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}
