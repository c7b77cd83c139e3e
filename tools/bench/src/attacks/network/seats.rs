//! All connections of a tracker, held by networks of IPv6.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};

use super::{PORT, Site, connect_from, network};
use crate::attacks::sockets::is_open;
use crate::attacks::{HELD, HONEST, Outcome, Target};
use crate::lab::Protocol;
use crate::record::Figures;

/// Connections that the tracker allows, by its two workers.
const SEATS: u16 = 1000;
const HONEST_CLIENTS: u8 = 20;

/// Opens connections from /64s of one /48 and of five, and then some from elsewhere.
pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let scenes = [("connections, /64s of one /48", 1), ("connections, five /48s", 5)];
    scenes.map(|(case, networks)| play(target, case, networks)).into_iter().collect()
}

fn play(target: &Target<'_>, case: &'static str, networks: u16) -> Result<Outcome> {
    let (v4, v6) = (network::tracker(1), network::tracker_v6(1));
    let listen = format!(r#"["{v4}:{PORT}", "[{v6}]:{PORT}"]"#);
    let settings = [
        ("TIDEGATE_HTTP__CONNECTIONS_MAX", "500"),
        ("TIDEGATE_HTTP__WORKERS", "2"),
        ("TIDEGATE_HTTP__LISTEN", &listen),
    ];
    let site = Site::open(target, Protocol::Udp, &settings)?;
    let mut held = Vec::new();
    // The kernel chooses a worker for each, which may have no seat left while the other one has.
    for number in 0..2 * SEATS {
        let (network, host) = (0x10 + number % networks, number / networks);
        let source = IpAddr::from([0x2001, 0xdb8, network, host, 0, 0, 0, 1]);
        held.extend(seated(source, SocketAddr::from((v6, PORT))).ok());
    }
    held.retain_mut(is_open);
    let attacker = held.len();
    let mut honest = Vec::new();
    for number in 0..HONEST_CLIENTS {
        let source = IpAddr::from([198, 18, 100 + number, 2]);
        honest.extend(seated(source, site.address()).ok());
    }
    let served = honest.len() as f64;
    let figures = Figures::default()
        .with(HELD, attacker as f64)
        .with(HONEST, served / f64::from(HONEST_CLIENTS));
    let text =
        format!("{attacker} of {SEATS} seats held, {served} of {HONEST_CLIENTS} others served");
    Ok((case, figures, text))
}

/// Returns a connection over which a request was served and that is kept alive.
fn seated(source: IpAddr, tracker: SocketAddr) -> Result<TcpStream> {
    let mut stream = connect_from(source, tracker)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")?;
    let mut answer = [0; 4096];
    let len = stream.read(&mut answer).context("no answer")?;
    ensure!(len > 0, "closed");
    stream.set_nonblocking(true)?;
    Ok(stream)
}
