//! Bytes as hexadecimal digits, alone or behind percent signs.

use std::fmt::Write;

/// Returns the bytes of a text of hexadecimal digits, or `None` if it has another length or other characters.
pub fn from_hex<const N: usize>(text: impl AsRef<[u8]>) -> Option<[u8; N]> {
    let digits = text.as_ref();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
        }
    }
    Some(bytes)
}

/// Returns bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the bytes of a text in which `%` and two hexadecimal digits stand for a byte, and `+` for a blank, as many
/// languages' libraries write it in a query. Returns `None` if the two digits are missing behind a `%`.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let text = text.replace('+', " ");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.extend(from_hex::<1>(digits)?);
        bytes.extend(rest.as_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_round_trip() {
        assert_eq!(from_hex::<3>("00aBff"), Some([0, 0xab, 0xff]));
        assert_eq!(to_hex(&[0, 0xab, 0xff]), "00abff");
        for bad in ["", "00ab", "00abfg", "00abff0", "00a\u{e9}f"] {
            assert_eq!(from_hex::<3>(bad), None, "{bad}");
        }
    }
}
