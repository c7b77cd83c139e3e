//! The PROXY header, taken off a connection before TLS or HTTP see any of it.

use std::cell::Cell;
use std::io::{self, Read};
use std::net::TcpStream;

use types::limits;

use super::desk::Client;
use crate::client::{Caller, Heard};
use crate::stream::Socket;

/// Takes the header off, if one is due and has come as a whole; else everything stays as it is.
pub(super) fn take(caller: &mut Caller, stream: &TcpStream) -> io::Result<()> {
    if !caller.is_announced() {
        return Ok(());
    }
    let mut room = [0; limits::PROXY_HEADER_MAX];
    let come = match stream.peek(&mut room) {
        Ok(len) => room.get(..len).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    };
    match caller.hear(come) {
        Heard::All(len) => (&mut &*stream).read_exact(room.get_mut(..len).unwrap_or_default()),
        Heard::Part => Ok(()),
        Heard::Nonsense => Err(nonsense()),
    }
}

/// What came of waiting.
pub(super) enum Greeted {
    /// Nothing was due.
    Known,
    /// The header says who it is.
    Named,
    /// The other end has left without a word: it only looked whether somebody is here.
    Gone,
}

/// Waits for the header, if one is due, and takes it off.
pub(super) async fn wait(client: &Cell<Client>, socket: &Socket) -> io::Result<Greeted> {
    let mut told = client.get();
    if !told.caller.is_announced() {
        return Ok(Greeted::Known);
    }
    let (mut come, mut room) = (Vec::new(), vec![0; limits::PROXY_HEADER_MAX]);
    while told.caller.is_announced() {
        let len = socket.peek(&mut room).await?;
        if len == 0 {
            return if come.is_empty() { Ok(Greeted::Gone) } else { Err(nonsense()) };
        }
        let before = come.len();
        come.extend_from_slice(room.get(..len).unwrap_or_default());
        let own = match told.caller.hear(&come) {
            Heard::All(all) => all.saturating_sub(before),
            Heard::Part => len,
            Heard::Nonsense => return Err(nonsense()),
        };
        // It has been seen, so it is there.
        socket.skip(room.get_mut(..own).unwrap_or_default())?;
    }
    client.set(told);
    Ok(Greeted::Named)
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no PROXY header, where one is due")
}
