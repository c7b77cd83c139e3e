//! A web page whose images are announces: browsers that show it become peers, or are banned.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::http;

use super::{Site, connect_from, network};
use crate::attacks::{HELD, HONEST, KEY, Outcome, Target};
use crate::lab::Protocol;
use crate::record::Figures;

/// Ports of servers that a page makes its visitors announce.
const PORTS: [u16; 3] = [25, 80, 443];
/// Images with wrong keys: twice as many as the tracker accepts in a minute.
const IMAGES: u32 = 40;
const WRONG_KEYS: &str = "20";
const REQUESTS: u32 = 20;
/// Bans are made a few times a second.
const BANNED: Duration = Duration::from_secs(2);
/// A tracker may answer nothing.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    Ok(vec![visitors(target)?, bans(target)?])
}

/// Shows a page with announces, and counts the peers that result.
fn visitors(target: &Target<'_>) -> Result<Outcome> {
    let site = Site::open(target, Protocol::Udp, &[])?;
    let visitor = network::client(1);
    for port in PORTS {
        show(visitor.into(), site.address(), &announce("/announce", port, 0))?;
    }
    // Another client, who is answered with all of them.
    let mut asker = http::Connection::new(connect_from(network::client(2).into(), site.address())?);
    let request = announce("/announce", 6881, 1);
    asker.send(format!("GET {request} HTTP/1.1\r\nHost: t\r\n\r\n"))?;
    let response = asker.receive().context("an honest announce")?;
    let is_peer = |port: &u16| response.has([&visitor.octets()[..], &port.to_be_bytes()].concat());
    let stored = PORTS.iter().filter(|port| is_peer(port)).count();
    let figures = Figures::default().with(HELD, stored as f64);
    let text = format!("{stored} of {} ports of a visitor stored", PORTS.len());
    Ok(("pages, a visitor's ports", figures, text))
}

/// Shows a page with wrong keys, and has the visitor use a valid one.
fn bans(target: &Target<'_>) -> Result<Outcome> {
    let settings =
        [("TIDEGATE_ACCESS__PRIVATE", "true"), ("TIDEGATE_BANS__WRONG_KEYS_PER_MIN", WRONG_KEYS)];
    let site = Site::open(target, Protocol::Udp, &settings)?;
    site.api()?.ask(201, "POST /api/v1/keys", &format!("{{\"key\":\"{KEY}\"}}"))?;
    let address = site.address();
    let get = || http::get(address, &announce(&format!("/announce/{KEY}"), 6881, 1));
    let first = get().context("a valid key")?;
    ensure!(first.has("interval"), "a valid key was refused: {}", first.text());
    for number in 0..IMAGES {
        // Once banned, it is not even connected.
        let _ = show(
            network::client(1).into(),
            address,
            &format!("/announce/aaaaaaaaaaaaaaaa?{number}"),
        );
    }
    thread::sleep(BANNED);
    let is_served = |_: &u32| get().is_ok_and(|response| response.has("interval"));
    let served = (0..REQUESTS).filter(is_served).count();
    let part = served as f64 / f64::from(REQUESTS);
    let text = format!("{served} of {REQUESTS} announces with a valid key served");
    Ok(("pages, wrong keys", Figures::default().with(HONEST, part), text))
}

fn announce(path: &str, port: u16, left: u8) -> String {
    let hash = "%5a".repeat(20);
    let peer = format!("peer_id=-XX0001-000000000000&port={port}&left={left}&compact=1");
    format!("{path}?info_hash={hash}&{peer}")
}

/// Requests an image as Chromium does for a page over plain HTTP.
fn show(visitor: IpAddr, tracker: SocketAddr, target: &str) -> Result<()> {
    let mut stream = connect_from(visitor, tracker)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // One write, as a browser does.
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {tracker}\r\nConnection: keep-alive\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
         Chrome/138.0.0.0 Safari/537.36\r\n\
         Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
         Referer: http://forum.example/\r\nAccept-Encoding: gzip, deflate\r\n\
         Accept-Language: en-US,en;q=0.9\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    // It may close, answer or do nothing.
    let _ = stream.read(&mut [0; 4096]);
    Ok(())
}
