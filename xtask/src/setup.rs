//! Installs what the tests need beyond a Rust toolchain.

use crate::command::{Tally, command, output, run};
use crate::foreign;
use anyhow::{Context, Result, bail};

/// Debian packages, each with what needs it.
const PACKAGES: &[(&str, &str)] = &[
    ("aria2", "real-client tests"),
    ("transmission-cli", "real-client tests"),
    ("python3-libtorrent", "real-client tests"),
    ("iproute2", "addresses inside the namespaces of the real-client tests"),
    ("util-linux", "those namespaces: unshare, setpriv"),
];

/// Installs the packages that are missing, as root or by sudo, and the foreign target if it can be
/// had.
pub(crate) fn run_setup() -> Result<Tally> {
    let missing: Vec<&str> =
        PACKAGES.iter().map(|(name, _)| *name).filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        println!("all {} packages are here", PACKAGES.len());
    } else {
        install(&missing)?;
    }
    foreign::add_target();
    Ok(Tally::ONE)
}

fn is_installed(package: &str) -> bool {
    let words = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", package];
    output(command(&words)).is_ok_and(|status| status == "installed")
}

fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("install by hand: {}", packages.join(" "));
    if output(command(&["apt-get", "--version"])).is_err() {
        bail!("no apt-get here; {by_hand}");
    }
    let root = output(command(&["id", "-u"]))?.trim() == "0";
    let prefix: &[&str] = if root { &[] } else { &["sudo", "-n"] };
    let apt = |words: &[&str]| {
        let mut command = command(&[prefix, &["apt-get", "-qq"], words].concat());
        command.env("DEBIAN_FRONTEND", "noninteractive");
        run(command).with_context(|| by_hand.clone())
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_is_not_there_is_missing() {
        assert!(!is_installed("no-such-package"));
    }
}
