//! The handshake by which an ACME authority verifies that this server controls a host (RFC 8737).

use rustls::server::ClientHello;

/// The protocol that such a handshake negotiates. No data follows it.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// Returns whether a client offers only this protocol. A client that also offers HTTP gets HTTP.
pub(super) fn is_acme_challenge(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(PROTOCOL) && offered.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{
        ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, version,
    };

    use super::super::{Certificate, Certificates, TlsConfig, TlsSession};
    use super::PROTOCOL;

    /// Accepts any certificate, as an authority does, which only checks the extension.
    #[derive(Debug)]
    struct AcceptAny(WebPkiSupportedAlgorithms);

    impl ServerCertVerifier for AcceptAny {
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
            rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.supported_schemes()
        }
    }

    fn certificate(host: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let text = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        Certificate::from_pem(text.as_bytes(), Path::new("challenge")).unwrap()
    }

    /// The result of a handshake.
    struct HandshakeResult {
        shown: CertificateDer<'static>,
        protocol: Option<Vec<u8>>,
        /// The bytes of a request that the server read after the handshake, and whether the session ended.
        heard: (usize, bool),
    }

    fn handshake(
        certificates: &Arc<Certificates>,
        host: &str,
        protocols: &[&[u8]],
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Result<HandshakeResult, Error> {
        let provider: Arc<CryptoProvider> = aws_lc_rs::default_provider().into();
        let verifier = AcceptAny(provider.signature_verification_algorithms);
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = ClientConnection::new(config.into(), name).unwrap();
        let mut server = TlsSession::new(&TlsConfig::new(certificates)).unwrap();
        let mut plain = vec![0; 64 * 1024];
        let mut heard = (0, false);
        // A few flights in each direction, and a request as soon as possible.
        for _ in 0..4 {
            if !client.is_handshaking() {
                client.writer().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            }
            let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
            client.write_tls(&mut to_server).unwrap();
            if let Ok(len) = server.open(&mut to_server, &mut plain, &mut to_client) {
                heard = (heard.0 + len, server.is_over());
            }
            let mut left = to_client.as_slice();
            while !left.is_empty() {
                client.read_tls(&mut left).unwrap();
                client.process_new_packets()?;
            }
        }
        let shown = client.peer_certificates().unwrap()[0].clone().into_owned();
        Ok(HandshakeResult { shown, protocol: client.alpn_protocol().map(<[u8]>::to_vec), heard })
    }

    //= rfc8737#only-alpn
    //= type=test
    //= rfc8737#no-data
    //= type=test
    #[test]
    fn challenge_certificate_is_for_challenges_only() {
        for version in [&version::TLS12, &version::TLS13] {
            let certificates = Arc::new(Certificates::default());
            let [usual, proof] = ["t.example"; 2].map(certificate);
            certificates.replace_obtained(vec![usual.clone()]);
            // There is no challenge.
            let refused = |host| handshake(&certificates, host, &[PROTOCOL], version).is_err();
            assert!(refused("t.example"));
            certificates.set_challenge(Some(proof.clone()));
            let result = handshake(&certificates, "t.example", &[PROTOCOL], version).unwrap();
            assert_eq!(Some(&result.shown), proof.der());
            assert_eq!(result.protocol.as_deref(), Some(PROTOCOL));
            assert_eq!(result.heard, (0, true), "no request is taken over it");
            assert!(refused("other.example"));
            // Other clients do not see it.
            let http: &[u8] = b"http/1.1";
            for protocols in [&[][..], &[http], &[http, PROTOCOL], &[PROTOCOL, http]] {
                let result = handshake(&certificates, "t.example", protocols, version).unwrap();
                assert_eq!(Some(&result.shown), usual.der());
                assert_ne!(result.protocol.as_deref(), Some(PROTOCOL));
                assert!(result.heard.0 > 0 && !result.heard.1);
            }
            certificates.set_challenge(None);
            assert!(refused("t.example"));
        }
    }

    #[test]
    fn certificates_from_files_take_precedence() {
        let certificates = Arc::new(Certificates::default());
        assert!(
            handshake(&certificates, "a.example", &[], &version::TLS13).is_err(),
            "there is none yet"
        );
        let [a, b, c] = ["a.example", "b.example", "b.example"].map(certificate);
        let shown = |host| {
            let result = handshake(&certificates, host, &[], &version::TLS13).unwrap();
            result.shown
        };
        certificates.replace_obtained(vec![a.clone(), b]);
        assert_eq!(Some(&shown("unknown.example")), a.der());
        certificates.replace(vec![c.clone()]);
        assert_eq!(Some(&shown("a.example")), a.der());
        for host in ["b.example", "unknown.example"] {
            assert_eq!(Some(&shown(host)), c.der());
        }
        let expiries = certificates.expiries();
        assert_eq!(expiries.keys().collect::<Vec<_>>(), ["a.example", "b.example"]);
        assert_eq!(expiries["b.example"], c.expires());
        assert!(a.begins() < a.expires());
    }
}
