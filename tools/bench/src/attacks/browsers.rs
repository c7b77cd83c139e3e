//! WebTorrent peers, each in a torrent of its own, which fill the memory that browsers may take.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use harness::http::Connection;

use super::proxied::honest;
use super::sockets::{WebSocket, frame};
use super::{HELD, HONEST, Outcome, Target};
use crate::figures::count;
use crate::record::Figures;

/// Announces over a WebSocket: fewer than it may have torrents.
const ANNOUNCES: u32 = 9500;
/// Announces that are on the way at once.
const BATCH: u32 = 50;
const HONEST_BROWSERS: u32 = 20;

/// An attacker.
struct Scene {
    case: &'static str,
    memory_mib: &'static str,
    sockets: u32,
    /// The address of the n-th WebSocket.
    attacker: fn(u32) -> IpAddr,
}

const SCENES: [Scene; 2] = [
    Scene {
        case: "memory, browsers of one address",
        memory_mib: "64",
        sockets: 7,
        attacker: |_| IpAddr::from([93, 184, 216, 34]),
    },
    Scene {
        case: "memory, browsers in /64s of one /48",
        memory_mib: "256",
        sockets: 28,
        attacker: |number| {
            let network = (0x2001_0db9_0002_u128 << 80) + (u128::from(number) << 64);
            IpAddr::from((network + 1).to_be_bytes())
        },
    },
];

pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    SCENES.iter().map(|scene| scene.play(target)).collect()
}

impl Scene {
    fn play(&self, target: &Target<'_>) -> Result<Outcome> {
        let (tracker, _api) = target.start(&[
            ("TIDEGATE_LIMITS__MEMORY_MIB", self.memory_mib),
            ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", "0"),
            ("TIDEGATE_HTTP__TRUSTED_PROXIES", r#"["127.0.0.1"]"#),
        ])?;
        let mut torrents = 0;
        let mut browsers = Vec::new();
        let mut held = 0;
        for number in 0..self.sockets {
            let mut browser = Browser::open(tracker.address, (self.attacker)(number))?;
            for _ in 0..ANNOUNCES / BATCH {
                held += browser.announce(torrents, BATCH)?;
                torrents += BATCH;
            }
            browsers.push(browser);
        }
        let mut stored = 0;
        for number in 0..HONEST_BROWSERS {
            let address = honest(number, number % 2 == 0).ip();
            let mut browser = Browser::open(tracker.address, address)?;
            stored += browser.announce(torrents + number, 1)?;
            browsers.push(browser);
        }
        let part = f64::from(stored) / f64::from(HONEST_BROWSERS);
        let figures = Figures::default().with(HONEST, part).with(HELD, held.into());
        let held = count(held.into());
        let text =
            format!("{stored} of {HONEST_BROWSERS} honest browsers stored, {held} attackers");
        Ok((self.case, figures, text))
    }
}

/// A WebSocket over which peers announce.
struct Browser(WebSocket);

impl Browser {
    fn open(tracker: SocketAddr, client: IpAddr) -> Result<Self> {
        let header = format!("X-Forwarded-For: {client}\r\n");
        Ok(Self(WebSocket::open(Connection::open(tracker)?, &header)?))
    }

    /// Announces a leecher in each of `count` torrents. Returns how many of these count it.
    fn announce(&mut self, first: u32, count: u32) -> Result<u32> {
        let mut frames = Vec::new();
        for torrent in first..first + count {
            let text = format!(
                r#"{{"action":"announce","info_hash":"{torrent:020}","peer_id":"-XX0001-000000000001","left":1,"uploaded":0,"downloaded":0,"numwant":0,"offers":[]}}"#
            );
            frames.extend(frame(&text));
        }
        self.0.0.send(frames)?;
        let mut stored = 0;
        for _ in 0..count {
            let text = self.0.message()?;
            let answer: serde_json::Value = serde_json::from_slice(&text)?;
            ensure!(answer["interval"].is_number(), "refused: {answer}");
            stored += u32::from(answer["incomplete"] == 1);
        }
        Ok(stored)
    }
}
