//! The PROXY header, which is read before TLS and HTTP see any input.

use std::io::{self, Read};
use std::net::TcpStream;

use types::{ConnectionKey, limits};

use crate::client::RemoteClient;
use crate::connection_error::{ConnectionError, ConnectionResult};
use crate::worker::Worker;

/// Reads the header if one is expected and all of it has come. Otherwise consumes nothing.
pub(super) fn take(client: &mut RemoteClient, stream: &TcpStream) -> ConnectionResult<()> {
    if !client.expects_proxy_header() {
        return Ok(());
    }
    let mut buffer = [0; limits::PROXY_HEADER_MAX];
    let input = match stream.peek(&mut buffer) {
        Ok(len) => &buffer[..len],
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if let Some(len) = client.read_proxy_header(input)? {
        (&mut &*stream).read_exact(&mut buffer[..len])?;
    }
    Ok(())
}

/// Waits for the header, and reads it; the client's address may change. Returns false if the other end has
/// closed without sending a byte, as health checks do.
pub(super) async fn read(
    worker: &Worker,
    key: ConnectionKey,
    client: &mut RemoteClient,
) -> ConnectionResult<bool> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; limits::PROXY_HEADER_MAX]);
    while client.expects_proxy_header() {
        let len = worker.peek(key, &mut buffer).await?;
        if len == 0 && seen.is_empty() {
            return Ok(false);
        }
        if len == 0 {
            return Err(ConnectionError::BadProxyHeader);
        }
        let before = seen.len();
        seen.extend_from_slice(&buffer[..len]);
        let header_len = match client.read_proxy_header(&seen)? {
            Some(all) => all.saturating_sub(before),
            None => len,
        };
        // Consume what belongs to the header. The bytes were peeked at, so they are there.
        worker.connections.borrow().socket(key).skip(&mut buffer[..header_len])?;
    }
    Ok(true)
}
