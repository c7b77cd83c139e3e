//! Socket activation: sockets that were opened by the service manager.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};

use harness::http::Connection;
use nix::fcntl::{FcntlArg, fcntl};

use crate::clients::{Udp, announce_target, has, http_announce};
use crate::process::{Directory, Tracker, config, stderr, tidegate, unused_address};

/// Returns the binary with two inherited sockets called `names`, and with listeners at a port of 127.0.0.1. A shell moves
/// the sockets to descriptors 3 and 4 and sets LISTEN_PID.
fn with_sockets(names: &str, sockets: (&UdpSocket, &TcpListener), port: u16) -> Command {
    let plain = tidegate(&[]);
    // Copies that the shell inherits, above its own descriptors.
    let copy = |socket: BorrowedFd<'_>| fcntl(socket, FcntlArg::F_DUPFD(10)).unwrap();
    let [udp, tcp] = [copy(sockets.0.as_fd()), copy(sockets.1.as_fd())];
    let script = format!(
        "exec 3<&{udp} 4<&{tcp} {udp}<&- {tcp}<&-; \
         LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={names} exec \"$0\" \"$@\""
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).arg(plain.get_program()).stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    for name in ["TIDEGATE_UDP__LISTEN", "TIDEGATE_HTTP__LISTEN"] {
        shell.env(name, format!("127.0.0.1:{port},[::1]:0"));
    }
    shell
}

/// Binds a UDP and a TCP socket to the same port of 127.0.0.1.
fn pair() -> (UdpSocket, TcpListener, u16) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address) {
            return (udp, tcp, address.port());
        }
    }
}

#[test]
fn takes_over_inherited_sockets_without_losing_requests() {
    for names in ["udp:http", "tidegate.socket:tidegate.socket"] {
        let (udp, tcp, port) = pair();
        let start =
            || Tracker::start_by(with_sockets(names, (&udp, &tcp), port), Directory::new(), "");
        let mut tracker = start();
        Udp::connect(tracker.udp4()).announce(0xaa, 1001);
        let body = http_announce(tracker.http4(), 0xaa, 1002);
        assert!(has(&body, "10:incompletei2e"), "{}", body.escape_ascii());
        // Listeners without an inherited socket are bound.
        http_announce(tracker.http6(), 0xaa, 1003);
        for message in [
            format!("address=\"{}\" listener=\"udp\" sockets=1 workers=2", tracker.udp4()),
            format!("address=\"{}\" listener=\"http\" sockets=1 workers=2", tracker.http4()),
        ] {
            tracker.wait_for_log(&message);
        }
        tracker.stop();
        assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
        // Clients wait while no process serves.
        let mut waiting = Connection::open(tracker.http4()).unwrap();
        let target = announce_target(0xaa, 1004);
        waiting.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).unwrap();
        let _next = start();
        let answer = waiting.receive().unwrap();
        assert!(answer.has("10:incompletei1e"), "{}", answer.text());
    }
}

#[test]
fn rejects_inherited_sockets_of_no_listener() {
    let (udp, tcp, port) = pair();
    let directory = Directory::new();
    let start = |names: &str, listen: u16| {
        let file = directory.write("tidegate.toml", &config(0, 0, ""));
        let mut command = with_sockets(names, (&udp, &tcp), listen);
        let output = command.arg("--config").arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    // The configuration listens on another port.
    let message = start("udp:http", unused_address().port());
    assert!(message.contains("inherited sockets without a listener"), "{message}");
    let left = format!("UDP 127.0.0.1:{port} (`udp`), TCP 127.0.0.1:{port} (`http`)");
    assert!(message.contains(&left), "{message}");
    // The socket has the name of another listener, and takes the port that the right one needs.
    let message = start("udp:admin", port);
    assert!(message.contains(&format!("cannot listen on 127.0.0.1:{port}: TCP")), "{message}");
}
