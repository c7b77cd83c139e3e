//! UDP clients at any address: a trusted proxy names it before each datagram.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::datagrams::{self, ANNOUNCED};

/// Settings with which a tracker trusts such headers from the loopback device.
pub(super) const SETTINGS: [(&str, &str); 2] =
    [("TIDEGATE_UDP__SIMPLE_PROXY", "true"), ("TIDEGATE_UDP__TRUSTED_PROXIES", r#"["127.0.0.1"]"#)];

/// Bytes of Cloudflare's Simple Proxy header.
const HEADER_LEN: usize = 38;
const TRIES: u32 = 5;

/// The socket of a proxy that all clients use.
pub(super) struct Proxy {
    socket: UdpSocket,
}

/// A client's address and its connection id.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    id: u64,
}

/// What an announce says.
#[derive(Clone, Copy)]
pub(super) struct Announce {
    pub(super) info_hash: [u8; 20],
    /// Bytes left; 0 = a seeder.
    pub(super) left: u64,
    pub(super) want: u32,
}

/// The answer to an announce: counts and peers, each an address and a port in wire form.
pub(super) struct AnnounceAnswer {
    pub(super) leechers: u32,
    pub(super) seeders: u32,
    pub(super) peers: Vec<Vec<u8>>,
}

impl Proxy {
    pub(super) fn new(tracker: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(tracker)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self { socket })
    }

    /// Gets a connection id for an address.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<Client> {
        let answer = self.exchange(address, &datagrams::CONNECT)?;
        let id = answer.get(8..16).and_then(|id| id.try_into().ok()).context("no connection id")?;
        Ok(Client { address, id: u64::from_be_bytes(id) })
    }

    /// Announces and waits for the answer.
    pub(super) fn announce(&self, client: Client, announce: Announce) -> Result<AnnounceAnswer> {
        let answer = self.exchange(client.address, &client.datagram(announce))?;
        let (head, peers) = answer.split_at_checked(20).context("a short answer")?;
        ensure!(head.starts_with(&ANNOUNCED), "{}: refused: {answer:?}", client.address);
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let size = if client.address.is_ipv4() { 6 } else { 18 };
        let peers = peers.chunks_exact(size).map(<[u8]>::to_vec).collect();
        Ok(AnnounceAnswer { leechers: number(12), seeders: number(16), peers })
    }

    /// Sends announces that want no peers, and waits until as many answers have come as can: some may
    /// be lost. Returns how many announces were served.
    pub(super) fn announce_all(
        &self,
        announces: impl Iterator<Item = (Client, Announce)>,
    ) -> Result<u32> {
        let mut pending = 0;
        for (client, announce) in announces {
            self.socket.send(&wrap(client.address, &client.datagram(announce)))?;
            pending += 1;
        }
        let (mut served, mut answer) = (0, [0; 2048]);
        while pending > 0
            && let Ok(len) = self.socket.recv(&mut answer)
        {
            pending -= 1;
            let answer = answer.get(HEADER_LEN..len).unwrap_or_default();
            served += u32::from(answer.starts_with(&ANNOUNCED));
        }
        Ok(served)
    }

    /// Waits this long for an answer.
    pub(super) fn set_patience(&self, patience: Duration) -> Result<()> {
        Ok(self.socket.set_read_timeout(Some(patience))?)
    }

    fn exchange(&self, address: SocketAddr, datagram: &[u8]) -> Result<Vec<u8>> {
        let mut answer = [0; 2048];
        for _ in 0..TRIES {
            self.socket.send(&wrap(address, datagram))?;
            if let Ok(len) = self.socket.recv(&mut answer) {
                return answer.get(HEADER_LEN..len).map(<[u8]>::to_vec).context("no proxy header");
            }
        }
        anyhow::bail!("{address}: no answer")
    }
}

impl Client {
    /// Returns the client at another port: a connection id is good for all ports of an address.
    pub(super) fn at(self, address: SocketAddr) -> Option<Self> {
        (self.address.ip() == address.ip()).then_some(Self { address, ..self })
    }

    fn datagram(self, announce: Announce) -> Vec<u8> {
        let mut datagram = datagrams::announce(self.id, 1, announce.info_hash);
        datagram[64..72].copy_from_slice(&announce.left.to_be_bytes());
        datagram[92..96].copy_from_slice(&announce.want.to_be_bytes());
        datagram[96..98].copy_from_slice(&self.address.port().to_be_bytes());
        datagram
    }
}

/// Puts a proxy header before a datagram: magic, the client's and the proxy's address, their ports.
fn wrap(client: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    // The proxy's own public address, of the same family.
    let proxy = match client.ip() {
        IpAddr::V4(_) => SocketAddr::from(([198, 41, 128, 1], 6969)),
        IpAddr::V6(_) => SocketAddr::from(([0x2606, 0x4700, 0, 0, 0, 0, 0, 1], 6969)),
    };
    let mut wrapped = vec![0x56, 0xec];
    for end in [client, proxy] {
        wrapped.extend(mapped(end.ip()));
    }
    for end in [client, proxy] {
        wrapped.extend(end.port().to_be_bytes());
    }
    wrapped.extend(datagram);
    wrapped
}

/// Returns the n-th honest client's address: each has a network of its own.
pub(super) fn honest(number: u32, is_v4: bool) -> SocketAddr {
    let port = 6881;
    if is_v4 {
        // 45.0.0.0/8, a /24 for each.
        return SocketAddr::from(((0x2d00_0001 + (number << 8)).to_be_bytes(), port));
    }
    // 2a00::/16, a /48 for each.
    let network = (0x2a00_u128 << 112) + (u128::from(number) << 80);
    SocketAddr::from(((network + 1).to_be_bytes(), port))
}

/// Returns the address as which a client of IPv4 comes through a translator to IPv6 (RFC 6052).
pub(super) fn translated(client: SocketAddr) -> SocketAddr {
    let IpAddr::V4(ip) = client.ip() else { return client };
    let prefix = 0x0064_ff9b_u128 << 96;
    SocketAddr::from(((prefix + u128::from(ip.to_bits())).to_be_bytes(), client.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_clients_have_public_networks_of_their_own() {
        assert_eq!(honest(1, true).to_string(), "45.0.1.1:6881");
        assert_eq!(honest(2, false).to_string(), "[2a00:0:2::1]:6881");
        assert_eq!(translated(honest(2, true)).to_string(), "[64:ff9b::2d00:201]:6881");
    }

    #[test]
    fn a_header_has_its_size() {
        assert_eq!(wrap(honest(1, true), b"").len(), HEADER_LEN);
        assert_eq!(wrap(honest(1, false), b"x").len(), HEADER_LEN + 1);
    }
}
