//! Certificates of the NATS servers, signed by an authority of the cluster's own. They do not expire: only nodes and servers
//! of this cluster trust the authority, and its key is where the operator's other keys are.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) fn make(name: &str) -> Result<Pair> {
    let key = KeyPair::generate().context(CANNOT)?;
    let certificate = params_of_authority(name).self_signed(&key).context(CANNOT)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Makes the certificate that the server at `host` shows to nodes and to the other servers of the cluster `name`.
pub(super) fn issue(name: &str, authority_key: &str, host: &str) -> Result<Pair> {
    let authority_key =
        KeyPair::from_pem(authority_key).context("the authority's key is damaged")?;
    let issuer = Issuer::new(params_of_authority(name), authority_key);
    let key = KeyPair::generate().context(CANNOT)?;
    let mut params = CertificateParams::new(vec![host.to_owned()]).context(CANNOT)?;
    params.distinguished_name.push(DnType::CommonName, host);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).context(CANNOT)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params_of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("NATS of {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

const CANNOT: &str = "cannot make a certificate";
