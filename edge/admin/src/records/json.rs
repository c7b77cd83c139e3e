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
        serializer.serialize_str(&hashes.iter().map(InfoHash::to_string).collect::<String>())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<InfoHash>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (digits, rest) = text.as_bytes().as_chunks::<40>();
        if digits.len() > HASHES_MAX || !rest.is_empty() {
            return Err(D::Error::custom("expected up to 5000 times 40 hex digits"));
        }
        digits.iter().map(|digits| InfoHash::from_hex(digits).map_err(D::Error::custom)).collect()
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
        serializer.collect_str(hash)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<InfoHash, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
