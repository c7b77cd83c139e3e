//! Certificates from files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where a certificate is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// PEM: the certificate, and those of the authorities between it and the root.
    pub chain: PathBuf,
    /// PEM: its private key, in PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    /// In lower case; a leading `*` stands for one label.
    names: Vec<String>,
    /// The first second, and the last, in which it is good.
    valid: [SystemTime; 2],
}

/// Why there is no certificate.
#[derive(Debug)]
pub struct CertificateError {
    /// The file that is at fault.
    pub path: PathBuf,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Pem(PemError),
    Empty,
    X509,
    Key,
    Mismatch,
}

impl Certificate {
    /// Reads it, and sees that key and certificate belong together.
    pub fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let blame = |path: &Path, fault| CertificateError { path: path.to_owned(), fault };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.chain)
            .and_then(Iterator::collect)
            .map_err(|error| blame(&files.chain, Fault::Pem(error)))?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
            PemError::NoItemsFound => blame(&files.key, Fault::Key),
            error => blame(&files.key, Fault::Pem(error)),
        })?;
        Self::new(chain, &key).map_err(|fault| match fault {
            Fault::Key | Fault::Mismatch => blame(&files.key, fault),
            fault => blame(&files.chain, fault),
        })
    }

    /// The same from a text that has the chain and the key, in any order. `path` is where it is kept,
    /// for the message if something is wrong with it.
    pub fn from_pem(pem: &[u8], path: &Path) -> Result<Self, CertificateError> {
        let blame = |fault| CertificateError { path: path.to_owned(), fault };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| blame(Fault::Pem(error)))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| blame(Fault::Key))?;
        Self::new(chain, &key).map_err(blame)
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Result<Self, Fault> {
        let own = chain.first().ok_or(Fault::Empty)?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|_| Fault::X509)?;
        let names = names(&parsed);
        let valid = [parsed.validity().not_before, parsed.validity().not_after]
            .map(|time| instant(time.timestamp()));
        let signing = any_supported_type(key).map_err(|_| Fault::Key)?;
        let key = CertifiedKey::new(chain, signing);
        // Other errors are about what the comparison cannot read, such as the critical extension of a
        // challenge: that is for clients to judge.
        if let Err(rustls::Error::InconsistentKeys(_)) = key.keys_match() {
            return Err(Fault::Mismatch);
        }
        Ok(Self { key: Arc::new(key), names, valid })
    }

    /// The host names that it is for.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When its time begins.
    pub fn begins(&self) -> SystemTime {
        self.valid[0]
    }

    /// When its time is over.
    pub fn expires(&self) -> SystemTime {
        self.valid[1]
    }

    /// Whether its time has come and is not over.
    pub fn is_good_at(&self, time: SystemTime) -> bool {
        let [from, until] = self.valid;
        (from..=until).contains(&time)
    }

    /// The certificate itself, as it goes over the wire.
    pub fn der(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }

    /// Whether the files hold a chain, and not the host's certificate alone: clients that do not know
    /// the authority in between cannot check that.
    pub fn has_chain(&self) -> bool {
        self.key.cert.len() > 1
    }

    pub(super) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Whether it is for a host.
    pub fn is_for(&self, host: &str) -> bool {
        let rest = host.split_once('.').map(|(_, rest)| rest);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(domain) => rest.is_some_and(|rest| rest.eq_ignore_ascii_case(domain)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.map(|extension| extension.value.general_names.as_slice());
    let names = names.unwrap_or_default().iter();
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    names.filter_map(host).collect()
}

fn instant(unix_s: i64) -> SystemTime {
    let since = Duration::from_secs(unix_s.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if unix_s < 0 { epoch.checked_sub(since) } else { epoch.checked_add(since) };
    time.unwrap_or(epoch)
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .field("valid", &self.valid)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.fault {
            Fault::Pem(PemError::Io(error)) => write!(f, "cannot be read: {error}"),
            Fault::Pem(error) => write!(f, "is no good PEM: {error}"),
            Fault::Empty => f.write_str("holds no certificate (BEGIN CERTIFICATE)"),
            Fault::X509 => f.write_str("its first certificate cannot be understood"),
            Fault::Key => f.write_str(
                "holds no private key that can be used (PKCS#8, PKCS#1 or SEC1, without a password)",
            ),
            Fault::Mismatch => f.write_str("is not the key of the certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}
