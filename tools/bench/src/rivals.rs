//! `tidegate-bench rivals`: installs other trackers from packages.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::lab::{Definition, Definitions, Install};
use crate::session::print_line;

/// Install the trackers to compare with.
#[derive(Args)]
pub(crate) struct Rivals {
    /// Names of trackers [default: all].
    names: Vec<String>,
    /// Directory to install them into.
    #[arg(long, value_name = "DIR", default_value = "target/rivals")]
    into: PathBuf,
    /// Directory with the definitions of trackers.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    definitions: PathBuf,
}

impl Rivals {
    /// Installs them. If one fails, the others are still installed.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let all = Definitions::read(&self.definitions)?;
        let all: Vec<&Definition> = all.trackers.iter().chain(&all.front).collect();
        if let Some(name) = self.names.iter().find(|name| all.iter().all(|one| one.name != **name))
        {
            let names: Vec<_> = all.iter().map(|one| &*one.name).collect();
            bail!("unknown tracker {name}: expected one of {}", names.join(", "));
        }
        fs::create_dir_all(&self.into)
            .with_context(|| format!("cannot create {}", self.into.display()))?;
        let mut code = ExitCode::SUCCESS;
        let is_wanted = |name: &String| self.names.is_empty() || self.names.contains(name);
        for Definition { name, install, .. } in all.into_iter().filter(|one| is_wanted(&one.name)) {
            if !install.by_path.is_empty() {
                let what = &install.by_path;
                print_line(&format!("{name} has no package: use --program {name}=PATH, {what}"));
            } else if let Err(error) = self.install(install) {
                print_line(&format!("{name}: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
        print_line(&format!("tidegate-bench compare --rivals {}", self.into.display()));
        Ok(code)
    }

    fn install(&self, install: &Install) -> Result<()> {
        let Install { debian, cargo, npm, pypi, .. } = install;
        // What follows may need these to build, or have them from elsewhere.
        if let Err(error) = install_debian(debian) {
            ensure!([cargo, npm, pypi].iter().any(|words| !words.is_empty()), error);
            print_line(&format!("{error:#}; trying without"));
        }
        let into = self.into.to_str().context("the directory's name is not UTF-8")?;
        for (start, words) in [
            (["cargo", "install", "--root", into].as_slice(), cargo),
            (&["npm", "install", "--no-audit", "--no-fund", "--prefix", into], npm),
            (&["python3", "-m", "pip", "install", "--prefix", into], pypi),
        ] {
            if !words.is_empty() {
                run(start.to_vec(), words)?;
            }
        }
        Ok(())
    }
}

/// Installs the packages that are not here yet.
fn install_debian(packages: &[String]) -> Result<()> {
    let missing: Vec<String> =
        packages.iter().filter(|name| !is_installed(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let is_root = nix::unistd::Uid::effective().is_root();
    let sudo: &[&str] = if is_root { &[] } else { &["sudo"] };
    run([sudo, &["apt-get", "install", "--yes", "--no-install-recommends"]].concat(), &missing)
}

fn is_installed(package: &str) -> bool {
    let mut dpkg = Command::new("dpkg-query");
    dpkg.args(["--show", "--showformat", "${db:Status-Status}", package]);
    dpkg.output().is_ok_and(|output| output.stdout == b"installed")
}

fn run(start: Vec<&str>, words: &[String]) -> Result<()> {
    let line = [start.join(" "), words.join(" ")].join(" ");
    print_line(&format!("$ {line}"));
    let mut command = Command::new(start.first().context("an empty command")?);
    command.args(&start[1..]).args(words);
    // Do not build in our own target folder.
    let status = command.env_remove("CARGO_TARGET_DIR").status();
    let status = status.with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` failed: {status}");
    Ok(())
}
