//! TLS configuration of clients: which certificates they trust.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The server certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Certificates issued by these root CAs, valid now and for the requested host.
    Roots(Arc<RootCertStore>),
    /// Any certificate, if the server proves possession of its private key.
    AnyCertificate,
    /// Any certificate, without verifying even the handshake signature. For load tests, which save
    /// the CPU time.
    NoVerification,
}

/// Why a CA file cannot be used: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaError(String);

/// Returns the root CAs that browsers trust.
pub(crate) fn web_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Returns the root CAs that browsers trust, plus those in the PEM file `more`.
///
/// # Errors
///
/// Fails if the file cannot be read, contains no certificate, or one of them is no CA.
pub fn authorities(more: Option<&Path>) -> Result<RootCertStore, CaError> {
    let mut roots = web_roots();
    let Some(path) = more else { return Ok(roots) };
    let bad = |why: &dyn fmt::Display| CaError(format!("{}: {why}", path.display()));
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| match error {
        PemError::Io(error) => bad(&format_args!("cannot read the file: {error}")),
        error => bad(&format_args!("expected PEM certificates: {error}")),
    })?;
    if read.is_empty() {
        return Err(bad(&"expected PEM certificates, found none"));
    }
    for certificate in read {
        roots
            .add(certificate)
            .map_err(|error| bad(&format_args!("not a CA certificate: {error}")))?;
    }
    Ok(roots)
}

/// Returns a TLS 1.2 and 1.3 configuration with the ALPN protocol `http/1.1`, like most clients'.
///
/// # Errors
///
/// Returns an error if the provider supports none of the protocol versions. Ours supports both.
pub fn config(trust: &Trust) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let skip_verification =
        |checks_signatures| Arc::new(SkipVerification { provider, checks_signatures });
    let mut config = match trust {
        Trust::Roots(roots) => builder.with_root_certificates(Arc::clone(roots)),
        Trust::AnyCertificate => {
            builder.dangerous().with_custom_certificate_verifier(skip_verification(true))
        }
        Trust::NoVerification => {
            builder.dangerous().with_custom_certificate_verifier(skip_verification(false))
        }
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Describes an error of TLS in plain words, from the view of a client.
pub fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate_error(error),
        Error::InvalidMessage(_) => "the server does not use TLS on this port".into(),
        Error::AlertReceived(alert) => format!("the server refused TLS (alert {alert:?})"),
        error => error.to_string(),
    }
}

fn certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "the server's certificate is from an unknown authority".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another host name".into()
        }
        CertificateError::BadSignature => {
            "the server's certificate has an invalid signature".into()
        }
        CertificateError::BadEncoding => "the server's certificate is malformed".into(),
        CertificateError::Revoked => "the server's certificate has been revoked".into(),
        // The only way to see which error of the verifier is inside.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server's certificate is that of an authority (CA), which servers may not use"
                .into()
        }
        _ => "the server's certificate cannot be verified".into(),
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct SkipVerification {
    provider: Arc<CryptoProvider>,
    checks_signatures: bool,
}

impl ServerCertVerifier for SkipVerification {
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
        if !self.checks_signatures {
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
        if !self.checks_signatures {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Display for CaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CaError {}
