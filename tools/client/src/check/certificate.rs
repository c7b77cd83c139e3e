//! Checks the TLS parameters and the tracker's certificate.

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConnection, Error, RootCertStore};
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CheckOptions, Finding, Findings, failed, ok, warning};
use crate::Url;
use crate::tls::describe;

const DAY_S: i64 = 24 * 3600;
/// DNS names of a certificate that are listed at most.
const NAMES_MAX: usize = 5;

/// Checks a connection's TLS version and cipher, and the certificate's chain, name and dates.
pub(super) fn check_tls(
    url: &Url,
    tls: &ClientConnection,
    options: &CheckOptions,
    findings: &mut Findings,
) {
    let version = tls.protocol_version().and_then(|it| it.as_str()).unwrap_or("an unknown version");
    let suite = tls.negotiated_cipher_suite().and_then(|it| it.suite().as_str());
    findings.add("tls", ok(format!("{version}, {}", suite.unwrap_or("an unknown cipher"))));
    let Some(authorities) = &options.authorities else {
        return findings.skip(&["certificate", "expiry"], "certificate verification is off");
    };
    let Some((leaf, intermediates)) = tls.peer_certificates().and_then(<[_]>::split_first) else {
        return findings.add("certificate", failed("the server sent none"));
    };
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        return findings.add("certificate", failed("cannot parse it"));
    };
    let validity = certificate.validity();
    let dates = [validity.not_before.timestamp(), validity.not_after.timestamp()];
    let now = UnixTime::now();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    // Validity has its own item, so verify the chain as of a time within it.
    let time = if (dates[0]..=dates[1]).contains(&now_s) { now } else { between(dates) };
    let presented = Presented { certificate: &certificate, leaf, intermediates };
    findings.add(
        "certificate",
        match presented.problem(url, authorities, time) {
            Some(problem) => failed(problem),
            None => ok(format!("for {}, issued by {}", url.name, presented.issuer())),
        },
    );
    findings.add("expiry", expiry(dates, now_s, options.expiry_days.into()));
}

fn between([start, end]: [i64; 2]) -> UnixTime {
    let middle = start.midpoint(end);
    UnixTime::since_unix_epoch(Duration::from_secs(middle.try_into().unwrap_or(0)))
}

/// Returns the verdict on a validity period; times are Unix timestamps.
pub(super) fn expiry([start, end]: [i64; 2], now: i64, days_wanted: i64) -> Finding {
    // The validity period includes both ends.
    let days_until = |time: i64| (time - now).div_euclid(DAY_S);
    let days = days_until(end);
    if now < start {
        let days = days_until(start);
        return failed(format!("not valid for another {days} days; check this machine's clock"));
    }
    if now > end {
        return failed(format!("expired {} days ago", (now - end).div_euclid(DAY_S)));
    }
    let text = format!("valid for {days} more days");
    if days < days_wanted { warning(text) } else { ok(text) }
}

/// A certificate and the chain presented with it.
struct Presented<'a> {
    certificate: &'a X509Certificate<'a>,
    leaf: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
}

impl Presented<'_> {
    /// Returns why clients will reject the certificate, or `None` if they will not.
    fn problem(&self, url: &Url, authorities: &RootCertStore, time: UnixTime) -> Option<String> {
        let parsed = match ParsedCertificate::try_from(self.leaf) {
            Ok(parsed) => parsed,
            Err(error) => return Some(error.to_string()),
        };
        let name = ServerName::try_from(url.name.as_str());
        if name.ok().is_none_or(|name| verify_server_name(&parsed, &name).is_err()) {
            return Some(format!("not valid for {}, only for {}", url.name, self.names()));
        }
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let chain = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            authorities,
            self.intermediates,
            time,
            algorithms.all,
        );
        let why = match chain {
            Ok(()) => return None,
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                match self.intermediates.len() {
                    0 => "no chain was sent and the issuer is not a trusted CA".into(),
                    _ => "the chain does not lead to a trusted CA".into(),
                }
            }
            Err(error) => describe(&error),
        };
        Some(format!("{why} (issued by {})", self.issuer()))
    }

    fn issuer(&self) -> String {
        self.certificate.issuer().to_string()
    }

    fn names(&self) -> String {
        let names = self.certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|it| it.value.general_names.as_slice()).unwrap_or_default();
        let dns = names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
        let mut told: Vec<&str> = dns.take(NAMES_MAX + 1).collect();
        if told.len() > NAMES_MAX {
            told.truncate(NAMES_MAX);
            told.push("others");
        }
        if told.is_empty() { "no host name".into() } else { told.join(", ") }
    }
}
