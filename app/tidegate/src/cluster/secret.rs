//! The secret that all nodes of a cluster share. Keys derive from it by HKDF-SHA256, so nothing has to be
//! distributed when a node starts.
//!
//! It is changed in two steps, so that no client is refused: all nodes accept the new one, then they issue by it, and
//! accept the old one for as long as anything of it is around. The list of secrets is a row of the records.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracker::SharedSecrets;
use types::{from_hex, to_hex};

/// Bytes of a secret; as text it has two hex digits for each.
pub(crate) const SECRET_LEN: usize = 32;

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Secret {
    /// 1 for the first, and one more with each change.
    pub(crate) number: u32,
    #[serde(rename = "secret", serialize_with = "write", deserialize_with = "read")]
    pub(crate) bytes: [u8; SECRET_LEN],
    /// Until when it is accepted, unix time in seconds; `None` = until it is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

impl Secret {
    pub(crate) fn new(number: u32, bytes: [u8; SECRET_LEN]) -> Self {
        Self { number, bytes, until: None }
    }

    pub(crate) fn keys(&self) -> SharedSecrets {
        SharedSecrets {
            connection_ids: derive(&self.bytes, "tidegate connection ids"),
            offers: derive(&self.bytes, "tidegate offers"),
        }
    }

    fn id(&self) -> [u8; 4] {
        derive(&self.bytes, "tidegate id")
    }
}

/// The secrets that nodes accept. They issue by the first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Secret>", into = "Vec<Secret>")]
pub(crate) struct Secrets {
    first: Secret,
    others: Vec<Secret>,
}

impl From<Secret> for Secrets {
    fn from(first: Secret) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl TryFrom<Vec<Secret>> for Secrets {
    type Error = &'static str;

    fn try_from(mut list: Vec<Secret>) -> Result<Self, Self::Error> {
        if list.is_empty() {
            return Err("expected a secret");
        }
        Ok(Self { first: list.remove(0), others: list })
    }
}

impl From<Secrets> for Vec<Secret> {
    fn from(secrets: Secrets) -> Self {
        [vec![secrets.first], secrets.others].concat()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Accept,
    /// Nodes issue by it, and accept the old one until this unix time, in seconds.
    Issue {
        old_until: u64,
    },
}

impl Secrets {
    /// Returns the secrets of a node with this one in its join file: those that are recorded, unless the file is newer.
    pub(crate) fn of_node(join: Secret, recorded: Option<Self>) -> Self {
        let is_known = |recorded: &Self| recorded.numbers().any(|number| number >= join.number);
        recorded.filter(is_known).unwrap_or_else(|| join.into())
    }

    pub(crate) fn number(&self) -> u32 {
        self.first.number
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.first.number).chain(self.others.iter().map(|secret| secret.number))
    }

    /// Returns the secrets after a step of the change to `new`. A step that has been made changes nothing.
    pub(crate) fn changed(&self, new: &Secret, step: Step) -> Result<Self, String> {
        let number = new.number;
        let known = self.first.number;
        if number < known || number == known && new.bytes != self.first.bytes {
            return Err(format!(
                "the cluster has a secret with the number {known} already: use the operator's folder that made it"
            ));
        }
        if number == known {
            return Ok(self.clone());
        }
        let others = self.others.iter().filter(|secret| secret.number < known).cloned();
        Ok(match step {
            Step::Accept => Self {
                first: self.first.clone(),
                others: [new.clone()].into_iter().chain(others).collect(),
            },
            Step::Issue { old_until } => {
                let old = Secret { until: Some(old_until), ..self.first.clone() };
                Self { first: new.clone(), others: [old].into_iter().chain(others).collect() }
            }
        })
    }

    /// Removes those that are accepted no longer. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let count = self.others.len();
        self.others.retain(|secret| secret.until.is_none_or(|until| now < until));
        self.others.len() < count
    }

    pub(crate) fn keys(&self) -> SharedSecrets {
        self.first.keys()
    }

    pub(crate) fn previous_keys(&self) -> Option<SharedSecrets> {
        self.others.first().map(Secret::keys)
    }

    pub(crate) fn ids(&self) -> Vec<[u8; 4]> {
        std::iter::once(&self.first).chain(&self.others).map(Secret::id).collect()
    }
}

/// Returns the key of sessions. It stays when the secret changes: nodes exchange sessions by it, and progress of users
/// would be lost.
pub(crate) fn session_key(bytes: &[u8; SECRET_LEN]) -> [u8; 16] {
    derive(bytes, "tidegate sessions")
}

/// Returns bytes that follow from a secret and `info`, and say nothing about either.
fn derive<const N: usize>(secret: &[u8; SECRET_LEN], info: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let pseudorandom = Salt::new(HKDF_SHA256, &[]).extract(secret);
    let parts = [info.as_bytes()];
    let derived = pseudorandom.expand(&parts, Len(N)).and_then(|key| key.fill(&mut bytes));
    // The length is far below 255 hashes, so that cannot fail.
    debug_assert!(derived.is_ok(), "{info}");
    bytes
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

pub(super) fn write<S: Serializer>(
    bytes: &[u8; SECRET_LEN],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes))
}

/// Reads what [`write()`] has written.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[u8; SECRET_LEN], D::Error> {
    let text = String::deserialize(deserializer)?;
    from_hex(text).ok_or_else(|| {
        serde::de::Error::custom(format!("expected a secret of {} hex digits", 2 * SECRET_LEN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(number: u32) -> Secret {
        Secret::new(number, [number as u8; SECRET_LEN])
    }

    fn numbers(secrets: &Secrets) -> Vec<u32> {
        secrets.numbers().collect()
    }

    #[test]
    fn keys_follow_from_the_secret() {
        let one = Secrets::from(secret(1));
        assert_ne!(one.keys().connection_ids, one.keys().offers);
        assert_ne!(one.keys().connection_ids, Secrets::from(secret(2)).keys().connection_ids);
        // RFC 5869 with an empty salt, computed by another program: all nodes and versions must agree.
        let id = u32::from_be_bytes(one.ids()[0]);
        assert_eq!(format!("{id:08x}"), EXPECTED_ID);
    }

    const EXPECTED_ID: &str = "a6a3402b";

    #[test]
    fn a_change_is_accepted_first_and_issued_then() {
        let old = Secrets::from(secret(1));
        let accepting = old.changed(&secret(2), Step::Accept).unwrap();
        assert_eq!(numbers(&accepting), [1, 2]);
        assert!(accepting.changed(&secret(2), Step::Accept) == Ok(accepting.clone()));
        let issue = Step::Issue { old_until: 100 };
        let mut issuing = accepting.changed(&secret(2), issue).unwrap();
        assert_eq!(numbers(&issuing), [2, 1]);
        assert_eq!(issuing.previous_keys().unwrap().offers, old.keys().offers);
        assert_eq!(issuing.ids(), [secret(2).id(), secret(1).id()]);
        assert!(issuing.changed(&secret(2), Step::Issue { old_until: 900 }) == Ok(issuing.clone()));
        // The next change comes before the old one is over.
        let next = issuing.changed(&secret(3), Step::Accept).unwrap();
        assert_eq!(numbers(&next), [2, 3, 1]);
        assert_eq!(numbers(&next.changed(&secret(3), issue).unwrap()), [3, 2, 1]);
        for bad in [secret(1), Secret::new(2, [9; SECRET_LEN])] {
            let why = issuing.changed(&bad, Step::Accept).err().unwrap();
            assert!(why.contains("a secret with the number 2 already"), "{why}");
        }
        assert!(!issuing.expire(99) && issuing.expire(100) && !issuing.expire(101));
        assert_eq!(numbers(&issuing), [2]);
    }

    #[test]
    fn the_newer_of_the_record_and_the_join_file_holds() {
        let issuing = Secrets::from(secret(1)).changed(&secret(2), Step::Issue { old_until: 9 });
        let recorded = issuing.unwrap();
        let of_node = |number| Secrets::of_node(secret(number), Some(recorded.clone()));
        assert_eq!(
            [1, 2, 3].map(|number| numbers(&of_node(number))),
            [vec![2, 1], vec![2, 1], vec![3]]
        );
        assert_eq!(numbers(&Secrets::of_node(secret(1), None)), [1]);
        let text = serde_json::to_string(&recorded).unwrap();
        assert!(serde_json::from_str::<Secrets>(&text).unwrap() == recorded);
        for bad in ["[]", "{}", "[{\"number\":1,\"secret\":\"00\"}]"] {
            assert!(serde_json::from_str::<Secrets>(bad).is_err(), "{bad}");
        }
    }
}
