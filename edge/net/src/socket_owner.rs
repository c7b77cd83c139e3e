//! Finds the process that has a port. Linux: from /proc, as far as the permissions of this process go.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::bind::Transport;

/// A process that has a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// Its process id.
    pub pid: u32,
    /// The file name of its program.
    pub program: String,
}

/// The kernel appends this to the path of a program whose file has been replaced.
const REPLACED: &str = " (deleted)";
/// The state of a listening TCP socket in /proc/net/tcp.
const LISTENING: &str = "0A";

impl SocketOwner {
    /// Returns the process whose socket keeps `address` from being bound. `None` if this process may not
    /// see it, or the system has no /proc.
    pub(crate) fn find(transport: Transport, address: SocketAddr) -> Option<Self> {
        let links = socket_links(transport, address);
        if links.is_empty() {
            return None;
        }
        let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let mut pids: Vec<u32> =
            processes.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let has_one = |pid: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
            let mut opened = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
            opened.any(|link| links.contains(&link))
        };
        let pid = pids.into_iter().find(has_one)?;
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(Self { pid, program: program_name(path.file_name()?) })
    }

    /// Returns whether the process runs a program of the same name as this one.
    pub fn is_same_program(&self) -> bool {
        let own = std::env::current_exe().ok();
        let name = own.as_ref().and_then(|path| path.file_name()).map(program_name);
        name.is_some_and(|name| name == self.program)
    }
}

fn program_name(file_name: &OsStr) -> String {
    let name = file_name.to_string_lossy();
    name.strip_suffix(REPLACED).unwrap_or(&name).to_owned()
}

/// Returns what descriptors of the sockets that keep `address` from being bound link to.
fn socket_links(transport: Transport, address: SocketAddr) -> Vec<PathBuf> {
    let tables = match transport {
        Transport::Udp => ["udp", "udp6"],
        Transport::Tcp => ["tcp", "tcp6"],
    };
    let text = tables.map(|table| fs::read_to_string(format!("/proc/net/{table}")));
    let text = text.map(Result::unwrap_or_default);
    let rows = text.iter().flat_map(|table| table.lines().skip(1)).filter_map(Row::parse);
    let rows = rows.filter(|row| transport == Transport::Udp || row.is_listening);
    let rows = rows.filter(|row| row.conflicts_with(address));
    rows.map(|row| PathBuf::from(format!("socket:[{}]", row.inode))).collect()
}

/// A line of /proc/net/udp or one of its siblings.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    is_listening: bool,
    inode: u64,
}

impl Row {
    /// Parses `sl local_address rem_address st … inode …`, where an address is hexadecimal, in words of
    /// 32 bits in the machine's order of bytes.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let (ip, port) = local.split_once(':')?;
        let words = ip.as_bytes().chunks(8).map(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
        });
        let bytes = words.collect::<Option<Vec<_>>>()?.concat();
        let ip = match bytes.len() {
            4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
            _ => return None,
        };
        Some(Self {
            local: SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?),
            is_listening: state == LISTENING,
            inode: inode.parse().ok()?,
        })
    }

    /// Returns whether this socket's address and `other` overlap. A wildcard address of IPv6 counts as
    /// one of both families: the table does not tell.
    fn conflicts_with(&self, other: SocketAddr) -> bool {
        let (own, ip) = (self.local.ip(), other.ip());
        let is_same_family = own.is_ipv4() == ip.is_ipv4();
        let covers = |wide: IpAddr| wide.is_unspecified() && (is_same_family || wide.is_ipv6());
        self.local.port() == other.port()
            && (own == ip || covers(own) || (is_same_family && ip.is_unspecified()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn finds_the_process_that_has_a_port() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("[::1]:0").unwrap();
        for (transport, address) in [
            (Transport::Udp, udp.local_addr().unwrap()),
            (Transport::Tcp, tcp.local_addr().unwrap()),
        ] {
            for ip in
                [address.ip(), if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() }]
            {
                let owner = SocketOwner::find(transport, SocketAddr::new(ip, address.port()));
                let owner = owner.unwrap();
                assert_eq!(owner.pid, std::process::id());
                assert!(owner.is_same_program(), "{owner:?}");
            }
        }
        drop(udp);
        assert_eq!(SocketOwner::find(Transport::Udp, "192.0.2.1:1".parse().unwrap()), None);
    }

    #[test]
    fn wildcards_conflict_with_addresses_of_their_family() {
        let conflicts = |own: &str, other: &str| {
            let local = own.parse().unwrap();
            Row { local, is_listening: true, inode: 1 }.conflicts_with(other.parse().unwrap())
        };
        for (own, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "0.0.0.0:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
        ] {
            assert_eq!(conflicts(own, other), expected, "{own} {other}");
        }
    }
}
