//! Describes errors of HTTP and TLS clients in a sentence.

use std::error::Error;
use std::io;

/// Describes the root cause of an error. Errors of TLS are put in plain words.
pub(crate) fn describe(mut error: &(dyn Error + 'static)) -> String {
    loop {
        match (tls_error(error), error.source()) {
            (Some(plain), _) => return plain,
            (None, Some(source)) => error = source,
            (None, None) => return error.to_string(),
        }
    }
}

fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    // The source of an `io::Error` is that of the error inside, which it leaves out.
    if let Some(outer) = error.downcast_ref::<io::Error>() {
        return tls_error(outer.get_ref()?);
    }
    error.downcast_ref::<rustls::Error>().map(client::tls::describe)
}
