//! The secret that all nodes of a cluster share. Keys derive from it by HKDF-SHA256, so nothing has to be
//! distributed when a node starts.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use tracker::SharedSecrets;

use crate::config::ClusterConfig;
use crate::permissions::check_secret;

/// Bytes of a secret; its file has two hex digits for each.
pub(crate) const SECRET_LEN: usize = 32;

/// The secrets of a cluster.
pub(crate) struct ClusterSecrets {
    /// By which this node issues and signs.
    first: [u8; SECRET_LEN],
    /// By which other nodes may, while the secret changes.
    second: Option<[u8; SECRET_LEN]>,
}

impl ClusterSecrets {
    /// Reads the files of `cluster.secret`.
    pub(crate) fn read(config: &ClusterConfig) -> Result<Self> {
        let secrets = config.secrets.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        let (first, rest) = secrets.split_first().context("cluster.secret: expected a file")?;
        ensure!(
            rest.first() != Some(first),
            "cluster.secret: both files have the same secret: `tidegate cluster secret` makes a new one"
        );
        Ok(Self { first: *first, second: rest.first().copied() })
    }

    /// Returns the key of connection ids.
    pub(crate) fn connection_ids(&self) -> [u8; 16] {
        derive(&self.first, "tidegate connection ids")
    }

    /// Returns the key of the tags of WebTorrent offers.
    pub(crate) fn offers(&self) -> [u8; 16] {
        derive(&self.first, "tidegate offers")
    }

    /// Returns the key of sessions.
    pub(crate) fn sessions(&self) -> [u8; 16] {
        derive(&self.first, "tidegate sessions")
    }

    /// Returns the keys of what is accepted beside that.
    pub(crate) fn previous(&self) -> Option<SharedSecrets> {
        self.second.as_ref().map(|secret| SharedSecrets {
            connection_ids: derive(secret, "tidegate connection ids"),
            offers: derive(secret, "tidegate offers"),
        })
    }

    /// Returns what names the secrets in messages, the first one first.
    pub(crate) fn ids(&self) -> Vec<[u8; 4]> {
        let secrets = [Some(&self.first), self.second.as_ref()];
        secrets.into_iter().flatten().map(|secret| derive(secret, "tidegate id")).collect()
    }
}

/// Returns bytes that follow from a secret and `info`, and say nothing about either.
fn derive<const N: usize>(secret: &[u8; SECRET_LEN], info: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let pseudorandom = Salt::new(HKDF_SHA256, &[]).extract(secret);
    let parts = [info.as_bytes()];
    let derived = pseudorandom.expand(&parts, Len(N)).and_then(|key| key.fill(&mut bytes));
    // The length is far below 255 hashes, so that cannot fail.
    debug_assert!(derived.is_ok(), "{info}");
    bytes
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

fn read(path: &Path) -> Result<[u8; SECRET_LEN]> {
    let name = path.display();
    check_secret(path).context("cluster.secret")?;
    let text =
        fs::read_to_string(path).with_context(|| format!("cluster.secret: cannot read {name}"))?;
    parse(text.trim()).with_context(|| {
        format!(
            "cluster.secret: {name}: expected {} hex digits: `tidegate cluster secret` makes them",
            2 * SECRET_LEN
        )
    })
}

fn parse(text: &str) -> Option<[u8; SECRET_LEN]> {
    let mut secret = [0; SECRET_LEN];
    if text.len() != 2 * SECRET_LEN || !text.is_ascii() {
        return None;
    }
    for (byte, at) in secret.iter_mut().zip((0..).step_by(2)) {
        let digits =
            text.get(at..at + 2).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use harness::Directory;

    use super::*;

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(SECRET_LEN)
    }

    fn file(directory: &Directory, name: &str, text: &str, mode: u32) -> std::path::PathBuf {
        let path = directory.write(name, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn keys_follow_from_the_secret() {
        let one = ClusterSecrets { first: [1; 32], second: None };
        let both = ClusterSecrets { first: [2; 32], second: Some([1; 32]) };
        assert_ne!(one.connection_ids(), one.offers());
        assert_ne!(one.connection_ids(), both.connection_ids());
        let previous = both.previous().unwrap();
        assert_eq!(previous.connection_ids, one.connection_ids());
        assert_eq!(previous.offers, one.offers());
        assert_eq!(both.ids()[1], one.ids()[0]);
        assert!(one.previous().is_none() && one.ids().len() == 1);
        // RFC 5869 with an empty salt, computed by another program: all nodes and versions must agree.
        let id = u32::from_be_bytes(one.ids()[0]);
        assert_eq!(format!("{id:08x}"), EXPECTED_ID);
    }

    const EXPECTED_ID: &str = "a6a3402b";

    #[test]
    fn reads_only_secrets() {
        let directory = Directory::new().unwrap();
        let good = file(&directory, "good", &format!("{}\n", hex(0xab)), 0o600);
        assert_eq!(read(&good).unwrap(), [0xab; 32]);
        assert!(read(&file(&directory, "group", &hex(1), 0o640)).is_ok());
        for (text, mode, why) in [
            (hex(1), 0o644, "other users can read or change it (mode 644): chmod 600 it"),
            (hex(1), 0o660, "mode 660"),
            ("ab".into(), 0o600, "expected 64 hex digits"),
            (hex(1).replace('1', "g"), 0o600, "expected 64 hex digits"),
            (hex(1).replacen("01", "+1", 1), 0o600, "expected 64 hex digits"),
            (String::new(), 0o600, "expected 64 hex digits"),
        ] {
            let error = format!("{:#}", read(&file(&directory, "bad", &text, mode)).unwrap_err());
            assert!(error.starts_with("cluster.secret: ") && error.contains(why), "{error}");
            fs::remove_file(directory.path("bad")).unwrap();
        }
        let error = format!("{:#}", read(&directory.path("none")).unwrap_err());
        assert!(error.contains("cannot read"), "{error}");
    }
}
