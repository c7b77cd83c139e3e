//! A connection, with TLS or without, that is waited for until a deadline and no longer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::{Fault, Kind, Url};

/// Until when something is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    /// How long that was in the beginning, for what is said about it.
    patience: Duration,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, patience }
    }

    /// What is left; nothing if there is none.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(crate) fn missed(&self, what: &str) -> Fault {
        Fault::new(Kind::Silent, format!("{what} within {}", seconds(self.patience)))
    }
}

/// As people write it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// A connection to a tracker.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    address: SocketAddr,
}

impl Stream {
    /// Connects, and goes through TLS if the URL asks for it.
    pub(crate) fn open(
        url: &Url,
        address: SocketAddr,
        tls: &Arc<ClientConfig>,
        deadline: Deadline,
    ) -> Result<Self, Fault> {
        let missed = || deadline.missed(&format!("no connection to {address}"));
        let left = deadline.left().ok_or_else(missed)?;
        let tcp = TcpStream::connect_timeout(&address, left).map_err(|error| {
            if error.kind() == ErrorKind::TimedOut {
                missed()
            } else {
                unreachable(address, &error)
            }
        })?;
        // A request leaves in one write; nothing is gained by waiting for more.
        let _ = tcp.set_nodelay(true);
        let mut stream = Self { tcp, tls: None, address };
        if url.scheme.is_secure() {
            let name = ServerName::try_from(url.name.clone()).map_err(|_| {
                Fault::new(Kind::Tls, format!("{} is no name for a certificate", url.name))
            })?;
            let mut session = ClientConnection::new(Arc::clone(tls), name)
                .map_err(|error| Fault::new(Kind::Tls, format!("no TLS: {error}")))?;
            let mut timed = Timed { tcp: &stream.tcp, deadline };
            while session.is_handshaking() {
                let done = session.complete_io(&mut timed);
                done.map_err(|error| stream.fault(&error, deadline, "no TLS handshake"))?;
            }
            stream.tls = Some(session.into());
        }
        Ok(stream)
    }

    /// Sends all of it.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), Fault> {
        let mut timed = Timed { tcp: &self.tcp, deadline };
        let written = match &mut self.tls {
            Some(tls) => {
                let mut stream = rustls::Stream::new(&mut **tls, &mut timed);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
            None => timed.write_all(bytes),
        };
        written.map_err(|error| self.fault(&error, deadline, "the request was not taken"))
    }

    /// Reads what comes next; 0 at the end.
    pub(crate) fn read(&mut self, room: &mut [u8], deadline: Deadline) -> Result<usize, Fault> {
        let mut timed = Timed { tcp: &self.tcp, deadline };
        let read = match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut timed).read(room),
            None => timed.read(room),
        };
        match read {
            // TLS ended without a word; whether all has come, the answer itself tells.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read.map_err(|error| self.fault(&error, deadline, "no whole answer")),
        }
    }

    /// Our own address.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.tcp.local_addr().ok()
    }

    /// What TLS has agreed on.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        self.tls.as_deref()
    }

    fn fault(&self, error: &io::Error, deadline: Deadline, what: &str) -> Fault {
        let address = self.address;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                deadline.missed(&format!("{what} from {address}"))
            }
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                Fault::new(Kind::Tls, format!("TLS with {address} failed: {error}"))
            }
            _ => Fault::new(
                Kind::Lost,
                format!("{what}: the connection to {address} broke: {error}"),
            ),
        }
    }
}

/// Nobody is there.
pub(crate) fn unreachable(address: SocketAddr, error: &io::Error) -> Fault {
    Fault::new(Kind::Unreachable, format!("cannot reach {address}: {error}"))
}

/// A socket of which each read and write ends at the deadline, however little comes at a time.
struct Timed<'a> {
    tcp: &'a TcpStream,
    deadline: Deadline,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        self.deadline.left().ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.left()?))?;
        self.tcp.read(room)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()?))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
