//! Describes errors of HTTP and TLS clients in a sentence.

use std::error::Error;
use std::io;

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
    error.downcast_ref::<rustls::Error>().map(client::tls::describe)
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

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
