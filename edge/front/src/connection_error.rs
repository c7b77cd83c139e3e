//! Why the tracker ends a connection.

use std::fmt;
use std::io;

use tracker::counters::DropReason;

/// A failure that ends a connection.
#[derive(Debug)]
pub(crate) enum ConnectionError {
    /// The socket failed, most often because the client reset the connection.
    Socket(io::Error),
    /// The client's address is banned, holds as many connections as it may, or sends too many requests.
    NotAdmitted(DropReason),
    /// A trusted proxy sent no PROXY header, or a malformed one.
    BadProxyHeader,
    /// A PROXY header came from an address that is not a trusted proxy.
    UntrustedProxy,
    /// TLS failed.
    Tls(io::Error),
    /// The client closed the connection during the TLS handshake.
    HandshakeAborted,
    /// The client spoke HTTP where the listener speaks TLS.
    NotTls,
}

/// The result of a step of a connection, which its failure ends.
pub(crate) type ConnectionResult<T> = Result<T, ConnectionError>;

impl ConnectionError {
    /// Returns the reason under which the connection is counted.
    pub(crate) fn drop_reason(&self) -> DropReason {
        match self {
            Self::Socket(_) => DropReason::Reset,
            Self::NotAdmitted(reason) => *reason,
            Self::BadProxyHeader => DropReason::BadProxyHeader,
            Self::UntrustedProxy => DropReason::UntrustedProxy,
            Self::Tls(_) | Self::HandshakeAborted | Self::NotTls => DropReason::BadTls,
        }
    }

    /// Tells errors of TLS from those of the socket below it.
    pub(crate) fn from_tls(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData && error.raw_os_error().is_none() {
            Self::Tls(error)
        } else {
            Self::Socket(error)
        }
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => write!(f, "{error}"),
            Self::NotAdmitted(reason) => f.write_str(reason.label()),
            Self::BadProxyHeader => {
                f.write_str("expected a PROXY header from this trusted proxy, found other bytes")
            }
            Self::UntrustedProxy => {
                f.write_str("found a PROXY header from an address that is not in `trusted_proxies`")
            }
            Self::Tls(error) => write!(f, "TLS failed: {}", net::tls::describe(error)),
            Self::HandshakeAborted => {
                f.write_str("the client closed the connection during the TLS handshake")
            }
            Self::NotTls => f.write_str("expected TLS, found HTTP"),
        }
    }
}
