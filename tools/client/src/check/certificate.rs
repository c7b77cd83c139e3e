//! What TLS has agreed on, and the tracker's certificate.

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConnection, Error, RootCertStore};
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Findings, Options, Verdict};
use crate::Url;

const DAY_S: i64 = 24 * 3600;
/// Names of a certificate that are told.
const NAMES_MAX: usize = 5;

/// Looks at a connection's version and cipher, and at the certificate's chain, name and dates.
pub(super) fn judge(url: &Url, tls: &ClientConnection, options: &Options, found: &mut Findings) {
    let version = tls.protocol_version().and_then(|it| it.as_str()).unwrap_or("an unknown version");
    let suite = tls.negotiated_cipher_suite().and_then(|it| it.suite().as_str());
    found.say("tls", Verdict::Ok, format!("{version}, {}", suite.unwrap_or("an unknown cipher")));
    let Some(authorities) = &options.authorities else {
        return found.skip(&["certificate", "expiry"], "certificates are not looked at");
    };
    let Some((leaf, intermediates)) = tls.peer_certificates().and_then(<[_]>::split_first) else {
        return found.say("certificate", Verdict::Failed, "there is none");
    };
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
        return found.say("certificate", Verdict::Failed, "it cannot be read");
    };
    let validity = certificate.validity();
    let dates = [validity.not_before.timestamp(), validity.not_after.timestamp()];
    let now = UnixTime::now();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    // Its dates are an item of their own, so its chain is looked at as of a time when it is good.
    let time = if (dates[0]..=dates[1]).contains(&now_s) { now } else { between(dates) };
    let seen = Seen { certificate: &certificate, leaf, intermediates };
    match seen.trouble(url, authorities, time) {
        Some(trouble) => found.say("certificate", Verdict::Failed, trouble),
        None => {
            let text = format!("for {}, issued by {}", url.name, seen.issuer());
            found.say("certificate", Verdict::Ok, text);
        }
    }
    let (verdict, text) = expiry(dates, now_s, options.expiry_days.into());
    found.say("expiry", verdict, text);
}

fn between([start, end]: [i64; 2]) -> UnixTime {
    let middle = start.midpoint(end);
    UnixTime::since_unix_epoch(Duration::from_secs(middle.try_into().unwrap_or(0)))
}

/// From when until when a certificate is good, in seconds since 1970.
pub(super) fn expiry([start, end]: [i64; 2], now: i64, days_wanted: i64) -> (Verdict, String) {
    // Both ends count.
    let days = (end - now).div_euclid(DAY_S);
    if now < start {
        let days = (start - now).div_euclid(DAY_S);
        return (
            Verdict::Failed,
            format!("it is not good before {days} days from now: is the clock right?"),
        );
    }
    if now > end {
        let days = (now - end).div_euclid(DAY_S);
        return (Verdict::Failed, format!("it has expired {days} days ago"));
    }
    let verdict = if days < days_wanted { Verdict::Warning } else { Verdict::Ok };
    (verdict, format!("it is good for {days} more days"))
}

/// A certificate, and what came with it.
struct Seen<'a> {
    certificate: &'a X509Certificate<'a>,
    leaf: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
}

impl Seen<'_> {
    /// Why clients will not believe it.
    fn trouble(&self, url: &Url, authorities: &RootCertStore, time: UnixTime) -> Option<String> {
        let parsed = match ParsedCertificate::try_from(self.leaf) {
            Ok(parsed) => parsed,
            Err(error) => return Some(error.to_string()),
        };
        let name = ServerName::try_from(url.name.as_str());
        if name.ok().is_none_or(|name| verify_server_name(&parsed, &name).is_err()) {
            return Some(format!("it is not for {}, but for {}", url.name, self.names()));
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
                    0 => "it stands alone, and its issuer is no authority that is trusted here"
                        .into(),
                    _ => "its chain leads to no authority that is trusted here".into(),
                }
            }
            Err(error) => error.to_string(),
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
        if told.is_empty() { "no host's name".into() } else { told.join(", ") }
    }
}
