//! Configurations of the NATS servers of a cluster.

use std::path::Path;

use super::server::Server;

/// Where a server on a machine of its own has its configuration, and where its data.
const PLACES: [&str; 2] = ["/etc/nats", "/var/lib/nats"];
/// Pause between two comparisons of removed users by the servers.
const COMPARE_PERIOD: &str = "10s";

pub(super) struct ServerPlan<'a> {
    pub(super) name: &'a str,
    pub(super) servers: &'a [Server],
    pub(super) operator: &'a str,
    /// The public key of the account of administration.
    pub(super) system_account: &'a str,
    /// Accounts by public key, with their tokens.
    pub(super) accounts: [(&'a str, &'a str); 2],
}

impl ServerPlan<'_> {
    /// Returns the configuration of a server, counted from 1, whose files are in `folder` for now. Those of servers on this
    /// machine stay there; others are copied to [`PLACES`].
    pub(super) fn text(&self, number: usize, folder: &Path) -> String {
        let Self { name, operator, system_account, .. } = self;
        let Some(server) = self.servers.get(number.wrapping_sub(1)) else { return String::new() };
        let here = folder.display().to_string();
        let [files, data] = match server.is_loopback() {
            true => [here.clone(), format!("{here}/data")],
            false => PLACES.map(String::from),
        };
        let listen = listen_address(server);
        let port = server.port;
        let mut text = format!(
            "# NATS server {number} of the cluster {name} of trackers. Made by `tidegate cluster init`.\n\
             # nats-server -c {files}/nats-server.conf\n\n\
             server_name: \"{name}-{number}\"\n\
             listen: \"{listen}:{port}\"\n\n\
             # The log of the trackers. Free space for `tidegate cluster set size` must be there.\n\
             jetstream {{\n  store_dir: \"{data}\"\n}}\n\n\
             # The operator's key has signed the accounts, and theirs the users: a new node needs no change here.\n\
             operator: {operator}\n\
             system_account: {system_account}\n\
             resolver {{\n  type: full\n  dir: \"{data}/accounts\"\n  allow_delete: false\n  interval: \"{COMPARE_PERIOD}\"\n}}\n\
             resolver_preload {{\n"
        );
        for (account, token) in &self.accounts {
            text += &format!("  {account}: {token}\n");
        }
        text += "}\n";
        if !server.is_loopback() {
            let files = tls_files(&files);
            text += &format!("\ntls {{\n{files}}}\n");
        }
        if self.servers.len() > 1 {
            text += &self.routes(server, &files);
        }
        text
    }

    fn routes(&self, server: &Server, files: &str) -> String {
        let (name, listen, port) = (self.name, listen_address(server), server.routes_port());
        let is_here = server.is_loopback();
        let tls = match is_here {
            true => String::new(),
            false => format!(
                "  tls {{\n{}    ca_file: \"{files}/ca.pem\"\n    verify: true\n  }}\n",
                tls_files(files)
            ),
        };
        let scheme = if is_here { "nats" } else { "tls" };
        let route = |it: &Server| format!("    \"{scheme}://{}:{}\"\n", it.host, it.routes_port());
        let routes: String = self.servers.iter().map(route).collect();
        format!(
            "\n# The NATS servers among themselves.\n\
             cluster {{\n  name: \"nats-{name}\"\n  listen: \"{listen}:{port}\"\n{tls}  routes: [\n{routes}  ]\n}}\n"
        )
    }
}

fn tls_files(folder: &str) -> String {
    format!("    cert_file: \"{folder}/server.pem\"\n    key_file: \"{folder}/server-key.pem\"\n")
}

fn listen_address(server: &Server) -> &str {
    match server.host.as_str() {
        host if server.is_loopback() => host,
        host if host.starts_with('[') => "[::]",
        _ => "0.0.0.0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_machines_of_their_own_use_tls() {
        let servers = ["t1.example.org", "t2.example.org", "2001:db8::3"];
        let servers = servers.map(|it| it.parse::<Server>().unwrap());
        let plan = ServerPlan {
            name: "c",
            servers: &servers,
            operator: "eyJ.o",
            system_account: "ASYS",
            accounts: [("AC", "eyJ.a"), ("ASYS", "eyJ.s")],
        };
        let text = plan.text(1, Path::new("/tmp/c/server-1"));
        for part in [
            "server_name: \"c-1\"\nlisten: \"0.0.0.0:4222\"",
            "store_dir: \"/var/lib/nats\"",
            "operator: eyJ.o\nsystem_account: ASYS",
            "  AC: eyJ.a\n  ASYS: eyJ.s\n",
            "tls {\n    cert_file: \"/etc/nats/server.pem\"",
            "listen: \"0.0.0.0:6222\"",
            "ca_file: \"/etc/nats/ca.pem\"\n    verify: true",
            "\"tls://t2.example.org:6222\"\n    \"tls://[2001:db8::3]:6222\"\n",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}
