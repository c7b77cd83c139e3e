//! Text that the start prints: listeners, and the URLs of tracker and dashboard.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use admin::AnnounceUrl;
use net::UdpSocket;
use net::process::own_addresses;
use net::tls::Certificates;
use pages::PublicUrl;
use tracker::Access;

use super::listeners::{BoundListener, BoundListeners};
use super::tokens::FirstToken;
use crate::admin::here;
use config::{Config, ListenerGroup, Transport};

const ADMIN_PAGES: &str =
    if cfg!(feature = "dashboard") { "dashboard, API, metrics" } else { "API, metrics" };
const HTTPS_PORT: u16 = 443;

pub(super) struct LocalHosts {
    addresses: Vec<IpAddr>,
    /// The names and addresses of the certificates, without wildcards.
    names: Vec<String>,
}

impl LocalHosts {
    /// Maximum number of addresses or names shown for one listener.
    const SHOWN_MAX: usize = 2;

    /// Determines the machine's addresses, and the names in its certificates or those to come.
    pub(super) fn of_machine(config: &Config, certificates: &Certificates) -> Self {
        let mut names: Vec<String> = Vec::new();
        let files = certificates.load();
        let in_files = files.iter().flat_map(|certificate| certificate.names());
        let domains = config.acme.iter().flat_map(|acme| &acme.domains);
        for name in in_files.chain(domains) {
            if !name.contains('*') && !names.contains(name) {
                names.push(name.clone());
            }
        }
        Self { addresses: own_addresses(), names }
    }

    /// Returns the addresses at which a listener can be reached: the bound one or, for a wildcard address, those of this
    /// machine. Without any, loopback stands for a wildcard of IPv4, and nothing for one of IPv6.
    fn addresses(&self, bound: SocketAddr) -> Vec<SocketAddr> {
        if !bound.ip().is_unspecified() {
            return vec![bound];
        }
        let of_family = self.addresses.iter().filter(|ip| ip.is_ipv4() == bound.is_ipv4());
        let mut hosts: Vec<SocketAddr> =
            of_family.take(Self::SHOWN_MAX).map(|ip| SocketAddr::new(*ip, bound.port())).collect();
        if hosts.is_empty() && bound.is_ipv4() {
            hosts.push(here(bound));
        }
        hosts
    }

    /// Returns the hosts of URLs to a listener. With TLS, these are the names of the certificates, if
    /// there are any: clients refuse a certificate for another name.
    fn of(&self, bound: SocketAddr, is_tls: bool) -> Vec<String> {
        if is_tls && !self.names.is_empty() {
            let port = match bound.port() {
                HTTPS_PORT => String::new(),
                port => format!(":{port}"),
            };
            let names = self.names.iter().take(Self::SHOWN_MAX);
            return names.map(|name| format!("{}{port}", in_url(name))).collect();
        }
        self.addresses(bound).iter().map(SocketAddr::to_string).collect()
    }
}

/// Returns a certificate's name as URLs have it: IPv6 addresses in brackets.
fn in_url(name: &str) -> String {
    name.parse::<Ipv6Addr>().map_or_else(|_| name.to_owned(), |ip| format!("[{ip}]"))
}

impl BoundListeners {
    pub(super) fn announce_urls(&self, hosts: &LocalHosts) -> Vec<AnnounceUrl> {
        let mut urls: Vec<AnnounceUrl> = Vec::new();
        for (address, group) in self.addresses() {
            for host in hosts.of(address, group.transport == Transport::Tls) {
                for (scheme, path) in schemes(group) {
                    let url = format!("{scheme}://{host}{path}");
                    if !urls.iter().any(|known| known.url == url) {
                        urls.push(AnnounceUrl { listener_policy: group.listener_policy, url });
                    }
                }
            }
        }
        urls
    }

    fn addresses(&self) -> impl Iterator<Item = (SocketAddr, &ListenerGroup)> {
        let udp = self
            .udp
            .iter()
            .filter_map(|open| Some((open.sockets.first()?.local_addr(), &open.group)));
        let tcp = self
            .tcp
            .iter()
            .filter_map(|open| Some((open.sockets.first()?.local_addr().ok()?, &open.group)));
        udp.chain(tcp)
    }

    /// Returns the announce URLs of all listeners for the public page, each once for each port.
    pub(super) fn public_urls(&self) -> Vec<PublicUrl> {
        let mut urls = Vec::new();
        for (address, group) in self.addresses() {
            for (scheme, path) in schemes(group) {
                let url = PublicUrl {
                    scheme,
                    port: address.port(),
                    path: path.to_owned(),
                    listener_policy: group.listener_policy,
                    is_loopback: address.ip().to_canonical().is_loopback(),
                };
                if !urls.contains(&url) {
                    urls.push(url);
                }
            }
        }
        urls
    }

    /// Returns the startup text: listeners, the URLs to announce to, and the first token. `engine` is that of UDP.
    pub(super) fn startup_text(
        &self,
        config: &Config,
        engine: &str,
        urls: &[AnnounceUrl],
        token: &FirstToken,
    ) -> String {
        let dashboard = self.dashboard_url(config);
        let token = token.text(dashboard.as_deref());
        let next = next_steps(config, dashboard.as_deref());
        self.listeners_text(config, engine, urls) + &token + &next
    }

    fn listeners_text(&self, config: &Config, engine: &str, urls: &[AnnounceUrl]) -> String {
        let mut text = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
        for BoundListener { sockets, .. } in &self.udp {
            let Some(socket) = sockets.first() else { continue };
            let address = socket.local_addr();
            let granted = socket.receive_buffer() / 1024;
            let workers = sockets.len();
            text += &format!(
                "  udp    {address}  ({}, {engine}, {granted} KiB receive buffer per socket)\n",
                plural(workers)
            );
        }
        for BoundListener { sockets, group } in &self.tcp {
            let Some(address) = sockets.first().and_then(|s| s.local_addr().ok()) else { continue };
            let name = if group.transport == Transport::Tls { "https" } else { "http " };
            text += &format!("  {name}  {address}  ({})\n", plural(sockets.len()));
        }
        for address in self.admin.iter().filter_map(|listener| listener.local_addr().ok()) {
            let scheme = if config.admin_tls { "https" } else { "http" };
            text += &format!("  admin  {scheme}://{address}/  ({ADMIN_PAGES})\n");
        }
        let asked = config.receive_buffer;
        let sockets = self.udp.iter().flat_map(|open| &open.sockets);
        let granted = sockets.map(UdpSocket::receive_buffer).min();
        if granted.is_some_and(|granted| granted < asked) {
            text += &format!(
                "  the kernel granted less than the configured {} KiB of receive buffer; to allow more: \
                 sysctl -w net.core.rmem_max={asked}\n",
                asked / 1024
            );
        }
        if let Some(bytes) = config.memory_budget {
            let mib = bytes >> 20;
            text +=
                &format!("  torrents and peers may use {mib} MiB of memory (limits.memory_mib)\n");
        }
        if config.assumes_memory {
            text += "  this system does not tell how much memory it has: set limits.memory_mib\n";
        }
        write_urls(&mut text, config, urls);
        if let Some(url) = self.dashboard_url(config) {
            text += &format!("  dashboard     {url}\n");
        }
        if let Some(dir) = &config.state_dir {
            text += &format!("  state         {}\n", dir.display());
        } else {
            text += "  records are in memory only: keys, lists, bans, tokens, counters and swarms are lost when \
                     the process ends; set state.dir to keep them\n";
        }
        text
    }

    fn dashboard_url(&self, config: &Config) -> Option<String> {
        if cfg!(not(feature = "dashboard")) {
            return None;
        }
        let address = here(self.admin.first()?.local_addr().ok()?);
        let scheme = if config.admin_tls { "https" } else { "http" };
        Some(format!("{scheme}://{address}/"))
    }
}

/// Returns the end of the startup text: what to do next. `dashboard` is its URL, if there is one.
fn next_steps(config: &Config, dashboard: Option<&str>) -> String {
    if config.groups.is_empty() {
        return String::new();
    }
    let watch = dashboard.map_or(String::new(), |url| format!(", and see its peers at {url}"));
    let is_private = config.listener_policies.iter().all(|policy| policy.access == Access::Private);
    let key = if is_private { "make a user's key, " } else { "" };
    format!("Next: {key}put an announce URL into a torrent, open that in a client{watch}\n")
}

fn schemes(group: &ListenerGroup) -> impl Iterator<Item = (&'static str, &'static str)> {
    let (http, ws) = match group.transport {
        Transport::Udp => ("udp", None),
        Transport::Http => ("http", Some("ws")),
        Transport::Tls => ("https", Some("wss")),
    };
    let ws = ws.filter(|_| group.http.web.is_some()).map(|ws| (ws, "/"));
    [(http, "/announce")].into_iter().chain(ws)
}

/// Writes the announce URLs. At private listeners, a URL without a key is of no use: they have `KEY` in
/// its place.
fn write_urls(text: &mut String, config: &Config, urls: &[AnnounceUrl]) {
    let mut needs_key = false;
    for url in urls {
        let policy = config.listener_policies.get(usize::from(url.listener_policy.0));
        let is_private = policy.is_some_and(|policy| policy.access == Access::Private);
        needs_key |= is_private;
        let shown = if is_private { url.with_key("KEY") } else { url.url.clone() };
        let label = if url.url.starts_with("ws") { "WebTorrent  " } else { "announce URL" };
        *text += &format!("  {label}  {shown}\n");
    }
    if needs_key {
        *text += "  KEY stands for a user's key: `tidegate admin keys create` makes one and prints its \
                  URLs\n";
    }
}

fn plural(workers: usize) -> String {
    format!("{workers} worker{}", if workers == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_wildcards_in_urls() {
        let of = |own: &[&str], bound: &str| {
            let addresses = own.iter().map(|ip| ip.parse().unwrap()).collect();
            let hosts = LocalHosts { addresses, names: Vec::new() };
            hosts.of(bound.parse().unwrap(), true).join(" ")
        };
        let own = ["192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3"];
        assert_eq!(of(&own, "0.0.0.0:6969"), "192.0.2.1:6969 192.0.2.2:6969");
        assert_eq!(of(&own, "[::]:6969"), "[2001:db8::1]:6969");
        assert_eq!(of(&own, "198.51.100.7:1"), "198.51.100.7:1");
        assert_eq!(of(&[], "0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(of(&[], "[::]:1"), "");
    }

    #[test]
    fn names_the_hosts_of_certificates_in_urls_with_tls() {
        let names = ["t.example", "u.example", "v.example"].map(String::from).to_vec();
        let hosts = LocalHosts { addresses: Vec::new(), names };
        let of = |bound: &str, is_tls| hosts.of(bound.parse().unwrap(), is_tls).join(" ");
        assert_eq!(of("0.0.0.0:443", true), "t.example u.example");
        assert_eq!(of("192.0.2.1:8443", true), "t.example:8443 u.example:8443");
        assert_eq!(of("192.0.2.1:80", false), "192.0.2.1:80");
        let names = ["192.0.2.1", "2001:db8::1"].map(String::from).to_vec();
        let hosts = LocalHosts { addresses: Vec::new(), names };
        let all = hosts.of("0.0.0.0:6971".parse().unwrap(), true).join(" ");
        assert_eq!(all, "192.0.2.1:6971 [2001:db8::1]:6971");
    }
}
