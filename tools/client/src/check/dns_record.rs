//! The TXT record by which a host says where its trackers are (BEP 34).

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{CheckOptions, Finding, Findings, failed, ok, skipped, warning};
use crate::dns;
use crate::udp::Udp;
use crate::{Scheme, SessionConfig, Url};

/// Ports of a record that are read.
const PORTS_MAX: usize = 32;
/// Other ports of a record that are contacted.
const CONTACTED_MAX: usize = 8;
/// Longest wait for a response of another port, and how often it is asked over UDP.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(2);
const CONTACTS: usize = 2;
/// The name of the item.
const ITEM: &str = "dns-record";

/// The transport protocols of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// BEP 15.
    Udp,
    /// HTTP, HTTPS and WebSockets.
    Tcp,
}

/// A port of a record, such as `UDP:6969`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPort {
    /// The protocol.
    pub transport: Transport,
    /// The port, which is not 0.
    pub port: u16,
}

/// The ports of the trackers of a host, the preferred one first. Without any, the host runs no tracker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsRecord {
    /// Distinct ports.
    pub ports: Vec<RecordPort>,
}

impl DnsRecord {
    /// Reads the text of a TXT record. Returns `None` if its first word is not `BITTORRENT`. Unknown words are
    /// ignored, as BEP 34 demands, and so are ports after the 32nd.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        words.next().filter(|first| *first == "BITTORRENT")?;
        let mut record = Self::default();
        for port in words.filter_map(RecordPort::parse) {
            if !record.ports.contains(&port) && record.ports.len() < PORTS_MAX {
                record.ports.push(port);
            }
        }
        Some(record)
    }
}

impl RecordPort {
    fn of(url: &Url) -> Self {
        let transport = if url.scheme == Scheme::Udp { Transport::Udp } else { Transport::Tcp };
        Self { transport, port: url.port }
    }

    fn parse(word: &str) -> Option<Self> {
        let (transport, port) = word.split_once(':')?;
        let transport = match transport {
            "UDP" => Transport::Udp,
            "TCP" => Transport::Tcp,
            _ => return None,
        };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && is_number)?;
        Some(Self { transport, port })
    }

    fn answers(self, url: &Url, host: SocketAddr, options: &CheckOptions) -> bool {
        let address = SocketAddr::new(host.ip(), self.port);
        let timeout = CONTACT_TIMEOUT.min(options.timeout);
        if self.transport == Transport::Tcp {
            return TcpStream::connect_timeout(&address, timeout).is_ok();
        }
        let config = SessionConfig::new(timeout, options.tls.clone());
        let connect = || Udp::open(url, address, &config).and_then(|mut udp| udp.connect());
        (0..CONTACTS).any(|_| connect().is_ok())
    }
}

impl fmt::Display for RecordPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        };
        write!(f, "{transport}:{}", self.port)
    }
}

/// Looks up the record of the URL's host, and adds a finding. Names without a dot are looked up only if the options
/// name a DNS server: they are names of this network. Other ports of the record are contacted at `address`.
pub(super) fn check(
    url: &Url,
    options: &CheckOptions,
    address: SocketAddr,
    findings: &mut Findings,
) {
    let is_public = url.name.trim_end_matches('.').contains('.');
    if url.literal().is_some() || !(is_public || options.dns_server.is_some()) {
        return;
    }
    let servers = options.dns_server.map_or_else(dns::system_servers, |it| vec![it]);
    let texts = match dns::txt_records(&url.name, &servers, options.timeout) {
        Ok(texts) => texts,
        Err(why) => {
            let text = format!("cannot look up TXT records of {}: {why}", url.name);
            return findings.add(ITEM, skipped(text));
        }
    };
    let records: Vec<DnsRecord> = texts.iter().filter_map(|it| DnsRecord::parse(it)).collect();
    findings.add(ITEM, match &records[..] {
        [] => skipped(format!("{} has none (BEP 34): any port may have a tracker", url.name)),
        [record] => judge(url, record, address, options),
        several => warning(format!(
            "{} has {} TXT records that begin with BITTORRENT, and clients read only one of them: merge them",
            url.name,
            several.len()
        )),
    });
}

/// Compares a record with the URL, and contacts its other ports at `address`.
fn judge(url: &Url, record: &DnsRecord, address: SocketAddr, options: &CheckOptions) -> Finding {
    let own = RecordPort::of(url);
    let name = &url.name;
    if record.ports.is_empty() {
        return failed(format!(
            "the TXT record of {name} says that it runs no tracker, so clients that obey BEP 34 stay away: \
             add {own} to the record or remove it"
        ));
    }
    let named = list(&record.ports);
    if !record.ports.contains(&own) {
        return warning(format!(
            "the TXT record of {name} names {named} but not {own}, so clients that obey BEP 34 do not use this URL: \
             add {own} to the record, or give out the URLs of its ports"
        ));
    }
    let others = record.ports.iter().copied().filter(|port| *port != own).take(CONTACTED_MAX);
    let silent = others.filter(|port| !port.answers(url, address, options));
    let silent: Vec<RecordPort> = silent.collect();
    if silent.is_empty() {
        return ok(format!("the TXT record of {name} names {named}"));
    }
    let silent = list(&silent);
    warning(format!(
        "the TXT record of {name} names {named}, but no tracker answers at {silent}: serve there, or remove {silent} \
         from the record"
    ))
}

fn list(ports: &[RecordPort]) -> String {
    ports.iter().map(RecordPort::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_bep_34_says() {
        for (text, ports) in [
            ("BITTORRENT", Some("")),
            ("BITTORRENT DENY ALL", Some("")),
            ("BITTORRENT UDP:1337 TCP:80", Some("UDP:1337 TCP:80")),
            (
                "BITTORRENT  TCP:80 UDP:1 x TCP:80 UDP:0 UDP:65536 UDP:+5 udp:7 TCP:",
                Some("TCP:80 UDP:1"),
            ),
            ("bittorrent UDP:1", None),
            ("BITTORRENTS", None),
            ("v=spf1 BITTORRENT", None),
            ("", None),
        ] {
            let found = DnsRecord::parse(text).map(|record| list(&record.ports));
            assert_eq!(found.as_deref(), ports, "{text}");
        }
        let many: String = (1..100).map(|port| format!(" UDP:{port}")).collect();
        assert_eq!(DnsRecord::parse(&format!("BITTORRENT{many}")).unwrap().ports.len(), PORTS_MAX);
    }
}
