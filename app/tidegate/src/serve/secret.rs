//! The secret of the state directory: 32 random bytes, made once. Keys of hashes that outlive the process
//! derive from it, so that sessions of users' keys are found again after a restart.

use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use net::process::Identity;

use crate::access::read_up_to;
use crate::permissions::{create_state_directory, future_owner, write_secret};
use config::Config;

const FILE_NAME: &str = "secret";
const LEN: usize = 32;

/// Returns the key of sessions. With `state.dir`, it comes from the secret there, which is made if there
/// is none; otherwise it is `inherited` from the old process, or random.
pub(super) fn session_key(config: &Config, inherited: [u8; 16]) -> Result<[u8; 16]> {
    let Some(directory) = config.state_dir.as_deref() else { return Ok(inherited) };
    create_state_directory(config)?;
    let secret = read_or_create(directory, future_owner(config))?;
    // The other half is for other keys.
    let (key, _) = secret.split_first_chunk().context("the secret is too short")?;
    Ok(*key)
}

fn read_or_create(directory: &Path, owner: Option<Identity>) -> Result<[u8; LEN]> {
    let path = directory.join(FILE_NAME);
    let read = || read_up_to(&path, LEN as u64);
    let secret = match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => create(&path, owner)
            .and_then(|()| read())
            .with_context(|| format!("state.dir: cannot create {}", path.display()))?,
        read => read.with_context(|| format!("state.dir: cannot read {}", path.display()))?,
    };
    ensure!(
        secret.len() == LEN,
        "state.dir: {}: expected {LEN} bytes, found {}: restore it from a backup or remove it",
        path.display(),
        if secret.len() > LEN { "more".into() } else { secret.len().to_string() },
    );
    Ok(secret.try_into().unwrap_or_default())
}

fn create(path: &Path, owner: Option<Identity>) -> io::Result<()> {
    let mut secret = [0; LEN];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    write_secret(path, &secret, owner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use harness::Directory;

    use super::*;

    #[test]
    fn rejects_what_is_no_secret() {
        let directory = Directory::new().unwrap();
        for (text, found) in [("", "0"), ("short", "5"), (&*"x".repeat(33), "more")] {
            directory.write("secret", text).unwrap();
            let error = format!("{:#}", read_or_create(directory.root(), None).unwrap_err());
            assert!(error.contains(&format!("expected 32 bytes, found {found}: ")), "{error}");
        }
        fs::remove_file(directory.path("secret")).unwrap();
        fs::create_dir(directory.path("secret")).unwrap();
        let error = format!("{:#}", read_or_create(directory.root(), None).unwrap_err());
        assert!(error.contains("cannot read "), "{error}");
    }
}
