//! The dashboard's scripts: types against the API's description, lint and format.

use anyhow::Result;

use crate::command::{command, run};
use crate::workspace::{root, target};

/// The checks from npm, pinned by `package-lock.json`, and their settings.
pub const FOLDER: &str = "testing/dashboard";
/// The description of the API that types are made of.
const OPENAPI: &str = "edge/admin/src/api/openapi.json";
const SCRIPTS: &str = "edge/admin/assets";

/// Compares the scripts with the types of the API, and lints them.
///
/// # Errors
///
/// Fails if a script does not fit the API's types, or is not clean, or if `cargo xtask setup` has not run.
pub fn check() -> Result<()> {
    let types = target().join("dashboard/api.d.ts");
    let mut make_types = tool("openapi-typescript");
    make_types.arg(root().join(OPENAPI)).arg("--output").arg(types);
    run(make_types)?;
    let mut check_types = tool("tsc");
    check_types.arg("--project").arg(root().join(FOLDER));
    run(check_types)?;
    let mut lint = tool("biome");
    lint.args(["check", "--error-on-warnings", "--config-path"]);
    lint.arg(root().join(FOLDER)).arg(root().join(SCRIPTS));
    run(lint)?;
    Ok(())
}

fn tool(name: &str) -> std::process::Command {
    let path = root().join(FOLDER).join("node_modules/.bin").join(name);
    command(&[&path.to_string_lossy()])
}
