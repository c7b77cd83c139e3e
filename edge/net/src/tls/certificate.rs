//! Certificates and keys from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, fs, io};

use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// PEM: the certificate, followed by the intermediate certificates.
    pub chain: PathBuf,
    /// PEM: its private key, in PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// A certificate chain with its private key.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    /// Host names in lower case; a leading `*` stands for one label.
    names: Vec<String>,
    /// The first and the last second of its validity.
    valid: [SystemTime; 2],
    chain: ChainStatus,
}

/// The state of a certificate's chain: complete, or the reason why clients may fail to verify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStatus {
    /// The chain is complete, as far as names tell.
    Complete,
    /// There is only the host's certificate, and it names a URL of its issuer's certificate. Few clients
    /// fetch that.
    MissingIntermediate,
    /// A certificate was not issued by the one after it.
    OutOfOrder,
}

/// The reason why a certificate cannot be loaded.
#[derive(Debug)]
pub struct CertificateError {
    /// The file with the error.
    pub path: PathBuf,
    kind: CertificateErrorKind,
}

#[derive(Debug)]
pub(super) enum CertificateErrorKind {
    Unreadable(io::Error),
    Pem(PemError),
    /// DER, not PEM.
    Binary,
    NoCertificate,
    NoKey,
    /// The file has the content of the other one.
    Swapped,
    Password,
    /// The number of the certificate in its file, from 1.
    X509(usize),
    Version,
    Rejected(rustls::Error),
    Key,
    Mismatch,
}

impl Certificate {
    /// Reads a certificate and its key, and checks that they match.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or parsed, or they do not belong together. The error names the file and the remedy.
    pub fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let error_at = |path: &Path, kind| CertificateError { path: path.to_owned(), kind };
        let read = |path: &Path| {
            fs::read(path).map_err(|error| error_at(path, CertificateErrorKind::Unreadable(error)))
        };
        let (chain, key) = (read(&files.chain)?, read(&files.key)?);
        let chain = chain_of(&chain).map_err(|kind| error_at(&files.chain, kind))?;
        let key = key_of(&key).map_err(|kind| error_at(&files.key, kind))?;
        Self::new(chain, &key).map_err(|kind| match kind {
            CertificateErrorKind::Key | CertificateErrorKind::Mismatch => {
                error_at(&files.key, kind)
            }
            kind => error_at(&files.chain, kind),
        })
    }

    /// Parses a text with the chain and the key in any order, and checks that they match. `path` is
    /// named in errors.
    ///
    /// # Errors
    ///
    /// If either is missing or cannot be parsed, or they do not match.
    pub fn from_pem(pem: &[u8], path: &Path) -> Result<Self, CertificateError> {
        let read = || Self::new(chain_of(pem)?, &key_of(pem)?);
        read().map_err(|kind| CertificateError { path: path.to_owned(), kind })
    }

    /// Parses the answer to a challenge (RFC 8737) from such a text. Key and certificate are not compared,
    /// because rustls does not know the certificate's critical extension.
    ///
    /// # Errors
    ///
    /// If either is missing or cannot be parsed.
    pub fn challenge_from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let read = || Self::unmatched(chain_of(pem)?, &key_of(pem)?);
        read().map_err(|kind| CertificateError { path: "challenge".into(), kind })
    }

    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, CertificateErrorKind> {
        let certificate = Self::unmatched(chain, key)?;
        certificate.key.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateErrorKind::Mismatch,
            error => CertificateErrorKind::Rejected(error),
        })?;
        Ok(certificate)
    }

    fn unmatched(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, CertificateErrorKind> {
        let parsed =
            chain.iter().zip(1..).map(|(der, number)| match X509Certificate::from_der(der) {
                Ok((_, certificate)) => Ok(certificate),
                Err(_) => Err(CertificateErrorKind::X509(number)),
            });
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let own = parsed.first().ok_or(CertificateErrorKind::NoCertificate)?;
        if own.version() != X509Version::V3 {
            return Err(CertificateErrorKind::Version);
        }
        let names = names(own);
        let valid = [own.validity().not_before, own.validity().not_after]
            .map(|time| instant(time.timestamp()));
        let chain_status = check_chain(&parsed);
        let signing = any_supported_type(key).map_err(|_| CertificateErrorKind::Key)?;
        let key = CertifiedKey::new(chain, signing);
        Ok(Self { key: Arc::new(key), names, valid, chain: chain_status })
    }

    /// Returns the host names of the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the start of its validity.
    pub fn begins(&self) -> SystemTime {
        self.valid[0]
    }

    /// Returns the end of its validity.
    pub fn expires(&self) -> SystemTime {
        self.valid[1]
    }

    /// Returns whether it is valid at this time.
    pub fn is_valid_at(&self, time: SystemTime) -> bool {
        let [from, until] = self.valid;
        (from..=until).contains(&time)
    }

    /// Returns the host's certificate in DER.
    pub fn der(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }

    /// Returns whether clients can verify the chain.
    pub fn chain(&self) -> ChainStatus {
        self.chain
    }

    pub(super) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Returns whether its key supports one of these signature schemes.
    pub(super) fn supports_any_scheme(&self, schemes: &[SignatureScheme]) -> bool {
        self.key.key.choose_scheme(schemes).is_some()
    }

    /// Returns whether it is valid for a host.
    pub fn covers_host(&self, host: &str) -> bool {
        let rest = host.split_once('.').map(|(_, rest)| rest);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(domain) => rest.is_some_and(|rest| rest.eq_ignore_ascii_case(domain)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

fn chain_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateErrorKind> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(CertificateErrorKind::Pem)?;
    match (chain.is_empty(), PrivateKeyDer::from_pem_slice(pem)) {
        (false, _) => Ok(chain),
        (true, Ok(_)) => Err(CertificateErrorKind::Swapped),
        (true, Err(_)) if is_der(pem) => Err(CertificateErrorKind::Binary),
        (true, Err(_)) => Err(CertificateErrorKind::NoCertificate),
    }
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateErrorKind> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        // PKCS#8 has the mark in its first line, older forms in a header line.
        let mark = b"ENCRYPTED";
        let is_locked = pem.windows(mark.len()).any(|window| window == mark);
        match error {
            _ if is_locked => CertificateErrorKind::Password,
            PemError::NoItemsFound if chain_of(pem).is_ok() => CertificateErrorKind::Swapped,
            PemError::NoItemsFound if is_der(pem) => CertificateErrorKind::Binary,
            PemError::NoItemsFound => CertificateErrorKind::NoKey,
            error => CertificateErrorKind::Pem(error),
        }
    })
}

/// Returns whether a file begins as a long sequence in DER does.
fn is_der(file: &[u8]) -> bool {
    matches!(file, [0x30, 0x80..=0xff, ..])
}

/// Compares only the names of issuers and subjects. Clients verify the signatures.
fn check_chain(chain: &[X509Certificate<'_>]) -> ChainStatus {
    let is_issued = |pair: &[X509Certificate<'_>]| match pair {
        [one, next] => one.issuer() == next.subject(),
        _ => true,
    };
    match chain {
        [own] if own.issuer() != own.subject() && says_where_issuer_is(own) => {
            ChainStatus::MissingIntermediate
        }
        _ if chain.windows(2).all(is_issued) => ChainStatus::Complete,
        _ => ChainStatus::OutOfOrder,
    }
}

/// Returns whether a certificate names a URL of its issuer's certificate. Public authorities include
/// it, private ones rarely do.
fn says_where_issuer_is(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.iter().any(|one| one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS)
        }
        _ => false,
    })
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
        use CertificateErrorKind as Kind;
        write!(f, "{}: ", self.path.display())?;
        let text = match &self.kind {
            Kind::Unreadable(error) => {
                write!(f, "cannot be read: {error}")?;
                match error.kind() {
                    io::ErrorKind::NotFound if self.path.is_relative() => {
                        ": the path starts in the working directory of the process"
                    }
                    io::ErrorKind::NotFound => ": check the path",
                    io::ErrorKind::PermissionDenied => {
                        ": the user of the process needs the permission to read it"
                    }
                    _ => "",
                }
            }
            Kind::X509(number) => {
                write!(f, "certificate {number} ")?;
                "is not a valid X.509 certificate: get it again from its issuer"
            }
            Kind::Rejected(error) => {
                write!(f, "the certificate cannot be used ({error})")?;
                ": issue another one"
            }
            Kind::Pem(PemError::MissingSectionEnd { .. }) => {
                "is truncated: BEGIN without END: copy the whole file"
            }
            Kind::Pem(_) => "is not PEM: expected base64 between BEGIN and END",
            Kind::Binary => {
                "is binary (DER): convert it to PEM by `openssl x509 -inform der -in OLD -out NEW`, or \
                 a key by `openssl pkey` with the same options"
            }
            Kind::NoCertificate => "contains no certificate: expected PEM with BEGIN CERTIFICATE",
            Kind::NoKey => "contains no private key: expected PEM with BEGIN (RSA, EC) PRIVATE KEY",
            Kind::Swapped => "contains what the other file should: swap chain and key",
            Kind::Password => {
                "is encrypted: remove its password by `openssl pkey -in OLD -out NEW`"
            }
            Kind::Version => {
                "the certificate has X.509 version 1, which clients reject: \
                 issue it with a subjectAltName, which makes it version 3"
            }
            Kind::Key => {
                "unsupported key: expected RSA of at least 2048 bits, \
                 ECDSA on P-256, P-384 or P-521, or Ed25519"
            }
            Kind::Mismatch => {
                "does not match the certificate: name the key with which the certificate was requested"
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for CertificateError {}
