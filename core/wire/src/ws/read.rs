//! Reading: bytes of a connection become messages and control frames.

use std::borrow::Cow;

use types::limits;

use super::frame::{self, FrameHeader, Opcode, ParsedFrame};
use super::{CloseCode, ProtocolError};

/// What a connection has said so far, where that matters for what follows.
#[derive(Debug)]
pub struct Reader {
    /// A message of which not all frames have come.
    fragments: Option<Box<FragmentedMessage>>,
    /// Whether the other side has to mask: it is the client.
    masked: bool,
    ended: bool,
}

/// What [`Reader::read`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadEvent<'a> {
    /// Bytes of the input that are done with, and not to be given again.
    pub consumed: usize,
    /// What they held.
    pub event: Event<'a>,
}

/// What the other side says.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing more for now. A frame needs at least so many bytes behind those that were given and
    /// are not consumed.
    Partial {
        /// Bytes, at least 1.
        missing: usize,
    },
    /// A text message. It lies in the input if it came as one frame.
    Text(Cow<'a, str>),
    /// A binary message. It lies in the input if it came as one frame.
    Binary(Cow<'a, [u8]>),
    /// To be answered by a [`super::pong`] with the same payload.
    Ping(&'a [u8]),
    /// The answer to a ping, or a sign of life.
    Pong(&'a [u8]),
    /// To be answered by a [`super::close`], if none was sent yet. Nothing is read after it.
    Close(Option<CloseCode>),
    /// The other side broke the protocol: to be closed with the fault's code and text. Nothing is
    /// read after it.
    Error(ProtocolError),
}

/// The frames of a message that have come.
#[derive(Debug)]
struct FragmentedMessage {
    text: bool,
    bytes: Vec<u8>,
    /// Bytes from the start that are whole UTF-8 characters, if it is a text.
    valid: usize,
    frames: u32,
}

impl Reader {
    /// Reads what a client says.
    pub fn for_client_frames() -> Self {
        Self { fragments: None, masked: true, ended: false }
    }

    /// Reads what a server says.
    pub fn for_server_frames() -> Self {
        Self { fragments: None, masked: false, ended: false }
    }

    /// Takes one event from the start of `input`, which holds all that has come and was not consumed.
    /// A message, in one frame or many, may have `message_max` bytes; a frame's header tells, so that
    /// no more than that and 14 bytes need ever be kept for the next call.
    ///
    /// A whole frame is unmasked in place; what is not consumed stays as it is. After a close frame
    /// or a fault, all that comes is consumed and says nothing.
    pub fn read<'a>(&mut self, input: &'a mut [u8], message_max: usize) -> ReadEvent<'a> {
        let all = input.len();
        let mut rest = input;
        while !self.ended {
            let event = match self.frame(&mut rest, message_max) {
                Ok(None) => continue,
                Ok(Some(event)) => event,
                Err(fault) => Event::Error(fault),
            };
            self.ended = matches!(event, Event::Close(_) | Event::Error(_));
            return ReadEvent { consumed: all - rest.len(), event };
        }
        //= rfc6455#close-last
        ReadEvent { consumed: all, event: Event::Partial { missing: 1 } }
    }

    /// Takes one frame from `rest`. There is no event if it was a fragment with others to follow.
    fn frame<'a>(
        &mut self,
        rest: &mut &'a mut [u8],
        message_max: usize,
    ) -> Result<Option<Event<'a>>, ProtocolError> {
        let header = match frame::parse(rest, self.masked) {
            ParsedFrame::Complete(header) => header,
            ParsedFrame::Partial { missing } => return Ok(Some(Event::Partial { missing })),
            ParsedFrame::Invalid(fault) => return Err(fault),
        };
        let size = header.len + self.check_payload(&header, message_max)?;
        // A frame is unmasked once it is whole, so that one that comes byte by byte costs its header
        // each time and no more.
        if let missing @ 1.. = size.saturating_sub(rest.len()) {
            return Ok(Some(Event::Partial { missing }));
        }
        let (frame, tail) = std::mem::take(rest).split_at_mut(size);
        *rest = tail;
        let payload = frame.get_mut(header.len..).unwrap_or_default();
        if let Some(key) = header.mask {
            frame::mask(payload, key);
        }
        self.event(&header, payload)
    }

    /// The payload's length, if the frame may stand here and the message is not too big with it.
    fn check_payload(
        &self,
        header: &FrameHeader,
        message_max: usize,
    ) -> Result<usize, ProtocolError> {
        let payload = usize::try_from(header.payload).map_err(|_| ProtocolError::TooBig)?;
        //= rfc6455#fragmentation
        let (held, frames) = match (header.opcode, &self.fragments) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(payload),
            (Opcode::Continuation, None) => return Err(ProtocolError::Continuation),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(ProtocolError::Interleaved),
            (Opcode::Text | Opcode::Binary, None) => (0, 0),
            (Opcode::Continuation, Some(message)) => (message.bytes.len(), message.frames),
        };
        //= rfc6455#message-limit
        if payload > message_max.saturating_sub(held) {
            return Err(ProtocolError::TooBig);
        }
        if frames >= limits::WS_FRAGMENTS_MAX {
            return Err(ProtocolError::Fragments);
        }
        Ok(payload)
    }

    /// What an admitted frame with this payload says.
    fn event<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &'a [u8],
    ) -> Result<Option<Event<'a>>, ProtocolError> {
        Ok(Some(match (header.opcode, header.fin) {
            (Opcode::Text, true) => {
                //= rfc6455#text-utf8
                let text =
                    simdutf8::basic::from_utf8(payload).map_err(|_| ProtocolError::NotUtf8)?;
                Event::Text(text.into())
            }
            (Opcode::Binary, true) => Event::Binary(payload.into()),
            (Opcode::Text | Opcode::Binary, false) => {
                let text = header.opcode == Opcode::Text;
                let mut message =
                    FragmentedMessage { text, bytes: Vec::new(), valid: 0, frames: 0 };
                message.append(payload)?;
                self.fragments = Some(Box::new(message));
                return Ok(None);
            }
            (Opcode::Continuation, fin) => {
                let mut message = self.fragments.take().ok_or(ProtocolError::Continuation)?;
                message.append(payload)?;
                if fin {
                    message.finish()?
                } else {
                    self.fragments = Some(message);
                    return Ok(None);
                }
            }
            (Opcode::Ping, _) => Event::Ping(payload),
            (Opcode::Pong, _) => Event::Pong(payload),
            (Opcode::Close, _) => Event::Close(close_code(payload)?),
        }))
    }
}

/// The code in a close frame's payload, of which the rest is text for people.
//= rfc6455#close-payload
fn close_code(payload: &[u8]) -> Result<Option<CloseCode>, ProtocolError> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(None) } else { Err(ProtocolError::CloseCode) };
    };
    let code = CloseCode(u16::from_be_bytes(*code));
    if !code.is_sendable() {
        return Err(ProtocolError::CloseCode);
    }
    simdutf8::basic::from_utf8(reason).map_err(|_| ProtocolError::NotUtf8)?;
    Ok(Some(code))
}

impl FragmentedMessage {
    /// Adds a frame's payload. A text that can be no UTF-8 any more is noticed at once, a character
    /// that ends in the next frame is waited for.
    fn append(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        self.bytes.extend_from_slice(payload);
        self.frames += 1;
        if self.text {
            let new = self.bytes.get(self.valid..).unwrap_or_default();
            self.valid += match simdutf8::compat::from_utf8(new) {
                Ok(text) => text.len(),
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                Err(_) => return Err(ProtocolError::NotUtf8),
            };
        }
        Ok(())
    }

    fn finish(self) -> Result<Event<'static>, ProtocolError> {
        if self.text {
            let text = String::from_utf8(self.bytes).map_err(|_| ProtocolError::NotUtf8)?;
            Ok(Event::Text(text.into()))
        } else {
            Ok(Event::Binary(self.bytes.into()))
        }
    }
}

// 10,000 idle connections have 10,000 of them.
const _: () = assert!(size_of::<Reader>() <= 16);
