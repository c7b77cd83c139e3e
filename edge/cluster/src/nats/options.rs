//! Options of the driver, and the names of its subjects and its stream.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_nats::Subject;

/// Options for reaching the other nodes.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The cluster's name: a-z 0-9 -.
    pub name: String,
    /// This node's number, 1 to 255.
    pub node: u8,
    /// URLs of servers, `tls://` or `nats://`. Only these are connected to.
    pub servers: Vec<String>,
    /// True if servers that do not offer TLS are refused.
    pub requires_tls: bool,
    /// The user that this node is at the servers; `None` if these have no users.
    pub user: Option<NatsUser>,
    /// A file with the authority of the servers' certificates, as PEM among any other text; `None` = those of the system.
    pub ca: Option<PathBuf>,
    /// The secrets of the cluster.
    pub secret_ids: SecretIds,
    /// The kinds of listeners that this node has, such as `open`, `private` or `open+private`: one word.
    pub access: String,
    /// True if messages of nodes with other kinds of listeners are accepted. Refusing them keeps nodes with open
    /// listeners from handing out the peers of private ones to anyone.
    pub accepts_any_access: bool,
    /// Time for which changes are collected.
    pub flush: Duration,
    /// The lifetime of peers, in seconds. The log must keep messages a little longer.
    pub peer_lifetime_s: u32,
}

/// A user at the servers.
#[derive(Clone, Debug)]
pub struct NatsUser {
    /// The user's name and rights, signed by the account of the cluster.
    pub jwt: String,
    /// The seed of the nkey that `jwt` names.
    pub seed: String,
}

impl NatsUser {
    /// Returns the user in the form of NATS' files of credentials.
    pub fn credentials(&self) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            self.jwt, self.seed
        )
    }
}

/// Identifiers of a cluster's secrets in messages. Clones share them, because the secrets change while a node runs.
///
/// This node's messages name all of its secrets, and it accepts messages that name any of them. So a node that was away
/// while the secret changed understands the others for as long as these accept the old one.
#[derive(Clone, Debug, Default)]
pub struct SecretIds(Arc<RwLock<Vec<[u8; 4]>>>);

impl SecretIds {
    /// Replaces them.
    pub fn set(&self, ids: Vec<[u8; 4]>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ids;
    }

    /// Returns them in hexadecimal digits.
    pub(super) fn names(&self) -> Vec<String> {
        let ids = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ids.iter().map(|id| format!("{:08x}", u32::from_be_bytes(*id))).collect()
    }
}

impl From<Vec<[u8; 4]>> for SecretIds {
    fn from(ids: Vec<[u8; 4]>) -> Self {
        Self(Arc::new(RwLock::new(ids)))
    }
}

/// Returns servers in the order in which a node tries them: node 1 begins with the first, node 2 with the second, and
/// so on, so that nodes are spread over them.
pub(super) fn servers_in_turn(servers: &[String], node: u8) -> Vec<String> {
    let mut servers = servers.to_vec();
    if !servers.is_empty() {
        let first = usize::from(node.saturating_sub(1)) % servers.len();
        servers.rotate_left(first);
    }
    servers
}

/// Names of subjects and streams. In each subject that a node publishes to, the last token is its number.
#[derive(Clone, Debug)]
pub(super) struct Subjects {
    prefix: String,
    name: String,
    node: u8,
}

impl Subjects {
    pub(super) fn new(name: &str, node: u8) -> Self {
        Self { prefix: format!("tg.{name}"), name: name.to_owned(), node }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn node(&self) -> u8 {
        self.node
    }

    /// The log.
    pub(super) fn data(&self) -> Subject {
        self.own("d")
    }

    /// Blocks as they are cut.
    pub(super) fn live(&self) -> Subject {
        self.own("l")
    }

    pub(super) fn rows(&self) -> Subject {
        self.own("r")
    }

    pub(super) fn heartbeat(&self) -> Subject {
        self.own("h")
    }

    /// Batches of accounts, for readers of the site.
    pub(super) fn batches(&self) -> Subject {
        self.own("f")
    }

    /// WebTorrent letters to a node.
    pub(super) fn letters(&self, to: u8) -> Subject {
        format!("{}.w.{to}.{}", self.prefix, self.node).into()
    }

    pub(super) fn question(&self, to: u8) -> Subject {
        format!("{}.q.{to}.{}", self.prefix, self.node).into()
    }

    /// Where answers to this node go, and acknowledgements of the servers.
    pub(super) fn inbox(&self) -> String {
        format!("{}.i.{}", self.prefix, self.node)
    }

    /// Returns the pattern of all nodes' subjects of one kind: `l`, `h`, `d`, `r`, `f`.
    pub(super) fn all(&self, kind: &str) -> String {
        format!("{}.{kind}.*", self.prefix)
    }

    /// Returns the pattern of subjects by which others address this node: `w` or `q`.
    pub(super) fn to_this(&self, kind: &str) -> String {
        format!("{}.{kind}.{}.*", self.prefix, self.node)
    }

    /// Returns the node that published to `subject`, if that is one of this kind for this node.
    ///
    /// The servers let each node publish to its own subjects only. A message that JetStream delivers has the subject
    /// that it was stored under, wherever it is delivered to: so it is one of another kind.
    pub(super) fn origin(&self, kind: &str, subject: &str) -> Option<u8> {
        let is_addressed = matches!(kind, "w" | "q");
        let pattern = if is_addressed { self.to_this(kind) } else { self.all(kind) };
        let number = subject.strip_prefix(pattern.strip_suffix('*')?)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|node| is_number && *node > 0)
    }

    /// Returns how the subjects of all answers to `node` begin.
    pub(super) fn answers_to(&self, node: u8) -> String {
        format!("{}.i.{node}.", self.prefix)
    }

    /// Returns the name of the log's stream.
    pub(super) fn stream(&self) -> String {
        format!("TG_{}_D", self.name)
    }

    fn own(&self, kind: &str) -> Subject {
        format!("{}.{kind}.{}", self.prefix, self.node).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_begin_with_different_servers() {
        let first = |node: u8, servers: &[&str]| {
            let servers: Vec<_> = servers.iter().map(|it| it.to_string()).collect();
            servers_in_turn(&servers, node).join(" ")
        };
        assert_eq!(
            [1, 2, 3, 4].map(|node| first(node, &["a", "b", "c"])),
            ["a b c", "b c a", "c a b", "a b c"]
        );
        assert_eq!((first(255, &["a"]), first(1, &[])), ("a".into(), String::new()));
    }

    #[test]
    fn a_subject_proves_an_origin_only_where_it_belongs() {
        let subjects = Subjects::new("c", 7);
        for bad in ["tg.c.d.0", "tg.c.d.256", "tg.c.d.x", "", "tg.c.d.", "tg.c.d.1.9", "tg.c.d.+9"]
        {
            assert_eq!(subjects.origin("d", bad), None, "{bad}");
        }
        for (kind, subject) in [("l", "tg.c.d.9"), ("r", "tg.c.d.9"), ("d", "tg.x.d.9")] {
            assert_eq!(subjects.origin(kind, subject), None, "{kind} {subject}");
        }
        // Letters to another node.
        assert_eq!(subjects.origin("w", "tg.c.w.8.9"), None);
    }
}
