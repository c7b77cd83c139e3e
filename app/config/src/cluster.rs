//! `[cluster]`: which cluster this node is part of.

use std::path::PathBuf;
use std::time::Duration;

use super::keys::ClusterSection;

/// The longest name of a cluster or a zone. Names are parts of subjects, which each message has.
const NAME_MAX: usize = 32;

/// A node's part in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The join file, which has all that the node and its cluster have in common.
    pub join: PathBuf,
    /// The time for which changes are collected before they are sent.
    pub flush: Duration,
    /// The most bytes of changes that wait for NATS.
    pub queue_bytes: usize,
    /// The time for which readiness waits for what the other nodes know.
    pub warm_wait: Duration,
}

impl ClusterConfig {
    pub(super) fn from_section(section: &ClusterSection) -> Option<Self> {
        if section.join.value.is_empty() {
            return None;
        }
        Some(Self {
            join: (&section.join.value).into(),
            flush: Duration::from_millis(section.flush_ms.value.into()),
            queue_bytes: section.queue_mib.size() << 20,
            warm_wait: Duration::from_secs(section.warm_wait_s.value.into()),
        })
    }
}

/// Returns true if `name` can name a cluster or a zone.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use crate::tests::says;

    #[test]
    fn keys_of_1_0_0_lead_to_what_takes_their_place() {
        for (key, remedy) in [
            ("name = \"c\"", "is in the join file now"),
            ("secret = [\"s\"]", "is in the join file now"),
            ("replicas = 3", "is a setting of the stream now: `tidegate cluster set replicas 3`"),
            ("stream_mib = 64", "is a setting of the stream now: `tidegate cluster set size 8GiB`"),
        ] {
            let found = says(&format!("[cluster]\njoin = \"j\"\n{key}\n"));
            assert!(found.len() == 1 && found[0].contains(remedy), "{found:?}");
        }
    }
}
