//! Attacks by connections: stuck messages, and all seats for one network.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::http::Connection;

use super::{HELD, HELD_S, HONEST, MEMORY_MIB, Outcome, Target, report_progress};
use crate::figures::count;
use crate::record::Figures;

const STUCK: usize = 2000;
/// Bytes of a message, and how many of them arrive.
const MESSAGE: u64 = 128 * 1024;
const ARRIVES: usize = 127 * 1024;
/// How long stuck messages are watched.
const WATCHED: Duration = Duration::from_secs(60);

const SEATS: u32 = 1000;

/// Opens WebSockets and sends most of a message over each.
pub(super) fn attack_buffers(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let (tracker, _api) = target.start(&[])?;
    let resident =
        || -> Result<f64> { Ok(tracker.usage()?.resident_bytes as f64 / f64::from(1 << 20)) };
    let before = resident()?;
    let mut most: f64 = 0.0;
    let mut sockets = Vec::new();
    for number in 0..STUCK {
        // The tracker may have closed it by now.
        sockets.extend(stuck(tracker.address).ok());
        if number % 100 == 0 {
            most = most.max(resident()? - before);
        }
    }
    let began = Instant::now();
    let opened = sockets.len();
    while !sockets.is_empty() && began.elapsed() < WATCHED {
        most = most.max(resident()? - before);
        sockets.retain_mut(is_open);
        std::thread::sleep(Duration::from_millis(250));
    }
    report_progress(&format!("{opened} stuck messages arrived, {} are left", sockets.len()));
    let held_s = began.elapsed().as_secs_f64();
    let figures = Figures::default()
        .with(HELD, sockets.len() as f64)
        .with(MEMORY_MIB, most)
        .with(HELD_S, held_s);
    let left = sockets.len();
    Ok(vec![(
        "stuck WebSocket messages",
        figures,
        format!("{most:.0} MiB, {left} left after {held_s:.0} s"),
    )])
}

/// Opens a WebSocket, with more lines in the head of the request.
pub(super) fn open_websocket(tracker: SocketAddr, more: &str) -> Result<Connection> {
    let mut connection = Connection::open(tracker)?;
    connection.send(format!(
        "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
    ))?;
    let status = connection.receive_head()?.status;
    ensure!(status == 101, "status {status}");
    Ok(connection)
}

/// Returns a WebSocket that is stuck inside a message.
fn stuck(tracker: SocketAddr) -> Result<TcpStream> {
    let mut connection = open_websocket(tracker, "")?;
    // A masked text frame with a length of eight bytes.
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend(MESSAGE.to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + ARRIVES, b' ');
    connection.send(frame)?;
    connection.stream.set_nonblocking(true)?;
    Ok(connection.stream)
}

fn is_open(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 4096]) {
        Ok(len) => len > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// Opens one connection from each of many /64s of a /48, as a PROXY header tells, and then one from
/// elsewhere.
pub(super) fn attack_connections(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let seats = SEATS.to_string();
    let (tracker, _api) = target.start(&[
        ("TIDEGATE_HTTP__CONNECTIONS_MAX", &seats),
        ("TIDEGATE_HTTP__PROXY_PROTOCOL", "v1v2"),
        ("TIDEGATE_HTTP__TRUSTED_PROXIES", r#"["127.0.0.1"]"#),
    ])?;
    let mut held = Vec::new();
    for number in 0..SEATS + 200 {
        let network = (0x2001_0db9_0002_u128 << 80) + (u128::from(number) << 64);
        held.extend(
            seated(tracker.address, SocketAddr::from(((network + 1).to_be_bytes(), 1024))).ok(),
        );
    }
    held.retain_mut(is_open);
    let mut served = 0;
    for number in 0..20 {
        let client = super::proxied::honest(number, false);
        served += u32::from(seated(tracker.address, client).is_ok());
    }
    let attacker = held.len() as f64;
    let figures = Figures::default().with(HELD, attacker).with(HONEST, f64::from(served) / 20.0);
    let text = format!("{} of {SEATS} seats held, {served} of 20 others served", count(attacker));
    Ok(vec![("connections, /64s of one /48", figures, text)])
}

/// Returns a connection over which a request was served and that is kept alive.
fn seated(tracker: SocketAddr, client: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(tracker)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let (ip, port) = (client.ip(), client.port());
    write!(
        stream,
        "PROXY TCP6 {ip} 2606:4700::1 {port} 6969\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n"
    )?;
    let mut answer = [0; 4096];
    let len = stream.read(&mut answer).context("no answer")?;
    ensure!(len > 0, "closed");
    stream.set_nonblocking(true)?;
    Ok(stream)
}
