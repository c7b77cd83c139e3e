//! Describes errors of HTTP and TLS clients in a sentence.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Describes an error with its causes, each once. Errors of TLS are put in plain words.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(plain) = tls_error(error) {
            return join(text, &plain);
        }
        text = join(text, &error.to_string());
        next = error.source();
    }
    text
}

/// Describes only the root cause of an error. Errors of TLS are put in plain words.
pub(crate) fn describe_root(mut error: &(dyn Error + 'static)) -> String {
    loop {
        match (tls_error(error), error.source()) {
            (Some(plain), _) => return plain,
            (None, Some(source)) => error = source,
            (None, None) => return error.to_string(),
        }
    }
}

/// Appends a cause, unless the text ends with it already.
fn join(text: String, cause: &str) -> String {
    match text.as_str() {
        "" => cause.into(),
        text if text.ends_with(cause) => text.into(),
        text => format!("{text}: {cause}"),
    }
}

/// Describes an error of TLS, if it is one.
fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    // The source of an `io::Error` is that of the error inside, which it leaves out.
    if let Some(outer) = error.downcast_ref::<io::Error>() {
        return tls_error(outer.get_ref()?);
    }
    Some(match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(error) => certificate_error(error),
        rustls::Error::InvalidMessage(_) => "the server does not use TLS on this port".into(),
        rustls::Error::AlertReceived(alert) => format!("the server refused TLS (alert {alert:?})"),
        error => error.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_cause_once() {
        let root = io::Error::other("refused");
        let error = anyhow::Error::new(root).context("connect").context("client: connect");
        let error: Box<dyn Error + Send + Sync> = error.into();
        assert_eq!(describe(error.as_ref()), "client: connect: refused");
        assert_eq!(describe_root(error.as_ref()), "refused");
    }

    #[test]
    fn puts_tls_errors_in_plain_words() {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let unknown = io::Error::new(io::ErrorKind::InvalidData, unknown);
        let plain = "the server's certificate is from an unknown authority";
        assert_eq!(describe(&unknown), plain);
        let outer = anyhow::Error::new(unknown).context("connect");
        let outer: Box<dyn Error + Send + Sync> = outer.into();
        assert_eq!(describe(outer.as_ref()), format!("connect: {plain}"));
        assert_eq!(describe_root(outer.as_ref()), plain);
    }
}
