//! Lookups of TXT records, which the system's resolver does not offer. Names are looked up as they are: no search
//! domains.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};

use crate::random;
use crate::stream::Deadline;
use crate::udp::connected_socket;

/// Longest wait for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for all of them.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Rounds over all servers: datagrams get lost.
const ROUNDS: usize = 2;
/// Servers used at most, as many as the C library uses.
const SERVERS_MAX: usize = 3;
/// Longer than any response over UDP without EDNS. Longer ones come over TCP.
const DATAGRAM_MAX: usize = 4096;

/// Returns the DNS servers of this system: those of /etc/resolv.conf, or the one of this machine if there are none.
pub(crate) fn system_servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = servers_in(&text);
    if servers.is_empty() { vec![(Ipv4Addr::LOCALHOST, 53).into()] } else { servers }
}

fn servers_in(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address =
            words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // Scopes of link-local addresses are not supported.
        Some(SocketAddr::from((address.parse::<IpAddr>().ok()?, 53)))
    };
    text.lines().filter_map(server).take(SERVERS_MAX).collect()
}

/// Returns the texts of a name's TXT records; none if the name has no such record or does not exist. Blocks until
/// there is a response, for at most `timeout` and 5 s.
///
/// # Errors
///
/// Returns a sentence if no server gave a valid response.
pub(crate) fn txt_records(
    name: &str,
    servers: &[SocketAddr],
    timeout: Duration,
) -> Result<Vec<String>, String> {
    let deadline = Deadline::after(timeout.min(LOOKUP_TIMEOUT));
    let query = Query::new(name)?;
    let mut last = "there is no DNS server".to_owned();
    for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
        let Some(left) = deadline.remaining() else { break };
        let response = query.send(*server, left.min(RESPONSE_TIMEOUT));
        match response.and_then(|response| texts(query.id, &response)) {
            Ok(texts) => return Ok(texts),
            Err(why) => last = format!("{server}: {why}"),
        }
    }
    Err(last)
}

/// A query, and the ID that its response must have.
struct Query {
    id: u16,
    bytes: Vec<u8>,
}

impl Query {
    fn new(name: &str) -> Result<Self, String> {
        let id = u16::from_be_bytes(random());
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).map_err(|error| error.to_string())?;
        packet.questions.push(Question::new(name, TYPE::TXT.into(), CLASS::IN.into(), false));
        let bytes = packet.build_bytes_vec().map_err(|error| error.to_string())?;
        Ok(Self { id, bytes })
    }

    /// Sends the query by UDP, and by TCP if the response does not fit into a datagram.
    fn send(&self, server: SocketAddr, timeout: Duration) -> Result<Vec<u8>, String> {
        let response = self.send_udp(server, timeout).map_err(|error| describe(&error))?;
        let is_truncated = response.get(2).is_some_and(|flags| flags & 0x02 != 0);
        if is_truncated {
            return self.send_tcp(server, timeout).map_err(|error| describe(&error));
        }
        Ok(response)
    }

    fn send_udp(&self, server: SocketAddr, timeout: Duration) -> io::Result<Vec<u8>> {
        let socket = connected_socket(server)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.send(&self.bytes)?;
        let mut response = vec![0; DATAGRAM_MAX];
        let length = socket.recv(&mut response)?;
        response.truncate(length);
        Ok(response)
    }

    fn send_tcp(&self, server: SocketAddr, timeout: Duration) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        // A name has at most 255 bytes, so a query is short.
        let length = u16::try_from(self.bytes.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &self.bytes].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut response = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut response)?;
        Ok(response)
    }
}

/// Returns the texts of the TXT records of a response to the query `id`. Texts that are not UTF-8 are left out.
///
/// # Errors
///
/// Returns a sentence if the response is not one to this query, or if the server could not answer.
pub fn texts(id: u16, response: &[u8]) -> Result<Vec<String>, String> {
    let packet = Packet::parse(response).map_err(|error| format!("invalid response: {error}"))?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err("the response is to another query".into());
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(Vec::new()),
        code => return Err(format!("the server answers {code:?}")),
    }
    let text = |record: simple_dns::ResourceRecord<'_>| match record.rdata {
        RData::TXT(text) => String::try_from(text).ok(),
        _ => None,
    };
    Ok(packet.answers.into_iter().filter_map(text).collect())
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_the_system_are_read() {
        let text = "# a comment\nsearch example.com\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 \n\
                    nameserver fe80::1%eth0\nnameserver\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"];
        assert_eq!(servers_in(text), expected.map(|it| it.parse().unwrap()));
        assert!(servers_in("").is_empty());
    }

    #[test]
    fn responses_to_other_queries_are_refused() {
        let mut reply = Packet::new_reply(7);
        assert_eq!(texts(7, &reply.build_bytes_vec().unwrap()), Ok(Vec::new()));
        assert!(texts(8, &reply.build_bytes_vec().unwrap()).is_err());
        assert!(texts(7, &Packet::new_query(7).build_bytes_vec().unwrap()).is_err());
        *reply.rcode_mut() = RCODE::NameError;
        assert_eq!(texts(7, &reply.build_bytes_vec().unwrap()), Ok(Vec::new()));
        *reply.rcode_mut() = RCODE::ServerFailure;
        assert_eq!(
            texts(7, &reply.build_bytes_vec().unwrap()),
            Err("the server answers ServerFailure".into())
        );
        assert!(texts(7, b"").is_err());
    }
}
