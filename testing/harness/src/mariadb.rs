//! A MariaDB server on loopback, for tests of sites' databases, or a MySQL server in its place.
//!
//! It keeps its address and its files over kills and restarts. Its files go with [`MariaDb`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Directory, PATIENCE, Process, Signal, is_listening, output, signal, unused_address};

/// The Debian package with the programs.
pub const PACKAGE: &str = "mariadb-server-core";
/// Debian has the server outside of most users' `PATH`.
const SERVERS: [&str; 2] = ["/usr/sbin/mariadbd", "/usr/local/libexec/mariadbd"];

/// The environment variable that names a folder with a Debian system, whose MySQL server is started instead.
pub const MYSQL_SYSTEM: &str = "TIDEGATE_TEST_MYSQL";

/// MySQL knows loopback by no name, and has `root` at `localhost` only.
const ROOT_OF_MYSQL: &str =
    "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n";

/// The programs of a server.
enum Programs {
    MariaDb(&'static str),
    /// The folder with a Debian system. Its programs run with its own libraries.
    MySql(PathBuf),
}

impl Programs {
    fn find() -> Option<Self> {
        if let Some(system) = std::env::var_os(MYSQL_SYSTEM) {
            return Some(Self::MySql(system.into()));
        }
        let server = SERVERS.into_iter().find(|server| Path::new(server).is_file());
        server.map(Self::MariaDb)
    }

    /// Returns the server, with what it always needs.
    fn server(&self) -> Command {
        match self {
            Self::MariaDb(server) => {
                let mut command = Command::new(server);
                command.args(["--no-defaults", "--innodb-log-file-size=32M"]);
                command
            }
            Self::MySql(system) => {
                let path = |name: &str| system.join(name).display().to_string();
                let mut command = Command::new(system.join("lib64/ld-linux-x86-64.so.2"));
                command.args(["--library-path", &path("usr/lib/x86_64-linux-gnu")]);
                command.args([&path("usr/sbin/mysqld"), "--no-defaults"]);
                command.arg(format!("--basedir={}", path("usr")));
                command.arg(format!("--lc-messages-dir={}", path("usr/share/mysql")));
                command.arg(format!("--plugin-dir={}", path("usr/lib/mysql/plugin")));
                // It would listen at a port that is the same for all servers, and read a folder of Debian's.
                command.args(["--mysqlx=OFF", "--secure-file-priv=NULL"]);
                command.arg("--innodb-redo-log-capacity=32M");
                // As MariaDB, it takes transactions with tables of other engines, which tests make.
                command.args(["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]);
                command
            }
        }
    }

    /// Returns the command that makes a folder of empty tables, in which `root` has no password. It may use files in
    /// `directory`.
    fn installer(&self, directory: &Directory) -> Result<Command> {
        Ok(match self {
            Self::MariaDb(_) => {
                let mut command = Command::new("mariadb-install-db");
                command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
                command.arg("--skip-test-db");
                command
            }
            Self::MySql(_) => {
                let mut command = self.server();
                directory.write("root.sql", ROOT_OF_MYSQL)?;
                let file = directory.path("root.sql");
                command.arg("--initialize-insecure").arg(format!("--init-file={}", file.display()));
                command
            }
        })
    }
}

/// Returns why no server can be started here, if so.
pub fn obstacle() -> Option<String> {
    let missing = || format!("without the package {PACKAGE}: run `cargo xtask setup`");
    Programs::find().is_none().then(missing)
}

/// Returns the argument of a server that offers no TLS.
pub fn without_tls() -> &'static str {
    match Programs::find() {
        Some(Programs::MySql(_)) => "--tls-version=",
        _ => "--skip-ssl",
    }
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
        let programs = Programs::find().context("there is no server")?;
        let directory = Directory::new()?;
        let data = directory.path("data");
        let mut install = programs.installer(&directory)?;
        // Servers that share a folder for temporary tables disturb each other.
        install.env("TMPDIR", directory.root());
        install.arg("--user=root").arg(format!("--datadir={}", data.display()));
        output(install).context("cannot make a database")?;
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
        let mut command = Programs::find().context("there is no server")?.server();
        let path = |name: &str| self.directory.path(name).display().to_string();
        command.args(["--user=root", "--innodb-buffer-pool-size=64M", "--skip-name-resolve=0"]);
        command.arg(format!("--datadir={}", path("data")));
        command.arg(format!("--socket={}", path("socket")));
        command.arg(format!("--pid-file={}", path("pid")));
        command.arg(format!("--bind-address={}", self.address.ip()));
        command.arg(format!("--port={}", self.address.port()));
        command.env("TMPDIR", self.directory.root());
        command.args(&self.arguments);
        let mut process = Process::start(command, self.directory.root(), "database")?;
        process.wait_until("listening", PATIENCE, |_| is_listening(self.address))?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills it, as a crash would end it.
    pub fn kill(&mut self) {
        self.process = None;
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
