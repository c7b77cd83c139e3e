//! Reading: bytes of a connection to messages and control frames.

use std::borrow::Cow;

use types::limits;

use super::frame::{self, FrameHeader, Opcode, ParsedFrame};
use super::{CloseCode, ProtocolError};

/// The state of one direction of a connection between frames.
#[derive(Debug)]
pub struct Reader {
    /// The message whose last frame has not arrived yet.
    fragments: Option<Box<FragmentedMessage>>,
    /// True if the sender must mask its frames, as clients must.
    masked: bool,
    ended: bool,
}

/// The result of [`Reader::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct ReadEvent<'a> {
    /// The number of bytes consumed. Remove them from the input before the next call.
    pub consumed: usize,
    /// The event in these bytes.
    pub event: Event<'a>,
}

/// An event from the sender.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// No event yet: the input ends within a frame. Read more bytes and try again.
    Partial,
    /// A text message, borrowed from the input if it came in one frame.
    Text(Cow<'a, str>),
    /// A binary message, borrowed from the input if it came in one frame.
    Binary(Cow<'a, [u8]>),
    /// A ping. Answer with a [`super::pong`] with the same payload.
    Ping(&'a [u8]),
    /// The answer to a ping, or an unsolicited sign of life.
    Pong(&'a [u8]),
    /// A close frame. Answer with [`super::close()`], unless one was sent already. The last event.
    Close(Option<CloseCode>),
    /// The sender broke the protocol. Close the connection with the error's code and text. The last
    /// event.
    Error(ProtocolError),
}

/// The frames of an incomplete message.
#[derive(Debug)]
struct FragmentedMessage {
    text: bool,
    bytes: Vec<u8>,
    /// In a text message, the length of the prefix that is known to be valid UTF-8.
    valid: usize,
    frames: u32,
}

impl Reader {
    /// Returns a reader of frames from a client, which are masked.
    pub fn for_client_frames() -> Self {
        Self { fragments: None, masked: true, ended: false }
    }

    /// Returns a reader of frames from a server, which are not masked.
    pub fn for_server_frames() -> Self {
        Self { fragments: None, masked: false, ended: false }
    }

    /// Reads one event from the start of `input`, which holds all bytes received and not yet consumed.
    /// A message may have `message_max` bytes, over all its frames. The limit is checked against the
    /// frame's header, so the caller never has to buffer more than `message_max` + 14 bytes.
    ///
    /// A complete frame is unmasked in place; bytes that are not consumed are left unchanged. After
    /// [`Event::Close`] or [`Event::Error`], all input is consumed without further events.
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
        ReadEvent { consumed: all, event: Event::Partial }
    }

    /// Returns whether a message has begun whose last frame has not come. A frame that has come in part
    /// does not count: its bytes are still the caller's.
    pub fn is_inside_message(&self) -> bool {
        self.fragments.is_some()
    }

    /// Returns the bytes of memory that hold the frames of an incomplete message.
    pub fn held_bytes(&self) -> usize {
        self.fragments.as_ref().map_or(0, |message| message.bytes.capacity())
    }

    /// Reads one frame from `rest`. Returns `None` for a fragment that is not the last.
    fn frame<'a>(
        &mut self,
        rest: &mut &'a mut [u8],
        message_max: usize,
    ) -> Result<Option<Event<'a>>, ProtocolError> {
        let header = match frame::parse(rest, self.masked) {
            ParsedFrame::Complete(header) => header,
            ParsedFrame::Partial => return Ok(Some(Event::Partial)),
            ParsedFrame::Invalid(fault) => return Err(fault),
        };
        let size = header.len + self.check_payload(&header, message_max)?;
        // Unmask only complete frames: a frame that arrives byte by byte then costs one header parse
        // a byte, and no more.
        if size > rest.len() {
            return Ok(Some(Event::Partial));
        }
        let (frame, tail) = std::mem::take(rest).split_at_mut(size);
        *rest = tail;
        let payload = frame.get_mut(header.len..).unwrap_or_default();
        if let Some(key) = header.mask {
            frame::mask(payload, key);
        }
        self.event(&header, payload)
    }

    /// Returns the payload's length. Fails if the frame is not allowed at this point, or if the
    /// message exceeds its limits with it.
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

    /// Returns the event of a checked frame with this unmasked payload.
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

/// Parses the code in a close frame's payload. The rest is text for people.
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
    /// Appends a frame's payload. Invalid UTF-8 fails at once; a character may continue in the next
    /// frame.
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

// Every idle connection has one.
const _: () = assert!(size_of::<Reader>() <= 16);
