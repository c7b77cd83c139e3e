//! Certificates from files, and sessions with a rustls client over pipes in memory.

mod certificates;
mod challenges;
mod sessions;

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;

use super::*;

/// A certificate authority for tests.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let (params, key) = (Self::params(name), ecdsa());
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    /// Creates an intermediate authority.
    fn beneath(&self, name: &str) -> Self {
        let (params, key) = (Self::params(name), ecdsa());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// Issues a host's certificate, as PEM.
    fn issue(&self, params: &CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// Issues a host's certificate with a new key.
    fn host(&self, names: &[&str]) -> Certificate {
        let key = ecdsa();
        in_memory(&self.issue(&params(names), &key), &key)
    }
}

fn ecdsa() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| String::from(*name)).collect::<Vec<_>>())
        .unwrap()
}

fn in_memory(chain: &str, key: &KeyPair) -> Certificate {
    let pem = [chain, &key.serialize_pem()].concat();
    Certificate::from_pem(pem.as_bytes(), Path::new("in memory")).unwrap()
}

/// Returns the extension with the URL of the issuer's certificate, like those of public authorities.
fn authority_information_access() -> CustomExtension {
    let url = b"http://ca.test/ca.der";
    let ca_issuers = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
    let name = [&[0x86, url.len() as u8], url.as_slice()].concat();
    let description = sequence(&[ca_issuers.as_slice(), &name].concat());
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], sequence(&description))
}

/// Encodes a DER sequence of up to 127 bytes.
fn sequence(content: &[u8]) -> Vec<u8> {
    [&[0x30, content.len() as u8], content].concat()
}
