//! What all peers of a run have in common.

use std::fmt::Write as _;

use types::{InfoHash, PeerId};

use super::Options;
use super::report::Tally;
use crate::Url;
use crate::latencies::Latencies;
use crate::random::Random;

/// The peers' common knowledge, and what they have seen.
pub(super) struct Crowd {
    pub(super) url: Url,
    /// Torrents, and where peers join them.
    pub(super) torrents: Vec<InfoHash>,
    /// Offers in each announce, and what they and their answers say.
    pub(super) offers: usize,
    pub(super) offer: String,
    pub(super) answer: String,
    pub(super) answers_percent: u8,
    pub(super) scrapes_percent: u8,
    pub(super) random: Random,
    /// Whether the tracker replies to answers, as it does to announces. bittorrent-tracker does not,
    /// aquatic_ws does.
    pub(super) acknowledges: bool,
    /// Whether that is being found out.
    pub(super) probing: bool,
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    /// The first reason that the tracker gave for not serving, or that a connection ended for.
    pub(super) complaint: Option<String>,
}

impl Crowd {
    pub(super) fn new(options: &Options) -> Self {
        let mut random = Random::new(options.seed);
        let torrents = (0..options.torrents.max(1)).map(|_| InfoHash(random.bytes())).collect();
        Self {
            url: options.url.clone(),
            torrents,
            offers: options.offers,
            offer: description("offer", options.offer_bytes),
            answer: description("answer", options.offer_bytes),
            answers_percent: options.answers_percent,
            scrapes_percent: options.scrapes_percent,
            random,
            acknowledges: false,
            probing: false,
            tally: Tally::default(),
            latencies: Latencies::default(),
            complaint: None,
        }
    }

    /// 16 random bytes in base64, of which the last digit holds but two bits.
    pub(super) fn handshake_key(&mut self) -> [u8; 24] {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut key = [b'='; 24];
        for (at, place) in key.iter_mut().take(22).enumerate() {
            let digit = if at == 21 { self.random.below(4) * 16 } else { self.random.below(64) };
            *place = DIGITS.get(digit).copied().unwrap_or(b'A');
        }
        key
    }

    /// A name as clients make them: who wrote the client, then whatever.
    pub(super) fn peer_id(&mut self) -> PeerId {
        let mut id = *b"-TG0001-000000000000";
        for place in id.iter_mut().skip(8) {
            *place = b'a' + self.random.below(26) as u8;
        }
        PeerId(id)
    }

    pub(super) fn mask(&mut self) -> [u8; 4] {
        self.random.bytes()
    }

    pub(super) fn complain(&mut self, what: impl FnOnce() -> String) {
        self.complaint.get_or_insert_with(what);
    }
}

/// A session description in JSON, of at least so many bytes: what browsers send for a data channel,
/// with as many candidates as it takes.
fn description(kind: &str, bytes: usize) -> String {
    let mut sdp = String::from(
        "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
         a=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
         m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n",
    );
    let setup = if kind == "offer" { "actpass" } else { "active" };
    let end = format!(
        "a=ice-ufrag:Xk7d\r\na=ice-pwd:0SxIs3QmVwqk4Q0Jt8pXyZ2b\r\na=ice-options:trickle\r\n\
         a=fingerprint:sha-256 B5:4C:0A:8E:1F:77:2D:90:C3:5A:66:0B:EE:91:24:D8:3B:7C:F0:15:A9:42:6E:83:DD:07:5F:\
         B1:C8:39:64:12\r\na=setup:{setup}\r\na=mid:0\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n"
    );
    let mut candidate = 1;
    while sdp.len() + end.len() < bytes {
        // Writing to a string cannot fail.
        let _ = write!(
            sdp,
            "a=candidate:2999745851 {candidate} udp 2113937151 192.168.56.{candidate} 51411 typ host \
             generation 0 network-cost 999\r\n"
        );
        candidate += 1;
    }
    format!(r#"{{"type":"{kind}","sdp":"{}"}}"#, (sdp + &end).replace("\r\n", "\\r\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_about_as_long_as_asked() {
        for bytes in [600, 1000, 5000] {
            let text = description("offer", bytes);
            assert!(text.len() >= bytes && text.len() < bytes + 300, "{}", text.len());
        }
        assert!(description("answer", 1000).starts_with(r#"{"type":"answer","sdp":"v=0\r\n"#));
    }

    #[test]
    fn keys_and_names_are_of_their_form() {
        let options = Options::busy(Url::web("ws://127.0.0.1").unwrap());
        let mut crowd = Crowd::new(&options);
        let key = crowd.handshake_key();
        assert!(key.ends_with(b"==") && key != crowd.handshake_key());
        assert!(b"AQgw".contains(&key[21]));
        assert_ne!(crowd.peer_id(), crowd.peer_id());
    }
}
