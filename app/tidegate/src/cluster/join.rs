//! Join files: all that a node needs to be part of its cluster. `tidegate cluster invite` makes one for each node.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cluster::nats::NatsUser;
use serde::{Deserialize, Serialize};

use super::secret::{self, SECRET_LEN, Secret};
use super::server::Server;
use crate::permissions::check_secret;
use config::is_cluster_name;

/// The version of join files that this program writes, and the latest that it reads.
pub(super) const VERSION: u32 = 1;
const KEY_NAME: &str = "cluster.join";

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(super) join_version: u32,
    pub(crate) cluster: String,
    /// This node's number, 1 to 255.
    pub(crate) node: u8,
    pub(super) zone: String,
    pub(super) servers: Vec<String>,
    pub(super) secret_number: u32,
    #[serde(serialize_with = "secret::write", deserialize_with = "secret::read")]
    pub(super) secret: [u8; SECRET_LEN],
    /// The key of sessions derives from it. It stays when the secret changes.
    #[serde(serialize_with = "secret::write", deserialize_with = "secret::read")]
    pub(super) session_secret: [u8; SECRET_LEN],
    /// The node's user at the servers. Without it and `seed`, the servers tell no users apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<String>,
    /// The authority of the servers' certificates, in PEM. It stands in lines of its own, so the file itself is a file of
    /// authorities: see [`Self::has_authority`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca: Option<String>,
}

impl Join {
    /// Reads a join file. Only its owner and group may have rights to read it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        check_secret(path).context(KEY_NAME)?;
        let text =
            fs::read_to_string(path).with_context(|| format!("{KEY_NAME}: cannot read {name}"))?;
        Self::parse(&text).with_context(|| format!("{KEY_NAME}: {name}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let version = super::version(text, "join_version");
        let version =
            version.context("expected a join file, which `tidegate cluster invite` makes")?;
        ensure!(
            version <= VERSION,
            "a later version of tidegate has made this join file: upgrade tidegate on this machine"
        );
        let join: Self = toml::from_str(text)
            .context("the join file is damaged: make it again by `tidegate cluster invite`")?;
        join.check().map_err(|why| {
            anyhow::anyhow!(
                "the join file is damaged: {why}: make it again by `tidegate cluster invite`"
            )
        })?;
        Ok(join)
    }

    fn check(&self) -> Result<(), String> {
        if !is_cluster_name(&self.cluster) {
            return Err(format!("expected the name of a cluster, found `{}`", self.cluster));
        }
        if self.node == 0 {
            return Err("expected the number of a node, 1 to 255, found 0".into());
        }
        if self.servers.is_empty() {
            return Err("expected a NATS server, found none".into());
        }
        let servers = self.servers.iter().map(|url| Server::of_url(url));
        let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
        if self.ca.is_none() && !servers.iter().all(Server::is_loopback) {
            return Err("expected the authority of the servers' certificates, found none".into());
        }
        if self.jwt.is_some() != self.seed.is_some() {
            return Err("expected both jwt and seed, found one of them".into());
        }
        Ok(())
    }

    pub(super) fn text(&self) -> Result<String> {
        let fields = toml::to_string_pretty(self).context("cannot write a join file")?;
        Ok(format!(
            "# Node {} of the cluster {} of trackers: the file that cluster.join names. As good as a password.\n\n{fields}",
            self.node, self.cluster
        ))
    }

    pub(crate) fn secret(&self) -> Secret {
        Secret::new(self.secret_number, self.secret)
    }

    pub(crate) fn session_key(&self) -> [u8; 16] {
        secret::session_key(&self.session_secret)
    }

    /// Returns where the node is. May be empty.
    pub(crate) fn zone(&self) -> &str {
        &self.zone
    }

    pub(super) fn user(&self) -> Option<NatsUser> {
        let (jwt, seed) = (self.jwt.clone()?, self.seed.clone()?);
        Some(NatsUser { jwt, seed })
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.servers.iter().filter_map(|url| Some(Server::of_url(url).ok()?.port))
    }

    /// True if the file has the authority of the servers' certificates. The client of NATS reads it with each connection,
    /// so the file must stay readable.
    pub(crate) fn has_authority(&self) -> bool {
        self.ca.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::cluster::authority;

    fn join() -> Join {
        Join {
            join_version: VERSION,
            cluster: "c-1".into(),
            node: 7,
            zone: "fra".into(),
            servers: vec!["tls://t1.example.org:4222".into(), "tls://t2.example.org:4333".into()],
            secret_number: 1,
            secret: [0xab; SECRET_LEN],
            session_secret: [0xcd; SECRET_LEN],
            jwt: Some("eyJ".into()),
            seed: Some("SU".into()),
            ca: Some(authority::make("c-1").unwrap().certificate),
        }
    }

    #[test]
    fn the_file_is_a_file_of_authorities() {
        let join = join();
        let (text, ca) = (join.text().unwrap(), join.ca.unwrap());
        let read = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap().to_vec();
        assert_eq!(read(&text), read(&ca));
        assert_eq!(CertificateDer::pem_slice_iter(text.as_bytes()).count(), 1);
    }

    #[test]
    fn what_is_no_join_file_is_refused() {
        let good = join().text().unwrap();
        for (text, why) in [
            (String::new(), "expected a join file"),
            ("operator_version = 1\n".into(), "expected a join file"),
            ("\u{0}".into(), "expected a join file"),
            (good.replace("join_version = 1", "join_version = 2"), "a later version of tidegate"),
            (good.replace("node = 7", "node = 0"), "expected the number of a node"),
            (good.replace("node = 7", "node = 256"), "the join file is damaged"),
            (good.replace("\"c-1\"", "\"C\""), "expected the name of a cluster"),
            (good.replace("tls://t1", "nats://t1"), "expected tls://, or nats://"),
            (good.replacen("abab", "ab", 1), "the join file is damaged"),
            (good.replace("seed =", "seeds ="), "expected both jwt and seed"),
            (good.replace("ca =", "other ="), "expected the authority"),
            (good[..good.len() / 2].to_owned(), "the join file is damaged"),
        ] {
            let error = format!("{:#}", Join::parse(&text).err().unwrap());
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
