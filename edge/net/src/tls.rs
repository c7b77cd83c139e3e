//! TLS on TCP connections: [`Certificates`] that can be replaced while serving, and [`TlsSession`]s
//! over non-blocking sockets.

mod certificate;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, ServerConfig, SignatureScheme, SupportedCipherSuite};

pub use certificate::{Certificate, CertificateError, CertificateFiles, ChainStatus};
pub use session::{SEALED_MAX, TlsSession};

/// Describes an error of a TLS session in plain words, from the view of the server.
pub fn describe(error: &io::Error) -> String {
    use AlertDescription as Alert;
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::AlertReceived(alert)) => match alert {
            Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown => {
                format!("the client does not trust the certificate (alert {alert:?})")
            }
            Alert::CertificateExpired => "the client found the certificate expired".into(),
            Alert::UnrecognisedName => "the client expected a certificate for another host".into(),
            alert => format!("the client ended it (alert {alert:?})"),
        },
        Some(rustls::Error::PeerIncompatible(_)) => {
            "the client has no TLS version, cipher or signature in common with the server".into()
        }
        Some(rustls::Error::InvalidMessage(_)) => "the client sent something other than TLS".into(),
        Some(rustls::Error::General(text)) if text.contains("certificate") => {
            "there is no certificate for this client yet".into()
        }
        _ => error.to_string(),
    }
}

/// The TLS configuration of a listener. Cheap to clone.
#[derive(Clone)]
pub struct TlsConfig(pub(crate) Arc<ServerConfig>);

impl TlsConfig {
    /// Creates a configuration for TLS 1.2 and 1.3 with these certificates, for HTTP/1.1 and the
    /// challenges of RFC 8737.
    ///
    /// Sessions are resumed by tickets, so nothing is stored for a client. The tickets' keys change
    /// every few hours and end with the process.
    pub fn new(certificates: &Arc<Certificates>) -> Self {
        let provider =
            CryptoProvider { cipher_suites: SUITES.to_vec(), ..aws_lc_rs::default_provider() };
        #[expect(clippy::expect_used, reason = "the provider's own suites; a test builds it")]
        let builder = ServerConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .expect("the provider has suites for both versions");
        let resolver = Arc::clone(certificates) as Arc<dyn ResolvesServerCert>;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), ACME_PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if let Ok(ticketer) = aws_lc_rs::Ticketer::new() {
            config.ticketer = ticketer;
        }
        // A client uses one ticket at most; two would only cost bytes.
        config.send_tls13_tickets = 1;
        Self(Arc::new(config))
    }

    /// Returns the rustls configuration, for callers with their own sockets.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

/// The protocol of handshakes by which an ACME authority verifies that this server controls a host (RFC 8737). No data
/// follows such a handshake.
const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// Cipher suites in the server's order of preference, which overrides the client's. Many clients prefer
/// AES-256, whose SHA-384 takes a sixth of a handshake; AES-128 is strong enough for a tracker.
const SUITES: &[SupportedCipherSuite] = &[
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
];

/// The current certificates: from files, from an ACME authority, and for its challenges.
#[derive(Debug, Default)]
pub struct Certificates {
    files: ArcSwap<Vec<Certificate>>,
    obtained: ArcSwap<Vec<Certificate>>,
    challenge: ArcSwapOption<Certificate>,
}

impl Certificates {
    /// Replaces the certificates from files, for new connections. They take precedence over those of an
    /// ACME authority. The first certificate of all is the default for clients that name no host, or an
    /// unknown one.
    pub fn replace(&self, certificates: Vec<Certificate>) {
        self.files.store(Arc::new(certificates));
    }

    /// Replaces the certificates from an ACME authority, for new connections.
    pub fn replace_obtained(&self, certificates: Vec<Certificate>) {
        self.obtained.store(Arc::new(certificates));
    }

    /// Sets or removes the certificate that answers an authority's challenge. Only connections for
    /// `acme-tls/1` see it (RFC 8737).
    pub fn set_challenge(&self, certificate: Option<Certificate>) {
        self.challenge.store(certificate.map(Arc::new));
    }

    /// Returns the certificates from files.
    pub fn load(&self) -> Arc<Vec<Certificate>> {
        self.files.load_full()
    }

    /// Returns each host name and address with the validity of the certificate that its clients get. A
    /// certificate without any is listed under the empty name.
    pub fn validities(&self) -> BTreeMap<String, Range<SystemTime>> {
        let mut validities = BTreeMap::new();
        for certificate in self.files.load().iter().chain(self.obtained.load().iter()) {
            let unnamed = [String::new()];
            let names = match certificate.names() {
                [] => unnamed.as_slice(),
                names => names,
            };
            for name in names {
                let validity = || certificate.begins()..certificate.expires();
                validities.entry(name.clone()).or_insert_with(validity);
            }
        }
        validities
    }

    /// Returns the first certificate for `host` with a signature scheme of the client, or else the first
    /// one with such a scheme. If a host has an ECDSA and an RSA certificate, old clients get the latter.
    fn find(&self, host: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let (files, obtained) = (self.files.load(), self.obtained.load());
        let all = files.iter().chain(obtained.iter());
        let mut fit = all.filter(|one| one.supports_any_scheme(schemes)).peekable();
        let first = fit.peek().copied();
        let named = host.and_then(|host| fit.find(|one| one.covers_host(host)));
        named.or(first).map(Certificate::key)
    }

    fn find_challenge(&self, host: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let challenge = self.challenge.load();
        let challenge = challenge.as_ref()?;
        challenge.covers_host(host?).then(|| challenge.key())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that also offers HTTP gets HTTP.
        let is_challenge = hello.alpn().is_some_and(|mut offered| {
            offered.next() == Some(ACME_PROTOCOL) && offered.next().is_none()
        });
        //= rfc8737#only-alpn
        if is_challenge {
            return self.find_challenge(hello.server_name());
        }
        self.find(hello.server_name(), hello.signature_schemes())
    }
}
