//! Certificates and keys from PEM files.

use std::net::IpAddr;
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
    /// Host names in lower case, and IP addresses; a leading `*` stands for one label.
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
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", .path.display())]
pub struct CertificateError {
    /// The file with the error.
    pub path: PathBuf,
    /// The fault of the file, and the remedy.
    reason: String,
}

impl Certificate {
    /// Reads a certificate and its key, and checks that they match.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or parsed, or they do not belong together. The error names the file and the remedy.
    pub fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let chain = read_file(&files.chain)?;
        let key = read_file(&files.key)?;
        let chain = Pem { path: &files.chain, text: &chain };
        Self::matched(&chain, &Pem { path: &files.key, text: &key })
    }

    /// Parses a text with the chain and the key in any order, and checks that they match. `path` is
    /// named in errors.
    ///
    /// # Errors
    ///
    /// If either is missing or cannot be parsed, or they do not match.
    pub fn from_pem(pem: &[u8], path: &Path) -> Result<Self, CertificateError> {
        let pem = Pem { path, text: pem };
        Self::matched(&pem, &pem)
    }

    /// Parses the answer to a challenge (RFC 8737) from such a text. Key and certificate are not compared,
    /// because rustls does not know the certificate's critical extension.
    ///
    /// # Errors
    ///
    /// If either is missing or cannot be parsed.
    pub fn challenge_from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let pem = Pem { path: Path::new("challenge"), text: pem };
        Self::unmatched(&pem, &pem)
    }

    fn matched(chain: &Pem<'_>, key: &Pem<'_>) -> Result<Self, CertificateError> {
        let certificate = Self::unmatched(chain, key)?;
        certificate.key.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => key.error(
                "does not match the certificate: name the key with which the certificate was requested",
            ),
            error => {
                chain.error(format!("the certificate cannot be used ({error}): issue another one"))
            }
        })?;
        Ok(certificate)
    }

    fn unmatched(chain_pem: &Pem<'_>, key_pem: &Pem<'_>) -> Result<Self, CertificateError> {
        let chain = chain_pem.chain()?;
        let key = key_pem.key()?;
        let parsed = chain.iter().zip(1..).map(|(der, number)| match X509Certificate::from_der(der) {
            Ok((_, certificate)) => Ok(certificate),
            Err(_) => Err(chain_pem.error(format!(
                "certificate {number} is not a valid X.509 certificate: get it again from its issuer"
            ))),
        });
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        // A chain has at least one certificate.
        let own = &parsed[0];
        if own.version() != X509Version::V3 {
            return Err(chain_pem.error(
                "the certificate has X.509 version 1, which clients reject: issue it with a subjectAltName, \
                 which makes it version 3",
            ));
        }
        let names = names(own);
        let valid = [own.validity().not_before, own.validity().not_after]
            .map(|time| instant(time.timestamp()));
        let chain_status = check_chain(&parsed);
        let signing = any_supported_type(&key).map_err(|_| {
            key_pem.error(
                "unsupported key: expected RSA of at least 2048 bits, ECDSA on P-256, P-384 or P-521, or \
                 Ed25519",
            )
        })?;
        let key = CertifiedKey::new(chain, signing);
        Ok(Self { key: Arc::new(key), names, valid, chain: chain_status })
    }

    /// Returns the host names of the certificate, in lower case, and its IP addresses, without brackets.
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

fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound if path.is_relative() => {
                ": the path starts in the working directory of the process"
            }
            io::ErrorKind::NotFound => ": check the path",
            io::ErrorKind::PermissionDenied => {
                ": the user of the process needs the permission to read it"
            }
            _ => "",
        };
        Pem { path, text: &[] }.error(format!("cannot be read: {error}{remedy}"))
    })
}

/// The content of a file.
struct Pem<'a> {
    path: &'a Path,
    text: &'a [u8],
}

impl Pem<'_> {
    /// Returns the certificates, at least one.
    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(self.text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| self.pem_error(&error))?;
        if !chain.is_empty() {
            return Ok(chain);
        }
        Err(match PrivateKeyDer::from_pem_slice(self.text) {
            Ok(_) => self.error(SWAPPED),
            Err(_) if self.is_der() => self.error(BINARY),
            Err(_) => self.error("contains no certificate: expected PEM with BEGIN CERTIFICATE"),
        })
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, CertificateError> {
        PrivateKeyDer::from_pem_slice(self.text).map_err(|error| {
            // PKCS#8 has the mark in its first line, older forms in a header line.
            let mark = b"ENCRYPTED";
            let is_locked = self.text.windows(mark.len()).any(|window| window == mark);
            match error {
                _ if is_locked => self
                    .error("is encrypted: remove its password by `openssl pkey -in OLD -out NEW`"),
                PemError::NoItemsFound if self.chain().is_ok() => self.error(SWAPPED),
                PemError::NoItemsFound if self.is_der() => self.error(BINARY),
                PemError::NoItemsFound => self.error(
                    "contains no private key: expected PEM with BEGIN (RSA, EC) PRIVATE KEY",
                ),
                error => self.pem_error(&error),
            }
        })
    }

    /// Returns whether the file begins as a long sequence in DER does.
    fn is_der(&self) -> bool {
        matches!(self.text, [0x30, 0x80..=0xff, ..])
    }

    fn error(&self, reason: impl Into<String>) -> CertificateError {
        CertificateError { path: self.path.to_owned(), reason: reason.into() }
    }

    fn pem_error(&self, error: &PemError) -> CertificateError {
        self.error(match error {
            PemError::MissingSectionEnd { .. } => {
                "is truncated: BEGIN without END: copy the whole file"
            }
            _ => "is not PEM: expected base64 between BEGIN and END",
        })
    }
}

const SWAPPED: &str = "contains what the other file should: swap chain and key";
const BINARY: &str = "is binary (DER): convert it to PEM by `openssl x509 -inform der -in OLD -out NEW`, or a key \
                      by `openssl pkey` with the same options";

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

/// Returns the host names and addresses of a certificate's `subjectAltName` (RFC 5280, section 4.2.1.6).
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.map(|extension| extension.value.general_names.as_slice());
    let names = names.unwrap_or_default().iter();
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    };
    names.filter_map(host).collect()
}

/// Returns the address of 4 or 16 bytes in network byte order, or `None` for any other length.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(v6)
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
