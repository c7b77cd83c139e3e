//! `[cluster]`: which cluster this node is part of, and how it reaches the others.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use net::tls::CertificateFiles;

use super::key::Problem;
use super::keys::ClusterSection;
use super::setting::Setting;

/// The port of NATS servers whose URL names none.
const PORT: u16 = 4222;
/// The longest name of a cluster or a zone. Names are parts of subjects, which each message has.
const NAME_MAX: usize = 32;
/// A new secret and the one before it.
const SECRETS_MAX: usize = 2;

/// A node's part in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterConfig {
    pub(crate) name: String,
    /// 1 to 255.
    pub(crate) node: u8,
    /// At least one.
    pub(crate) servers: Vec<Server>,
    pub(crate) nkey: Option<PathBuf>,
    pub(crate) certificate: Option<CertificateFiles>,
    /// `None` = the system's authorities.
    pub(crate) ca: Option<PathBuf>,
    /// Files, one or two: the first issues.
    pub(crate) secrets: Vec<PathBuf>,
    pub(crate) zone: String,
    pub(crate) flush: Duration,
    pub(crate) queue_bytes: usize,
    pub(crate) stream_bytes: u64,
    pub(crate) replicas: u8,
    pub(crate) warm_wait: Duration,
    pub(crate) relay_bytes_per_s: u32,
}

/// A NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// `tls://` or `nats://`, host and port.
    pub(crate) url: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

impl ClusterConfig {
    /// Returns the configuration if the section names a cluster.
    pub(super) fn from_section(
        section: &ClusterSection,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let servers = servers(&section.servers, problems);
        for name in [&section.name, &section.zone] {
            if !is_name(&name.value) {
                let text = format!(
                    "expected at most {NAME_MAX} characters of a-z 0-9 -, found `{}`",
                    name.value
                );
                problems.push(name.problem(text));
            }
        }
        if section.name.value.is_empty() {
            return None;
        }
        if section.node.value == 0 {
            let text =
                "must be between 1 and 255, because cluster.name is set: each node has its own";
            problems.push(section.node.problem(text));
        }
        if section.servers.value.is_empty() {
            let text = "must name a NATS server, because cluster.name is set";
            problems.push(section.servers.problem(text));
        }
        let secrets = &section.secret.value;
        if !(1..=SECRETS_MAX).contains(&secrets.len()) {
            let text = format!(
                "expected one file, or two while the secret changes, found {}: `tidegate cluster secret` \
                 makes one",
                secrets.len()
            );
            problems.push(section.secret.problem(text));
        }
        let path = |setting: &Setting<String>| -> Option<PathBuf> {
            (!setting.value.is_empty()).then(|| setting.value.clone().into())
        };
        Some(Self {
            name: section.name.value.clone(),
            node: u8::try_from(section.node.value).unwrap_or(u8::MAX),
            servers,
            nkey: path(&section.nkey),
            certificate: certificate(section, problems),
            ca: path(&section.ca),
            secrets: secrets.iter().map(PathBuf::from).collect(),
            zone: section.zone.value.clone(),
            flush: Duration::from_millis(section.flush_ms.value.into()),
            queue_bytes: section.queue_mib.size() << 20,
            stream_bytes: u64::from(section.stream_mib.value) << 20,
            replicas: u8::try_from(section.replicas.value).unwrap_or(u8::MAX),
            warm_wait: Duration::from_secs(section.warm_wait_s.value.into()),
            relay_bytes_per_s: section.relay_mib_per_s.value << 20,
        })
    }

    /// Whether a connection to any server uses TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        self.servers.iter().any(|server| server.is_tls)
    }

    /// Returns the files that connecting to the servers reads, each time anew.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let certificate = self.certificate.iter().flat_map(|files| [&files.chain, &files.key]);
        self.ca.iter().chain(certificate)
    }
}

/// Whether `name` can name a cluster or a zone.
pub(crate) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME_MAX && name.bytes().all(is_allowed)
}

fn certificate(section: &ClusterSection, problems: &mut Vec<Problem>) -> Option<CertificateFiles> {
    let (chain, key) = (&section.certificate, &section.key);
    match (chain.value.is_empty(), key.value.is_empty()) {
        (true, true) => None,
        (false, false) => {
            Some(CertificateFiles { chain: (&chain.value).into(), key: (&key.value).into() })
        }
        (false, true) => {
            problems.push(chain.problem("requires cluster.key"));
            None
        }
        (true, false) => {
            problems.push(key.problem("requires cluster.certificate"));
            None
        }
    }
}

fn servers(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<Server> {
    let mut servers = Vec::new();
    for text in &list.value {
        match server(text) {
            Ok(server) => servers.push(server),
            Err(expected) => problems.push(list.item_problem(text, expected)),
        }
    }
    servers
}

fn server(text: &str) -> Result<Server, &'static str> {
    let expected = "expected tls:// and a host, e.g. `tls://nats-1.example.org:4222`";
    let uri: Uri = text.parse().map_err(|_| expected)?;
    let (scheme, host) = (uri.scheme_str().ok_or(expected)?, uri.host().ok_or(expected)?);
    let is_tls = match scheme {
        "tls" => true,
        "nats" => false,
        _ => return Err(expected),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("expected no user in the URL: name a file with an nkey in cluster.nkey");
    }
    if host.is_empty() || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(expected);
    }
    if !is_tls && !is_loopback(host) {
        return Err(
            "is not encrypted: only servers on this machine may have nats://, others tls://",
        );
    }
    let port = uri.port_u16().unwrap_or(PORT);
    Ok(Server { url: format!("{scheme}://{host}:{port}"), port, is_tls })
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::{read, says};

    const SMALLEST: &str =
        "[cluster]\nname = \"c-1\"\nnode = 7\nservers = [\"nats://127.0.0.1\"]\nsecret = [\"s\"]\n";

    #[test]
    fn reads_a_cluster() {
        let text = format!("{SMALLEST}zone = \"fra\"\nflush_ms = 20\nca = \"ca.pem\"\n");
        let config = Config::from_settings(&read(&text).unwrap()).unwrap().cluster.unwrap();
        assert_eq!((&*config.name, config.node, &*config.zone), ("c-1", 7, "fra"));
        let server = Server { url: "nats://127.0.0.1:4222".into(), port: 4222, is_tls: false };
        assert_eq!(config.servers, [server]);
        assert_eq!(config.flush, Duration::from_millis(20));
        assert_eq!((config.queue_bytes, config.stream_bytes), (64 << 20, 8 << 30));
        assert_eq!(config.files().collect::<Vec<_>>(), [&PathBuf::from("ca.pem")]);
        assert!(!config.uses_tls());
        // Without a name there is none.
        let text = SMALLEST.replace("c-1", "");
        assert_eq!(Config::from_settings(&read(&text).unwrap()).unwrap().cluster, None);
    }

    #[test]
    fn says_what_a_cluster_requires() {
        let found = says("[cluster]\nname = \"c\"\ncertificate = \"c.pem\"\n");
        let expected = [
            "cluster.node: must be between 1 and 255, because cluster.name is set: each node has its own",
            "cluster.servers: must name a NATS server, because cluster.name is set",
            "cluster.secret: expected one file, or two while the secret changes, found 0: `tidegate cluster \
             secret` makes one",
            "3: cluster.certificate: requires cluster.key",
        ];
        assert_eq!(found, expected);
        let found = says(&SMALLEST.replace("c-1", "My cluster").replace("7", "256"));
        assert_eq!(found, ["3: cluster.node: must be between 0 and 255, found 256"]);
        let found = says(&SMALLEST.replace("c-1", "My cluster"));
        let text =
            "2: cluster.name: expected at most 32 characters of a-z 0-9 -, found `My cluster`";
        assert_eq!(found, [text]);
    }

    #[test]
    fn encrypts_connections_to_other_machines() {
        for good in [
            "tls://nats-1.example",
            "tls://[2001:db8::1]:4333",
            "nats://localhost:1",
            "nats://[::1]",
        ] {
            assert!(server(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("nats://192.0.2.1:4222", "not encrypted"),
            ("nats://127.0.0.1.example.org", "not encrypted"),
            ("tls://user:secret@nats.example", "no user"),
            ("nats.example:4222", "expected tls://"),
            ("https://nats.example", "expected tls://"),
            ("tls://nats.example/path", "expected tls://"),
            ("tls://", "expected tls://"),
            ("", "expected tls://"),
        ] {
            let text = server(bad).unwrap_err();
            assert!(text.contains(why), "{bad}: {text}");
        }
    }
}
