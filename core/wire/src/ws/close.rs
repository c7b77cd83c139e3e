//! Close codes and protocol errors.

/// A status code of a close frame (RFC 6455, 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The connection has served its purpose.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the user leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke RFC 6455.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A text that is not UTF-8.
    pub const NOT_UTF8: Self = Self(1007);
    /// The peer broke a rule of this server.
    pub const POLICY: Self = Self(1008);
    /// A message over the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// The peer should reconnect later (IANA's registry of close codes).
    pub const TRY_AGAIN: Self = Self(1013);

    /// Returns whether a close frame may contain the code. 1004 to 1006 and 1015 are reserved, 1012 to
    /// 1014 were registered after the RFC, 3000 to 4999 are for libraries and applications.
    pub(super) fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// A violation of the protocol by the peer. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A client's frame is not masked, or a server's frame is.
    Mask,
    /// A reserved bit is set, although no extension was negotiated.
    ReservedBits,
    /// The opcode is reserved.
    ReservedOpcode,
    /// A control frame is fragmented.
    ControlFragmented,
    /// A control frame has more than 125 bytes.
    ControlTooLong,
    /// A continuation frame without a message to continue.
    Continuation,
    /// A new message starts within another one.
    Interleaved,
    /// A length is not in its shortest form, or is above 2^63.
    Length,
    /// A close frame has one byte, or an invalid code.
    CloseCode,
    /// A text, or the reason in a close frame, is not UTF-8.
    NotUtf8,
    /// A message is over the limit.
    TooBig,
    /// A message has more than [`types::limits::WS_FRAGMENTS_MAX`] frames.
    Fragments,
}

impl ProtocolError {
    /// Returns the code for the close frame.
    pub fn code(self) -> CloseCode {
        match self {
            Self::NotUtf8 => CloseCode::NOT_UTF8,
            Self::TooBig => CloseCode::TOO_BIG,
            Self::Fragments => CloseCode::POLICY,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }

    /// Returns the reason for the close frame.
    pub fn text(self) -> &'static str {
        match self {
            Self::Mask => "frames from clients must be masked, frames from servers must not",
            Self::ReservedBits => "a reserved bit is set without an extension",
            Self::ReservedOpcode => "reserved opcode",
            Self::ControlFragmented => "fragmented control frame",
            Self::ControlTooLong => "control frame over 125 bytes",
            Self::Continuation => "continuation frame without a message",
            Self::Interleaved => "a new message started within another one",
            Self::Length => "frame length is not in its shortest form",
            Self::CloseCode => "invalid code in a close frame",
            Self::NotUtf8 => "text is not UTF-8",
            Self::TooBig => "message too big",
            Self::Fragments => "message has too many fragments",
        }
    }
}
