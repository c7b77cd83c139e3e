//! Frame headers (RFC 6455, 5.2) and masks (5.3), for both directions.

use super::ProtocolError;

/// The type of a frame (RFC 6455, 5.2), with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Another part of a message.
    Continuation = 0,
    /// A text message, or its first part.
    Text = 1,
    /// A binary message, or its first part.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// A question whether the other side is there.
    Ping = 9,
    /// The answer to a ping.
    Pong = 10,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) fin: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    /// The length of the header in bytes.
    pub(super) len: usize,
    /// The length of the payload in bytes.
    pub(super) payload: u64,
}

/// The result of [`parse`].
pub(super) enum ParsedFrame {
    Complete(FrameHeader),
    Partial,
    Invalid(ProtocolError),
}

/// The longest payload of a control frame (RFC 6455, 5.5).
pub(super) const CONTROL_MAX: usize = 125;

/// Parses the header at the start of `input`. `masked` is whether the sender must mask.
pub(super) fn parse(input: &[u8], masked: bool) -> ParsedFrame {
    let mask_len = if masked { 4 } else { 0 };
    let Some((&[first, second], rest)) = input.split_first_chunk() else {
        return ParsedFrame::Partial;
    };
    let (opcode, short) = match first_two(first, second, masked) {
        Ok(found) => found,
        Err(fault) => return ParsedFrame::Invalid(fault),
    };
    let length_len = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let len = 2 + length_len + mask_len;
    let (Some(length), Some(mask)) = (rest.get(..length_len), rest.get(length_len..len - 2)) else {
        return ParsedFrame::Partial;
    };
    let payload = match length.len() {
        0 => short.into(),
        _ => length.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    };
    //= rfc6455#length-minimal
    let minimal = match length.len() {
        0 => 0..=125,
        2 => 126..=0xffff,
        _ => 0x1_0000..=u64::MAX >> 1,
    };
    if !minimal.contains(&payload) {
        return ParsedFrame::Invalid(ProtocolError::Length);
    }
    let mask = mask.first_chunk().copied();
    ParsedFrame::Complete(FrameHeader { fin: first & 0x80 != 0, opcode, mask, len, payload })
}

/// Checks the first two bytes. Returns the opcode and the 7-bit length.
fn first_two(first: u8, second: u8, masked: bool) -> Result<(Opcode, u8), ProtocolError> {
    //= rfc6455#reserved-bits
    if first & 0x70 != 0 {
        return Err(ProtocolError::ReservedBits);
    }
    //= rfc6455#reserved-opcodes
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(ProtocolError::ReservedOpcode),
    };
    //= rfc6455#masked-client
    if (second & 0x80 != 0) != masked {
        return Err(ProtocolError::Mask);
    }
    let short = second & 0x7f;
    //= rfc6455#control-frames
    if matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong) {
        if first & 0x80 == 0 {
            return Err(ProtocolError::ControlFragmented);
        }
        if usize::from(short) > CONTROL_MAX {
            return Err(ProtocolError::ControlTooLong);
        }
    }
    Ok((opcode, short))
}

/// Masks or unmasks a payload, eight bytes at a time, which the compiler vectorizes.
//= rfc6455#masking
pub fn mask(payload: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let twice = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (lanes, rest) = payload.as_chunks_mut();
    for lane in lanes {
        *lane = (u64::from_ne_bytes(*lane) ^ twice).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// Encodes the header of a single-frame message of `payload` bytes. Returns the header and its length.
///
/// It is a server's header. A client also sets the highest bit of the second byte, and appends the mask.
pub fn frame_header(opcode: Opcode, payload: usize) -> ([u8; 10], usize) {
    let mut header = [0; 10];
    let [first, second, length @ ..] = &mut header;
    *first = 0x80 | opcode as u8;
    let len = match (u8::try_from(payload), u16::try_from(payload)) {
        (Ok(short @ 0..=125), _) => {
            *second = short;
            2
        }
        (_, Ok(middle)) => {
            *second = 126;
            let [a, b, ..] = length;
            [*a, *b] = middle.to_be_bytes();
            4
        }
        _ => {
            *second = 127;
            *length = (payload as u64).to_be_bytes();
            10
        }
    };
    (header, len)
}
