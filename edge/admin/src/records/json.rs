//! Forms of info hashes in JSON: hexadecimal, many of them in one string without separators.

/// Many info hashes.
pub(super) mod hashes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use types::InfoHash;

    use crate::records::op::HASHES_MAX;

    pub(crate) fn serialize<S: Serializer>(
        hashes: &[InfoHash],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(hashes.len() * 40);
        hashes.iter().for_each(|hash| super::push_hex(&mut text, hash));
        serializer.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<InfoHash>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (digits, rest) = text.as_bytes().as_chunks::<40>();
        if digits.len() > HASHES_MAX || !rest.is_empty() {
            return Err(D::Error::custom("expected up to 5000 times 40 hex digits"));
        }
        digits.iter().map(|digits| super::parse(digits).map_err(D::Error::custom)).collect()
    }
}

/// One info hash.
pub(super) mod hash {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use types::InfoHash;

    pub(crate) fn serialize<S: Serializer>(
        hash: &InfoHash,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(40);
        super::push_hex(&mut text, hash);
        serializer.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<InfoHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse(text.as_bytes()).map_err(D::Error::custom)
    }
}

use types::InfoHash;

fn push_hex(text: &mut String, hash: &InfoHash) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in hash.0 {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
}

fn parse(digits: &[u8]) -> Result<InfoHash, &'static str> {
    let text = std::str::from_utf8(digits).map_err(|_| "expected hex digits")?;
    text.parse().map_err(|_| "expected 40 hex digits")
}
