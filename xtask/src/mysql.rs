//! Runs the tests of sites with MySQL instead of MariaDB. Debian's stable release has no server of MySQL, so a system of
//! its unstable one is made once in `target`. Its release changes, so CI does not depend on it.

use crate::nextest;
use anyhow::Result;
use harness::mariadb::MYSQL_SYSTEM;
use std::fs;
use trials::command::{command, output, run};
use trials::debian;
use trials::workspace::target;

const SUITE: &str = "sid";

/// Makes the system if there is none, prints the server's version, and runs the tests.
pub(crate) fn run_tests() -> Result<()> {
    let system = target().join("tools/mysql");
    if !system.join("usr/sbin/mysqld").is_file() {
        debian::install_missing(&["debootstrap"])?;
        fs::create_dir_all(&system)?;
        let mut bootstrap =
            command(&["debootstrap", "--variant=minbase", "--include=mysql-server-core", SUITE]);
        bootstrap.arg(&system);
        run(bootstrap)?;
    }
    let mut version = command(&["chroot"]);
    version.arg(&system).args(["dpkg-query", "--show", "mysql-server-core"]);
    println!("{}", output(version)?.trim());
    let words = ["--package", "tidegate-site", "--test", "site"];
    nextest::run_with(&words, &[(MYSQL_SYSTEM, system.as_os_str())])
}
