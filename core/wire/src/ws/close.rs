//! Why a connection ends.

/// A status code of a close frame (RFC 6455, 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// All is done.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer does not speak RFC 6455.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A text that is not UTF-8.
    pub const NOT_UTF8: Self = Self(1007);
    /// The peer does what is not allowed here.
    pub const POLICY: Self = Self(1008);
    /// A message above the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// Come back later (IANA's registry of close codes).
    pub const TRY_AGAIN: Self = Self(1013);

    /// Whether a close frame may hold it: 1004 to 1006 and 1015 are kept for other uses, 1012 to
    /// 1014 are registered since, 3000 to 4999 are for libraries and applications.
    pub(super) fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// How a peer broke the protocol. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A client's frame without a mask, or a server's with one.
    Mask,
    /// A reserved bit: no extension was agreed on.
    ReservedBits,
    /// An opcode without a meaning.
    ReservedOpcode,
    /// A control frame in pieces.
    ControlFragmented,
    /// A control frame of more than 125 bytes.
    ControlTooLong,
    /// A continuation of nothing.
    Continuation,
    /// A new message within another one.
    Interleaved,
    /// A length written longer than need be, or above 2^63.
    Length,
    /// A close frame with one byte, or with a code that none may hold.
    CloseCode,
    /// A text, or the reason in a close frame, that is not UTF-8.
    NotUtf8,
    /// A message above the limit.
    TooBig,
    /// A message in more than [`types::limits::WS_FRAGMENTS_MAX`] frames.
    Fragments,
}

impl ProtocolError {
    /// The code for the close frame that answers it.
    pub fn code(self) -> CloseCode {
        match self {
            Self::NotUtf8 => CloseCode::NOT_UTF8,
            Self::TooBig => CloseCode::TOO_BIG,
            Self::Fragments => CloseCode::POLICY,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }

    /// The reason for the close frame that answers it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Mask => "frames from clients are masked, and only those",
            Self::ReservedBits => "a reserved bit is set, but no extension was agreed on",
            Self::ReservedOpcode => "a reserved opcode",
            Self::ControlFragmented => "a control frame in fragments",
            Self::ControlTooLong => "a control frame of more than 125 bytes",
            Self::Continuation => "a continuation of no message",
            Self::Interleaved => "a message begins before the last one ended",
            Self::Length => "a length that is not in its shortest form",
            Self::CloseCode => "a close frame without a valid code",
            Self::NotUtf8 => "text that is not UTF-8",
            Self::TooBig => "the message is too big",
            Self::Fragments => "the message has too many fragments",
        }
    }
}
