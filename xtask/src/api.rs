//! The management API as its own document describes it: schemathesis makes requests of all kinds, good
//! and bad, and sees that the answers are what the document says.

use crate::clients::binary;
use crate::command::{Tally, command, output, run};
use crate::served::{Served, TOKEN};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// What `pip install` is told.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// Requests for each operation, in each of its phases.
const EXAMPLES: &str = "40";
/// Streams do not end, and nobody can wait for that.
const STREAMS: &str = "^/(events|figures)$";

/// Installs it into a folder of its own, by version.
pub(crate) fn install() -> Result<()> {
    let folder = folder();
    if program().is_file() {
        println!("schemathesis is here");
        return Ok(());
    }
    let folder = folder.display().to_string();
    run(command(&["python3", "-m", "venv", &folder]))?;
    let pip = format!("{folder}/bin/pip");
    run(command(&[&pip, "install", "--quiet", "--disable-pip-version-check", SCHEMATHESIS]))?;
    Ok(())
}

/// Has it try everything.
pub(crate) fn try_everything() -> Result<Tally> {
    let folder = root().join(format!("target/api-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let served = Served::start(&binary(), &folder, "")?;
    let document = format!("http://{}/api/v1/openapi.json", served.admin);
    let header = format!("Authorization: Bearer {TOKEN}");
    let path = program().display().to_string();
    let mut words = vec![path.as_str(), "run", &document, "--header", &header];
    words.extend(["--exclude-path-regex", STREAMS, "--max-examples", EXAMPLES]);
    words.extend(["--checks", "all", "--seed", "1", "--max-time", "60"]);
    words.extend(["--request-timeout", "20", "--no-color"]);
    let mut schemathesis = command(&words);
    // It leaves there what it has found.
    schemathesis.current_dir(&folder);
    let outcome = run(schemathesis).context("the API is not what its document says");
    let is_alive = served.is_alive();
    drop(served);
    outcome?;
    anyhow::ensure!(is_alive, "the tracker has ended");
    fs::remove_dir_all(folder)?;
    Ok(Tally::ONE)
}

fn folder() -> PathBuf {
    root().join("target/tools").join(SCHEMATHESIS.replace("==", "-"))
}

fn program() -> PathBuf {
    folder().join("bin/schemathesis")
}

/// Whether `python3 -m venv` can be used.
pub(crate) fn has_venv() -> bool {
    output(command(&["python3", "-c", "import venv, ensurepip"])).is_ok()
}
