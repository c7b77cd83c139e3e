//! A configuration of nats-server for a cluster of trackers.

use std::fmt::Write;
use std::path::Path;

use cluster::nats::Rights;
use nkeys::{KeyPair, KeyPairType};

use super::command::write_private;
use super::read_seed;
use crate::cli::UsageError;
use crate::config::is_cluster_name;

/// What the configuration is for.
pub(super) struct Layout<'a> {
    /// The name of the trackers' cluster.
    pub(super) name: &'a str,
    /// NATS servers.
    pub(super) servers: u8,
    /// The public key of the operator, if it is known.
    pub(super) operator: Option<String>,
    /// The public key of each node, as far as it is known.
    pub(super) keys: Vec<Option<String>>,
}

/// Returns the public key of a user, whose seed is in `directory`. Makes the seed if there is none.
pub(super) fn public_key(directory: &Path, user: &str) -> Result<String, UsageError> {
    let path = directory.join(format!("{user}.nk"));
    if !path.exists() {
        let mut random = [0; 32];
        getrandom::fill(&mut random)
            .map_err(|error| UsageError(format!("cannot get random numbers: {error}")))?;
        let pair = KeyPair::new_from_raw(KeyPairType::User, random).map_err(usage)?;
        let text = format!("# nkey of {user}\n{}\n", pair.seed().map_err(usage)?);
        write_private(&path, &text)?;
    }
    let seed = read_seed(&path).map_err(|error| UsageError(format!("{error:#}")))?;
    Ok(KeyPair::from_seed(&seed).map_err(usage)?.public_key())
}

fn usage(error: nkeys::error::Error) -> UsageError {
    UsageError(format!("cannot make an nkey: {error}"))
}

/// Returns the configuration.
// Writing to a `String` cannot fail.
pub(super) fn text(layout: &Layout<'_>) -> Result<String, UsageError> {
    let Layout { name, servers, operator, keys } = layout;
    if name.is_empty() || !is_cluster_name(name) {
        return Err(UsageError(format!(
            "--name: expected at most 32 characters of a-z 0-9 -, found `{name}`"
        )));
    }
    let mut text = format!("{HEAD}{}", jetstream());
    if *servers > 1 {
        let _ = write!(text, "{}", routes(name, *servers));
    }
    let _ = write!(
        text,
        "\n# A user for each node. None can publish in the name of another, read what is not for it, or change a \
         stream.\nauthorization {{\n  users: [\n"
    );
    for (node, key) in (1..).zip(keys) {
        text.push_str(&user(&format!("Node {node}"), key.as_deref(), &Rights::of_node(name, node)));
    }
    text.push_str(&user(
        "Operator, for `tidegate cluster streams`",
        operator.as_deref(),
        &Rights::of_operator(name),
    ));
    text.push_str("  ]\n}\n");
    Ok(text)
}

fn user(who: &str, key: Option<&str>, rights: &Rights) -> String {
    let name = who.split(',').next().unwrap_or(who);
    let placeholder = format!("PUBLIC_KEY_OF_{}", name.to_uppercase().replace(' ', "_"));
    format!(
        "    {{\n      # {who}.\n      nkey: {}\n      permissions: {{\n        \
         publish: {{ allow: [{}] }}\n        subscribe: {{ allow: [{}] }}\n      }}\n    }}\n",
        key.unwrap_or(&placeholder),
        quoted(&rights.publish),
        quoted(&rights.subscribe)
    )
}

const HEAD: &str = "\
# nats-server -c FILE. The lines with PATH, HOST and SERVER are to be filled in.
listen: 0.0.0.0:4222
server_name: SERVER  # another one on each server

# Nodes of trackers connect with tls://, unless they run on the same machine.
tls {
  cert_file: \"PATH/server.pem\"
  key_file: \"PATH/server-key.pem\"
}
";

fn jetstream() -> &'static str {
    "\n# The stream: cluster.stream_mib.\n\
     jetstream {\n  store_dir: \"PATH/jetstream\"\n  max_file_store: 16G\n}\n"
}

fn routes(name: &str, servers: u8) -> String {
    let routes: Vec<_> =
        (1..=servers).map(|server| format!("    \"tls://HOST_{server}:6222\"")).collect();
    format!(
        "\n# The NATS servers among themselves.\n\
         cluster {{\n  name: \"nats-{name}\"\n  listen: 0.0.0.0:6222\n  tls {{\n    \
         cert_file: \"PATH/server.pem\"\n    key_file: \"PATH/server-key.pem\"\n    ca_file: \
         \"PATH/ca.pem\"\n    verify: true\n  }}\n  routes: [\n{}\n  ]\n}}\n",
        routes.join("\n")
    )
}

fn quoted(patterns: &[String]) -> String {
    let quoted: Vec<_> = patterns.iter().map(|pattern| format!("\"{pattern}\"")).collect();
    format!("\n          {}\n        ", quoted.join("\n          "))
}

#[cfg(test)]
mod tests {
    use harness::Directory;

    use super::*;

    #[test]
    fn gives_each_node_its_own_subjects() {
        let layout =
            Layout { name: "c", servers: 3, operator: None, keys: vec![Some("UAAA".into()), None] };
        let text = text(&layout).unwrap();
        for part in [
            "nkey: UAAA",
            "nkey: PUBLIC_KEY_OF_NODE_2",
            "\"tg.c.d.2\"",
            "\"tg.c.w.*.2\"",
            "\"tg.c.i.2.>\"",
            "HOST_3",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        // Only the operator may change streams.
        let (nodes, operator) = text.split_once("nkey: PUBLIC_KEY_OF_OPERATOR").unwrap();
        for call in ["CREATE", "UPDATE"] {
            assert!(!nodes.contains(&format!("STREAM.{call}")), "{text}");
            assert!(operator.contains(&format!("$JS.API.STREAM.{call}.TG_c_D")), "{text}");
        }
        let one = Layout { servers: 1, ..layout };
        assert!(!super::text(&one).unwrap().contains("routes"), "{text}");
        assert!(super::text(&Layout { name: "C", ..one }).is_err());
    }

    #[test]
    fn makes_keys_once() {
        let directory = Directory::new().unwrap();
        let key = public_key(directory.root(), "node-1").unwrap();
        assert!(key.starts_with('U') && key.len() == 56, "{key}");
        assert_eq!(public_key(directory.root(), "node-1").unwrap(), key);
        assert_ne!(public_key(directory.root(), "node-2").unwrap(), key);
    }
}
