//! Sessions with a rustls client, over pipes in memory that give and take as little as the test says.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::take;
use std::sync::LazyLock;

use primitives::Random;
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
};

use super::*;

pub(super) static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("ca"));
pub(super) const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];
/// The size of a plaintext buffer for a session.
const PLAIN: usize = 64 * 1024;

fn server_config() -> TlsConfig {
    let certificates = Arc::new(Certificates::default());
    certificates.replace(vec![AUTHORITY.host(&["tracker.test"])]);
    TlsConfig::new(&certificates)
}

pub(super) fn client_config(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.der.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// The server's socket.
struct Socket {
    taken: Vec<u8>,
    /// The bytes it accepts before it is full.
    room: usize,
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = bytes.len().min(self.room);
        self.taken.extend_from_slice(&bytes[..len]);
        self.room -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct Pair {
    pub(super) client: ClientConnection,
    pub(super) server: TlsSession,
    socket: Socket,
    /// The number of client bytes that are delivered at once.
    step: usize,
    /// Plaintext that the server has read.
    pub(super) read: Vec<u8>,
    /// Plaintext that the client has read.
    heard: Vec<u8>,
}

impl Pair {
    pub(super) fn of_host(
        host: &'static str,
        server: &TlsConfig,
        client: &Arc<ClientConfig>,
    ) -> Self {
        Self {
            client: ClientConnection::new(Arc::clone(client), host.try_into().unwrap()).unwrap(),
            server: TlsSession::new(server).unwrap(),
            socket: Socket { taken: Vec::new(), room: usize::MAX },
            step: usize::MAX,
            read: Vec::new(),
            heard: Vec::new(),
        }
    }

    fn of_version(version: &'static SupportedProtocolVersion) -> Self {
        Self::of_host("tracker.test", &server_config(), &client_config(version).into())
    }

    /// Transfers bytes in both directions until both sides are idle.
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            let up = self.client_output();
            let moved = !up.is_empty();
            self.deliver_to_server(up)?;
            let down = take(&mut self.socket.taken);
            if !moved && down.is_empty() {
                return Ok(());
            }
            self.deliver_to_client(&down);
        }
    }

    fn client_output(&mut self) -> Vec<u8> {
        let mut up = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut up).unwrap();
        }
        up
    }

    fn deliver_to_server(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        let mut plain = vec![0; PLAIN];
        for piece in bytes.chunks_mut(self.step) {
            let len = self.server.open(piece, &mut plain, &mut self.socket)?;
            self.read.extend_from_slice(&plain[..len]);
        }
        Ok(())
    }

    fn deliver_to_client(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            self.client.process_new_packets().unwrap();
            let end = self.client.reader().read_to_end(&mut self.heard).unwrap_err();
            assert_eq!(end.kind(), ErrorKind::WouldBlock);
        }
    }

    /// Writes all of `plain`, while the socket accepts `room` bytes at a time.
    fn write(&mut self, mut plain: &[u8], room: usize) {
        let mut sealing = vec![0; SEALED_MAX];
        while !plain.is_empty() || self.server.is_pending() {
            self.socket.room = room;
            match self.server.write(plain, &mut sealing, &mut self.socket) {
                Ok(len) => plain = &plain[len..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        self.socket.room = usize::MAX;
    }

    /// Returns whether data passes in both directions.
    fn both_directions_work(&mut self) -> bool {
        self.client.writer().write_all(b"ping").unwrap();
        self.run().unwrap();
        self.write(b"pong", usize::MAX);
        self.run().unwrap();
        take(&mut self.read) == b"ping" && take(&mut self.heard) == b"pong"
    }
}

fn random_bytes(len: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    (0..len).map(|_| random.next() as u8).collect()
}

#[test]
fn both_versions_work_with_any_fragmentation() {
    for (version, number) in
        VERSIONS.into_iter().zip([ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2])
    {
        for step in [usize::MAX, 1, 7, 1000] {
            let mut pair = Pair::of_version(version);
            pair.step = step;
            let question = random_bytes(40_000);
            pair.client.set_buffer_limit(None);
            pair.client.writer().write_all(&question).unwrap();
            pair.run().unwrap();
            assert!(!pair.server.is_handshaking() && !pair.server.is_over());
            assert_eq!(pair.client.protocol_version(), Some(number));
            assert_eq!(pair.client.alpn_protocol(), Some(b"http/1.1".as_slice()));
            // Not the client's first choice.
            let suite = pair.client.negotiated_cipher_suite().unwrap().suite();
            assert!(format!("{suite:?}").ends_with("_AES_128_GCM_SHA256"), "{suite:?}");
            assert!(take(&mut pair.read) == question, "{number:?} {step}");
            assert!(pair.both_directions_work());
        }
    }
}

#[test]
fn slow_socket_gets_all_bytes_in_order() {
    for version in VERSIONS {
        let mut pair = Pair::of_version(version);
        pair.socket.room = 1;
        // The handshake also has to wait for the socket.
        let mut rounds = 0;
        while pair.client.is_handshaking() || pair.client.wants_write() {
            let up = pair.client_output();
            pair.deliver_to_server(up).unwrap();
            pair.socket.room = 3;
            pair.write(b"", 3);
            let down = take(&mut pair.socket.taken);
            pair.deliver_to_client(&down);
            rounds += 1;
            assert!(rounds < 10_000);
        }
        for room in [1, 100, 20_000, usize::MAX] {
            let answer = random_bytes(if room == 1 { 20_000 } else { 300_000 });
            pair.write(&answer, room);
            pair.run().unwrap();
            assert!(take(&mut pair.heard) == answer, "{room}");
        }
        assert!(pair.both_directions_work());
    }
}

#[test]
fn finish_sends_nothing_before_the_handshake() {
    let mut pair = Pair::of_version(VERSIONS[0]);
    let mut sealing = vec![0; SEALED_MAX];
    pair.server.finish(&mut sealing, &mut pair.socket).unwrap();
    assert!(pair.socket.taken.is_empty());
    let error = pair.server.write(b"x", &mut sealing, &mut pair.socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    pair.run().unwrap();
    assert!(pair.both_directions_work());
}

#[test]
fn accepts_key_updates() {
    let mut pair = Pair::of_version(VERSIONS[0]);
    pair.run().unwrap();
    for _ in 0..3 {
        pair.client.refresh_traffic_keys().unwrap();
        assert!(pair.both_directions_work());
    }
}

#[test]
fn limits_handshake_messages() {
    // A message of 64 KiB in complete records.
    let record = |content: &[u8]| {
        let len = u16::to_be_bytes(content.len() as u16);
        [&[22, 3, 1, len[0], len[1]], content].concat()
    };
    let mut pair = Pair::of_version(VERSIONS[0]);
    pair.deliver_to_server(record(&[1, 0, 0xff, 0xff])).unwrap();
    let mut sent = 0;
    let error = loop {
        match pair.deliver_to_server(record(&[0; 1000])) {
            Ok(()) => sent += 1000,
            Err(error) => break error,
        }
        assert!(sent < 30_000);
    };
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(sent >= 10_000, "{sent}");
}

#[test]
fn alerts_without_a_certificate() {
    let server = TlsConfig::new(&Arc::default());
    let client = client_config(VERSIONS[0]).into();
    let mut pair = Pair::of_host("tracker.test", &server, &client);
    let up = pair.client_output();
    let error = pair.deliver_to_server(up).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(describe(&error), "there is no certificate for this client yet");
    assert_eq!(pair.socket.taken[0], 21);
}
