//! The frame reader against tungstenite: both return the same events for the same bytes, split at the
//! same places.
//!
//! tungstenite checks complete frames, our reader their first bytes. So tungstenite gets more bytes if
//! only our reader has reported an error. Other differences, all intended:
//! - tungstenite accepts lengths that are not in their shortest form, even in control frames. RFC 6455
//!   (5.2) forbids that.
//! - tungstenite does not limit fragments.
//! - tungstenite returns a close frame with an invalid code as one with code 1002. Our reader returns an
//!   error, which is answered with 1002. tungstenite rejects 1014, which is registered.
//! - If a frame breaks two rules, the two may report different ones.

use std::io::{self, Read, Write};

use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};
use wire::ws::{self, Event, ProtocolError};

/// Maximum bytes of a message. Low, so that small inputs reach it.
const MESSAGE_MAX: usize = 300;
/// Maximum bytes of a header.
const HEADER_MAX: usize = 14;

/// The end of a stream.
#[derive(Debug)]
enum End<F> {
    /// It has not ended.
    Open,
    Close(Option<u16>),
    ProtocolError(F),
}

/// Checks `bytes`: flags, the sizes of pieces, and the stream that is split into these pieces.
pub fn check(bytes: &[u8]) {
    let Some((flags, rest)) = bytes.split_first() else { return };
    let Some((sizes, stream)) = rest.split_at_checked(usize::from(flags >> 1 & 7)) else { return };
    let from_client = flags & 1 == 0;
    let mut ours = Ours::new(from_client);
    let mut theirs = Theirs::new(from_client);
    let (mut rest, mut sizes) = (stream, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| usize::from(*size).clamp(1, rest.len()));
        let (piece, later) = rest.split_at(size);
        rest = later;
        ours.take(piece);
        theirs.take(piece);
    }
    if let (End::ProtocolError(_), End::Open) = (&ours.end, &theirs.end) {
        theirs.take(&[0; MESSAGE_MAX + HEADER_MAX]);
    }
    compare(&ours, &theirs);
}

fn compare(ours: &Ours, theirs: &Theirs) {
    let before_the_end = theirs.received.get(..ours.received.len());
    assert_eq!(before_the_end, Some(ours.received.as_slice()), "then {:?}", ours.end);
    if let End::ProtocolError(
        ProtocolError::Length | ProtocolError::ControlTooLong | ProtocolError::Fragments,
    ) = ours.end
    {
        return;
    }
    assert_eq!(
        ours.received.len(),
        theirs.received.len(),
        "{:?} {:?}",
        ours.end,
        theirs.received.last()
    );
    let alike = match (&ours.end, &theirs.end) {
        (End::Open, End::Open) => true,
        (End::Close(Some(1014)), End::Close(Some(1002))) => true,
        (End::Close(ours), End::Close(theirs)) => ours == theirs,
        (End::ProtocolError(ProtocolError::CloseCode), End::Close(Some(1002))) => true,
        (End::ProtocolError(ProtocolError::CloseCode), End::ProtocolError(Error::Utf8(_))) => true,
        (End::ProtocolError(ProtocolError::NotUtf8), End::ProtocolError(theirs)) => {
            matches!(theirs, Error::Utf8(_))
        }
        (End::ProtocolError(ProtocolError::TooBig), End::ProtocolError(theirs)) => {
            matches!(theirs, Error::Capacity(_))
        }
        (End::ProtocolError(_), End::ProtocolError(theirs)) => {
            matches!(theirs, Error::Protocol(_) | Error::Capacity(_))
        }
        _ => false,
    };
    assert!(alike, "{:?}, but {:?}", ours.end, theirs.end);
}

struct Ours {
    reader: ws::Reader,
    input: Vec<u8>,
    /// Events before the end.
    received: Vec<Message>,
    end: End<ProtocolError>,
}

impl Ours {
    fn new(from_client: bool) -> Self {
        let reader = if from_client {
            ws::Reader::for_client_frames()
        } else {
            ws::Reader::for_server_frames()
        };
        Self { reader, input: Vec::new(), received: Vec::new(), end: End::Open }
    }

    fn take(&mut self, piece: &[u8]) {
        self.input.extend(piece);
        loop {
            let (before, had) = (self.input.clone(), self.input.len());
            let read = self.reader.read(&mut self.input, MESSAGE_MAX);
            let consumed = read.consumed;
            match read.event {
                Event::Partial => {
                    self.input.drain(..consumed);
                    assert!(self.input.len() < MESSAGE_MAX + HEADER_MAX);
                    assert_eq!(self.input, before[consumed..], "not consumed, but changed");
                    return;
                }
                event => {
                    assert!(matches!(self.end, End::Open), "{event:?} after {:?}", self.end);
                    assert!((1..=had).contains(&consumed) || matches!(event, Event::Error(_)));
                    match event {
                        Event::Text(text) => self.received.push(Message::text(text.into_owned())),
                        Event::Binary(bytes) => {
                            self.received.push(Message::binary(bytes.into_owned()));
                        }
                        Event::Ping(payload) => {
                            self.received.push(Message::Ping(payload.to_vec().into()));
                        }
                        Event::Pong(payload) => {
                            self.received.push(Message::Pong(payload.to_vec().into()));
                        }
                        Event::Close(code) => self.end = End::Close(code.map(|code| code.0)),
                        Event::Error(fault) => self.end = End::ProtocolError(fault),
                        Event::Partial => {}
                    }
                }
            }
            self.input.drain(..consumed);
        }
    }
}

struct Theirs {
    socket: WebSocket<Pipe>,
    received: Vec<Message>,
    end: End<Error>,
}

impl Theirs {
    fn new(from_client: bool) -> Self {
        let role = if from_client { Role::Server } else { Role::Client };
        let config = WebSocketConfig::default()
            .read_buffer_size(64)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_MAX))
            .max_frame_size(Some(MESSAGE_MAX));
        let socket = WebSocket::from_raw_socket(Pipe(Vec::new()), role, Some(config));
        Self { socket, received: Vec::new(), end: End::Open }
    }

    fn take(&mut self, piece: &[u8]) {
        self.socket.get_mut().0.extend(piece);
        while let End::Open = self.end {
            match self.socket.read() {
                Ok(Message::Close(frame)) => {
                    self.end = End::Close(frame.map(|frame| frame.code.into()));
                }
                Ok(Message::Frame(frame)) => panic!("{frame}"),
                Ok(message) => self.received.push(message),
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.end = End::ProtocolError(error),
            }
        }
    }
}

/// Bytes that have arrived and are not read yet. Written bytes are discarded.
struct Pipe(Vec<u8>);

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = self.0.as_slice().read(room)?;
        self.0.drain(..len);
        Ok(len)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
