//! The folder of a cluster's operator: `cluster.toml` with the keys that everything else follows from, and a folder for each
//! NATS server.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use cluster::nats::{NatsOptions, NatsUser, Rights, SecretIds, StreamSettings};
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};

use super::join::{self, Join};
use super::nats_config::ServerPlan;
use super::secret::{self, SECRET_LEN, Secret};
use super::server::Server;
use super::token::{self, Subject};
use super::{authority, random};
use crate::dates;
use crate::permissions::{check_secret, write_secret};

/// The version of the file that this program writes, and the latest that it reads.
const VERSION: u32 = 1;
const FILE: &str = "cluster.toml";
/// The most servers that store each message, unless the operator wants more.
const REPLICAS: usize = 3;
/// The size of the stream in MiB, and of one for trying it out. NATS sets that room aside at once.
const SIZE_MIB: u64 = 8192;
const SIZE_HERE_MIB: u64 = 256;
const LIFETIME_S: u32 = 2700;
/// Lifetime of a token for a command of the operator, seconds.
const COMMAND_S: u64 = 600;

#[derive(Serialize, Deserialize)]
pub(super) struct OperatorFile {
    operator_version: u32,
    name: String,
    servers: Vec<String>,
    secret_number: u32,
    #[serde(serialize_with = "secret::write", deserialize_with = "secret::read")]
    secret: [u8; SECRET_LEN],
    #[serde(serialize_with = "secret::write", deserialize_with = "secret::read")]
    session_secret: [u8; SECRET_LEN],
    operator_seed: String,
    account_seed: String,
    system_seed: String,
    /// When the last token of the account was signed, unix time in seconds.
    account_issued: u64,
    /// In PEM, with lines of their own, so that the file itself is a file of authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_key: Option<String>,
    stream: StreamRecord,
    #[serde(default)]
    nodes: BTreeMap<String, NodeRecord>,
    /// The seeds of readers of accounts, by name.
    #[serde(default)]
    readers: BTreeMap<String, String>,
    /// The numbers of nodes whose users were removed, by public key of these; 0 = a reader.
    #[serde(default)]
    removed: BTreeMap<String, u8>,
}

/// The settings of the stream when the operator last changed them. The stream itself has those in force.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct StreamRecord {
    replicas: usize,
    size_mib: u64,
    lifetime_s: u32,
}

#[derive(Clone, Serialize, Deserialize)]
struct NodeRecord {
    seed: String,
    zone: String,
}

pub(super) struct OperatorFolder {
    path: PathBuf,
    file: OperatorFile,
}

impl OperatorFolder {
    pub(super) fn create(path: &Path, name: &str, servers: &[Server]) -> Result<Self> {
        let is_here = check_servers(servers)?;
        DirBuilder::new().mode(0o700).create(path).with_context(|| {
            format!("cannot make the folder {}: choose another one by --dir", path.display())
        })?;
        let path = path.canonicalize()?;
        let authority = if is_here { None } else { Some(authority::make(name)?) };
        let file = OperatorFile {
            operator_version: VERSION,
            name: name.to_owned(),
            servers: servers.iter().map(Server::to_string).collect(),
            secret_number: 1,
            secret: random()?,
            session_secret: random()?,
            operator_seed: token::new_seed(KeyPairType::Operator)?,
            account_seed: token::new_seed(KeyPairType::Account)?,
            system_seed: token::new_seed(KeyPairType::Account)?,
            account_issued: dates::now(),
            ca_key: authority.as_ref().map(|authority| authority.key.clone()),
            ca: authority.map(|authority| authority.certificate),
            stream: StreamRecord {
                replicas: if servers.len() < REPLICAS { 1 } else { REPLICAS },
                size_mib: if is_here { SIZE_HERE_MIB } else { SIZE_MIB },
                lifetime_s: LIFETIME_S,
            },
            nodes: BTreeMap::new(),
            readers: BTreeMap::new(),
            removed: BTreeMap::new(),
        };
        let folder = Self { path, file };
        folder.write()?;
        for (number, server) in (1..).zip(servers) {
            folder.write_server(number, server, servers)?;
        }
        Ok(folder)
    }

    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = path.join(FILE);
        let name = file.display();
        let text = fs::read_to_string(&file).with_context(|| {
            format!(
                "cannot read {name}: name the folder that `tidegate cluster init` made by --dir"
            )
        })?;
        check_secret(&file)?;
        let version = super::version(&text, "operator_version");
        let version = version.with_context(|| {
            format!("{name}: expected the file of an operator, which `tidegate cluster init` makes")
        })?;
        ensure!(
            version <= VERSION,
            "{name}: a later version of tidegate has written this file: use that one"
        );
        let file = toml::from_str(&text)
            .with_context(|| format!("{name}: the file is damaged: restore it from a backup"))?;
        Ok(Self { path: path.canonicalize()?, file })
    }

    pub(super) fn write(&self) -> Result<()> {
        let text = toml::to_string_pretty(&self.file).context("cannot write the file")?;
        let head = format!(
            "# The operator's keys of the cluster {} of trackers. They allow everything in it: keep a copy in a safe place.\n\n",
            self.file.name
        );
        write_private(&self.path.join(FILE), &(head + &text))
    }

    fn write_server(&self, number: usize, server: &Server, servers: &[Server]) -> Result<()> {
        let OperatorFile { name, ca, ca_key, .. } = &self.file;
        let folder = self.path.join(format!("server-{number}"));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let keys = self.keys()?;
        let subject = |key, name, issued| Subject { key, name, issued, expires: None };
        let operator =
            token::of_operator(&subject(&keys.operator, name, dates::now()), &keys.system)?;
        let account = self.account_token(&keys)?;
        let system = subject(&keys.system, "system", self.file.account_issued);
        let system = token::of_system_account(&system, &keys.operator)?;
        let [account_key, system_key] = [&keys.account, &keys.system].map(KeyPair::public_key);
        let plan = ServerPlan {
            name,
            servers,
            operator: &operator,
            system_account: &system_key,
            accounts: [(&account_key, &account), (&system_key, &system)],
        };
        write_private(&folder.join("nats-server.conf"), &plan.text(number, &folder))?;
        if let (Some(ca), Some(ca_key)) = (ca, ca_key) {
            let pair = authority::issue(name, ca_key, server.bare_host())?;
            write_private(&folder.join("ca.pem"), ca)?;
            write_private(&folder.join("server.pem"), &pair.certificate)?;
            write_private(&folder.join("server-key.pem"), &pair.key)?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the join file of a node. The same node gets the same user again, unless it was removed meanwhile.
    pub(super) fn invite(&mut self, node: u8, zone: Option<&str>) -> Result<Join> {
        let known = self.file.nodes.get(&node.to_string());
        let record = NodeRecord {
            seed: match known {
                Some(known) => known.seed.clone(),
                None => token::new_seed(KeyPairType::User)?,
            },
            zone: match (zone, known) {
                (Some(zone), _) => zone.to_owned(),
                (None, Some(known)) => known.zone.clone(),
                (None, None) => String::new(),
            },
        };
        self.file.nodes.insert(node.to_string(), record.clone());
        let rights = Rights::of_node(&self.file.name, node);
        let jwt = self.user_token(&record.seed, &format!("node-{node}"), &rights)?;
        Ok(Join {
            join_version: join::VERSION,
            cluster: self.file.name.clone(),
            node,
            zone: record.zone,
            servers: self.urls()?,
            secret_number: self.file.secret_number,
            secret: self.file.secret,
            session_secret: self.file.session_secret,
            jwt: Some(jwt),
            seed: Some(record.seed),
            ca: self.file.ca.clone(),
        })
    }

    /// Notes that the user of a node is removed. Returns the token of the account that tells the servers so.
    pub(super) fn remove(&mut self, node: u8) -> Result<String> {
        if let Some(record) = self.file.nodes.remove(&node.to_string()) {
            self.revoke(&record.seed, node)?;
        }
        ensure!(self.was_removed(node), "node {node} was not invited from this folder");
        self.account_token(&self.keys()?)
    }

    fn revoke(&mut self, seed: &str, node: u8) -> Result<()> {
        self.file.removed.insert(token::key_of(seed)?.public_key(), node);
        // Servers keep the later one of two tokens.
        self.file.account_issued = dates::now().max(self.file.account_issued + 1);
        Ok(())
    }

    /// Returns the credentials of a reader of accounts: of the same user again, unless it was removed meanwhile.
    pub(super) fn reader(&mut self, name: &str) -> Result<String> {
        let seed = match self.file.readers.get(name) {
            Some(seed) => seed.clone(),
            None => token::new_seed(KeyPairType::User)?,
        };
        self.file.readers.insert(name.to_owned(), seed.clone());
        let rights = Rights::of_reader(&self.file.name);
        let jwt = self.user_token(&seed, &format!("reader-{name}"), &rights)?;
        Ok(NatsUser { jwt, seed }.credentials())
    }

    fn user_token(&self, seed: &str, name: &str, rights: &Rights) -> Result<String> {
        let key = token::key_of(seed)?;
        let subject = Subject { key: &key, name, issued: dates::now(), expires: None };
        token::of_user(&subject, &self.keys()?.account, rights)
    }

    /// Notes that a reader is removed. Returns the token of the account that tells the servers so.
    pub(super) fn remove_reader(&mut self, name: &str) -> Result<String> {
        let seed = self.file.readers.remove(name);
        let seed = seed.with_context(|| format!("there is no reader `{name}` in this folder"))?;
        self.revoke(&seed, 0)?;
        self.account_token(&self.keys()?)
    }

    pub(super) fn readers_subject(&self) -> String {
        Rights::of_reader(&self.file.name).subscribe.concat()
    }

    pub(super) fn was_removed(&self, node: u8) -> bool {
        self.file.removed.values().any(|removed| *removed == node)
    }

    pub(super) fn next_secret(&mut self) -> Result<()> {
        self.file.secret_number += 1;
        self.file.secret = random()?;
        Ok(())
    }

    pub(super) fn secret(&self) -> Secret {
        Secret::new(self.file.secret_number, self.file.secret)
    }

    pub(super) fn settings(&self) -> StreamSettings {
        let StreamRecord { replicas, size_mib, lifetime_s } = self.file.stream;
        StreamSettings { replicas, bytes: size_mib << 20, lifetime_s }
    }

    pub(super) fn set_settings(&mut self, settings: StreamSettings) {
        let StreamSettings { replicas, bytes, lifetime_s } = settings;
        self.file.stream = StreamRecord { replicas, size_mib: bytes >> 20, lifetime_s };
    }

    /// Returns how the operator reaches the servers, to make and change the stream.
    pub(super) fn options(&self) -> Result<NatsOptions> {
        let rights = Rights::of_operator(&self.file.name);
        self.options_of(&self.keys()?.account, &rights)
    }

    /// The same, to remove users.
    pub(super) fn system_options(&self) -> Result<NatsOptions> {
        let rights = Rights::of_system(&self.file.name);
        self.options_of(&self.keys()?.system, &rights)
    }

    /// Returns how a user of an account reaches the servers for the next minutes.
    fn options_of(&self, account: &KeyPair, rights: &Rights) -> Result<NatsOptions> {
        let user_key = token::new_key(KeyPairType::User)?;
        let issued = dates::now();
        let subject =
            Subject { key: &user_key, name: "operator", issued, expires: Some(issued + COMMAND_S) };
        let jwt = token::of_user(&subject, account, rights)?;
        let user = NatsUser { jwt, seed: token::seed_of(&user_key)? };
        let has_authority = self.file.ca.is_some();
        Ok(NatsOptions {
            name: self.file.name.clone(),
            node: 0,
            servers: self.urls()?,
            requires_tls: has_authority,
            user: Some(user),
            ca: has_authority.then(|| self.path.join(FILE)),
            secret_ids: SecretIds::default(),
            access: String::new(),
            accepts_any_access: false,
            flush: Duration::ZERO,
            peer_lifetime_s: 0,
        })
    }

    fn urls(&self) -> Result<Vec<String>> {
        let url = |text: &String| Ok(text.parse::<Server>().map_err(|why| anyhow!(why))?.url());
        self.file.servers.iter().map(url).collect()
    }

    fn keys(&self) -> Result<Keys> {
        let OperatorFile { operator_seed, account_seed, system_seed, .. } = &self.file;
        Ok(Keys {
            operator: token::key_of(operator_seed)?,
            account: token::key_of(account_seed)?,
            system: token::key_of(system_seed)?,
        })
    }

    fn account_token(&self, keys: &Keys) -> Result<String> {
        let OperatorFile { name, account_issued, removed, .. } = &self.file;
        let subject = Subject { key: &keys.account, name, issued: *account_issued, expires: None };
        token::of_account(&subject, &keys.operator, removed.keys())
    }
}

struct Keys {
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
}

fn check_servers(servers: &[Server]) -> Result<bool> {
    let here = servers.iter().filter(|server| server.is_loopback()).count();
    ensure!(
        here == 0 || here == servers.len(),
        "--servers: expected servers on this machine, to try it out, or on others, found both"
    );
    let is_twice = |(at, server): (usize, &Server)| {
        let rest = servers.iter().skip(at + 1);
        let ports = |it: &Server| [it.port, it.routes_port()];
        rest.clone().any(|it| {
            it.host == server.host && ports(it).iter().any(|port| ports(server).contains(port))
        })
    };
    ensure!(
        !servers.iter().enumerate().any(is_twice),
        "--servers: two servers have a port in common: each has one for nodes, and one that is larger by 2000"
    );
    Ok(here > 0)
}

/// Writes a file that only its owner can read, in place of an old one.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let written = write_secret(path, text.as_bytes(), None);
    written.with_context(|| format!("cannot write {}", path.display()))
}
