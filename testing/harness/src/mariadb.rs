//! A MariaDB server on loopback, for tests of sites' databases.
//!
//! It keeps its address and its files over kills and restarts. Its files go with [`MariaDb`].

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Directory, PATIENCE, Process, Signal, is_listening, signal, unused_address};

/// The Debian package with the programs.
pub const PACKAGE: &str = "mariadb-server-core";
/// Debian has the server outside of most users' `PATH`.
const SERVERS: [&str; 2] = ["/usr/sbin/mariadbd", "/usr/local/libexec/mariadbd"];

/// Returns why no server can be started here, if so.
pub fn obstacle() -> Option<String> {
    let missing = || format!("without the package {PACKAGE}: run `cargo xtask setup`");
    server().is_none().then(missing)
}

fn server() -> Option<&'static str> {
    SERVERS.into_iter().find(|server| Path::new(server).is_file())
}

/// A server with the user `root`, who has no password. It is killed when dropped.
#[derive(Debug)]
pub struct MariaDb {
    address: SocketAddr,
    arguments: Vec<String>,
    directory: Directory,
    /// None if it does not run.
    process: Option<Process>,
}

impl MariaDb {
    /// Starts a server with empty tables, and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// If there is an [`obstacle`], or it is not ready within [`PATIENCE`].
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same with additional arguments.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_with(arguments: &[&str]) -> Result<Self> {
        if let Some(obstacle) = obstacle() {
            anyhow::bail!(obstacle);
        }
        let directory = Directory::new()?;
        let data = directory.path("data");
        let mut install = Command::new("mariadb-install-db");
        install.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]);
        // Servers that share a folder for temporary tables disturb each other.
        install.env("TMPDIR", directory.root());
        install.arg("--user=root").arg(format!("--datadir={}", data.display()));
        let output = install.output().context("cannot start mariadb-install-db")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mariadb-install-db: {text}");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let address = unused_address();
        let mut server = Self { address, arguments, directory, process: None };
        server.restart()?;
        Ok(server)
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it again after [`Self::kill`] or [`Self::stop`].
    ///
    /// # Errors
    ///
    /// If it does not accept connections within [`PATIENCE`].
    pub fn restart(&mut self) -> Result<()> {
        let program = server().context("there is no mariadbd")?;
        let mut command = Command::new(program);
        let path = |name: &str| self.directory.path(name).display().to_string();
        command.args(["--no-defaults", "--user=root", "--innodb-buffer-pool-size=64M"]);
        command.args(["--skip-name-resolve=0", "--innodb-log-file-size=32M"]);
        command.arg(format!("--datadir={}", path("data")));
        command.arg(format!("--socket={}", path("socket")));
        command.arg(format!("--pid-file={}", path("pid")));
        command.arg(format!("--bind-address={}", self.address.ip()));
        command.arg(format!("--port={}", self.address.port()));
        command.env("TMPDIR", self.directory.root());
        command.args(&self.arguments);
        let mut process = Process::start(command, self.directory.root(), "mariadbd")?;
        process.wait_until("listening", PATIENCE, |_| is_listening(self.address))?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills it, as a crash would end it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops it: everything is written, and clients are disconnected.
    ///
    /// # Errors
    ///
    /// If it does not end within [`PATIENCE`].
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            signal(process.id(), Signal::SIGTERM)?;
            process.wait_for_end(PATIENCE)?;
        }
        Ok(())
    }

    /// Suspends it, as a machine that hangs, or resumes it.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn suspend(&self, suspends: bool) -> Result<()> {
        let process = self.process.as_ref().context("the server does not run")?;
        signal(process.id(), if suspends { Signal::SIGSTOP } else { Signal::SIGCONT })
    }
}
