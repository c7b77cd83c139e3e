//! Records how the program is built, for `tidegate version`: commit, target, profile and compiler.
//!
//! The variables `TIDEGATE_COMMIT` and `TIDEGATE_COMMIT_DATE` name the commit where there is no git, such as in an
//! archive of the source. Without them, release builds ask git. Debug builds do not: they would be compiled again after
//! each commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (commit, date) = commit().unwrap_or_default();
    println!("cargo::rustc-env=TIDEGATE_BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=TIDEGATE_BUILD_COMMIT_DATE={date}");
    println!("cargo::rustc-env=TIDEGATE_BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=TIDEGATE_BUILD_PROFILE={}", profile());
    let rustc = output(&variable("RUSTC"), &["--version"]).unwrap_or_default();
    println!("cargo::rustc-env=TIDEGATE_BUILD_RUSTC={rustc}");
}

/// Returns a variable, or an empty text. Cargo runs this program again when its value changes.
fn variable(name: &str) -> String {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).unwrap_or_default()
}

/// Returns the commit's id and date.
fn commit() -> Option<(String, String)> {
    let (commit, date) = (variable("TIDEGATE_COMMIT"), variable("TIDEGATE_COMMIT_DATE"));
    if !commit.is_empty() {
        return Some((commit, date));
    }
    if variable("PROFILE") == "debug" {
        return None;
    }
    // The source may be unpacked within a repository of something else.
    let top = output("git", &["rev-parse", "--show-toplevel"])?;
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // The log of HEAD grows with each commit and each checkout.
    println!(
        "cargo::rerun-if-changed={}",
        output("git", &["rev-parse", "--git-path", "logs/HEAD"])?
    );
    let format = ["--format=%H %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"];
    let shown = output("git", &[["show", "--no-patch"], format].concat())?;
    let (commit, date) = shown.split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

/// Returns the name of the profile, which only the path of the output folder has:
/// `…/PROFILE/build/PACKAGE-HASH/out`.
fn profile() -> String {
    let out = variable("OUT_DIR");
    let folder = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns what a program prints if it succeeds, without the line's end.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
