//! The directory for what must survive restarts: the account, certificates and their keys.
//!
//! ```text
//! CACHE/acme-v02.api.letsencrypt.org_directory/   a directory per ACME server
//!     account.json
//!     tracker.example.org.pem                     key and chain in one file, to stay together
//!     lock                                        held by the process that renews
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use instant_acme::AccountCredentials;
use net::tls::Certificate;
use serde::{Deserialize, Serialize};

use crate::permissions::{STATE_DIRECTORY, create_directory, write_secret};
use config::AcmeConfig;

#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredAccount {
    pub(super) credentials: AccountCredentials,
}

impl Cache {
    pub(super) fn open(config: &AcmeConfig) -> Result<Self> {
        let directory = config.cache.join(directory_name(&config.directory));
        create_directory(STATE_DIRECTORY, &directory, None)?;
        Ok(Self { directory })
    }

    /// Takes the right to renew while the file is open. Returns `None` if another process has it.
    pub(super) fn lock(&self) -> Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let path = self.directory.join("lock");
        let file = options.open(&path);
        let file = file.with_context(|| format!("state.dir: cannot write {}", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    pub(super) fn path(&self, domain: &str) -> PathBuf {
        self.directory.join(format!("{domain}.pem"))
    }

    pub(super) fn certificate(&self, domain: &str) -> Result<Option<Certificate>> {
        let path = self.path(domain);
        let pem = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let certificate = Certificate::from_pem(&pem, &path)?;
        ensure!(
            certificate.covers_host(domain),
            "{}: the certificate is for another host",
            path.display()
        );
        Ok(Some(certificate))
    }

    pub(super) fn save_certificate(&self, domain: &str, pem: &str) -> Result<()> {
        write(&self.path(domain), pem.as_bytes())
    }

    pub(super) fn account(&self) -> Result<Option<StoredAccount>> {
        let path = self.account_path();
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
            Ok(text) => Ok(Some(
                serde_json::from_slice(&text)
                    .with_context(|| format!("{}: not a valid account file", path.display()))?,
            )),
        }
    }

    pub(super) fn save_account(&self, account: &StoredAccount) -> Result<()> {
        write(&self.account_path(), &serde_json::to_vec_pretty(account)?)
    }

    fn account_path(&self) -> PathBuf {
        self.directory.join("account.json")
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_secret(path, bytes, None).with_context(|| format!("cannot write {}", path.display()))
}

fn directory_name(directory: &str) -> String {
    let plain =
        |char: char| if char.is_ascii_alphanumeric() || "-.".contains(char) { char } else { '_' };
    directory.trim_start_matches("https://").chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use harness::Directory;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use config::Challenge;

    fn open(directory: &Directory) -> Cache {
        let config = AcmeConfig {
            domains: vec!["t.example".into()],
            directory: "https://ca.example:14000/dir?x=1".into(),
            cache: directory.path("cache"),
            challenge: Challenge::TlsAlpn,
            ca: None,
        };
        Cache::open(&config).unwrap()
    }

    fn pem(domain: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([domain.to_owned()]).unwrap();
        key.serialize_pem() + &params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn reads_saved_certificates_and_reports_invalid_files() {
        let directory = Directory::new().unwrap();
        let cache = open(&directory);
        assert!(cache.certificate("t.example").unwrap().is_none());
        for _ in 0..2 {
            let text = pem("t.example");
            cache.save_certificate("t.example", &text).unwrap();
            let read = open(&directory).certificate("t.example").unwrap().unwrap();
            let given = Certificate::from_pem(text.as_bytes(), Path::new("x")).unwrap();
            assert_eq!(read.der(), given.der());
        }
        let path = directory.path("cache/ca.example_14000_dir_x_1/t.example.pem");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::write(&path, pem("other.example")).unwrap();
        let said = cache.certificate("t.example").unwrap_err().to_string();
        assert!(said.ends_with("t.example.pem: the certificate is for another host"), "{said}");
        assert!(cache.account().unwrap().is_none());
        fs::write(path.with_file_name("account.json"), "{}").unwrap();
        let said = cache.account().map(|_| ()).unwrap_err().to_string();
        assert!(said.ends_with("account.json: not a valid account file"), "{said}");
    }

    #[test]
    fn only_one_process_has_the_lock() {
        let directory = Directory::new().unwrap();
        let [one, other] = [0; 2].map(|_| open(&directory));
        let held = one.lock().unwrap().unwrap();
        assert!(other.lock().unwrap().is_none());
        drop(held);
        assert!(other.lock().unwrap().is_some());
    }
}
