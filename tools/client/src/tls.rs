//! Whom TLS believes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whose certificates are believed.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those which these authorities have issued, for the host that was asked for, and now.
    Authorities(Arc<RootCertStore>),
    /// Any, of whoever shows that its key is theirs.
    KeyHolder,
    /// Any, without a look: for load, which has other things to do.
    Anybody,
}

/// Why a file of authorities is of no use: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAuthorities(String);

/// The authorities that browsers trust, and those in the PEM file `more`.
pub fn authorities(more: Option<&Path>) -> Result<RootCertStore, BadAuthorities> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let Some(path) = more else { return Ok(roots) };
    let bad = |why: &dyn fmt::Display| BadAuthorities(format!("{}: {why}", path.display()));
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| bad(&format_args!("cannot be read: {error}")))?;
    if read.is_empty() {
        return Err(bad(&"holds no certificate"));
    }
    for certificate in read {
        roots.add(certificate).map_err(|error| bad(&format_args!("is no authority: {error}")))?;
    }
    Ok(roots)
}

/// TLS 1.2 and 1.3 for HTTP/1.1, as most clients speak it.
pub fn config(trust: &Trust) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let credulous = |looks_at_keys| Arc::new(Credulous { provider, looks_at_keys });
    let mut config = match trust {
        Trust::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
        Trust::KeyHolder => builder.dangerous().with_custom_certificate_verifier(credulous(true)),
        Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(credulous(false)),
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Believes every certificate.
#[derive(Debug)]
struct Credulous {
    provider: Arc<CryptoProvider>,
    looks_at_keys: bool,
}

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.looks_at_keys {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.looks_at_keys {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Display for BadAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadAuthorities {}
