//! State that all peers of a worker share.

use std::collections::HashSet;

use types::{Announce, OfferId, PeerId};

use super::WsOptions;
use crate::TrackerUrl;
use crate::counters::Counters;
use crate::population::Population;
use crate::random::{Random, hash};

/// Shared parameters and observations.
pub(super) struct SharedState {
    pub(super) url: TrackerUrl,
    population: Population,
    /// Peers of one connection.
    pub(super) peers_each: u32,
    /// Announces that were answered while their connections were joining.
    pub(super) first_announces: usize,
    /// Offers per announce, and the session descriptions of offers and answers.
    pub(super) offers: usize,
    pub(super) offer: String,
    pub(super) answer: String,
    pub(super) random: Random,
    /// True if the tracker acknowledges answers as it does announces. aquatic_ws does,
    /// bittorrent-tracker does not.
    pub(super) acknowledges: bool,
    /// True if the probe for that is running.
    pub(super) probing: bool,
    /// Upper limit of a plausible peer count.
    peers_max: u64,
    check_every: u32,
    /// A sample of the received offers.
    offers_seen: HashSet<OfferId>,
    pub(super) counters: Counters,
}

/// Offers remembered to detect repetitions.
const OFFERS_SEEN_MAX: usize = 65_536;

impl SharedState {
    pub(super) fn new(options: &WsOptions, share: u32, shares: u32) -> Self {
        Self {
            url: options.url.clone(),
            population: Population::new(&options.workload, share, shares),
            peers_each: options.peers_each.max(1),
            first_announces: 0,
            offers: options.offers,
            offer: description("offer", "actpass"),
            answer: description("answer", "active"),
            random: Random::new(hash(options.workload.seed, share.into())),
            acknowledges: false,
            probing: false,
            peers_max: options.workload.peers.into(),
            check_every: options.check_every.max(1),
            offers_seen: HashSet::new(),
            counters: Counters::default(),
        }
    }

    /// Returns the number of connections.
    pub(super) fn connections(&self) -> usize {
        (self.population.len() / self.peers_each) as usize
    }

    /// Returns the path and query of the connection at this index.
    pub(super) fn target(&self, index: usize) -> &str {
        self.url.target(self.population.number(index as u32))
    }

    /// Returns the next announce of a peer of the connection at this index.
    pub(super) fn announce(&mut self, index: usize, peer: u32) -> Announce {
        let place = index as u32 * self.peers_each + peer;
        let (announce, _) = self.population.announce(place, &mut self.random);
        // Another peer replaces a leaving one, but the tracker may still count both.
        self.peers_max += u64::from(announce.event == types::Event::Stopped);
        announce
    }

    /// Checks the count of an announce response.
    pub(super) fn check_count(&mut self, peers: u64) {
        self.counters.checks.checked += 1;
        self.counters.checks.bad_counts += u64::from(peers > self.peers_max);
    }

    /// Checks an offer that peer `own` received. Only offers with certain ids are checked, so that
    /// a repeated offer is checked again.
    pub(super) fn check_offer(&mut self, own: PeerId, from: PeerId, offer: OfferId) {
        let [first, second, ..] = offer.0;
        if !u32::from(u16::from_be_bytes([first, second])).is_multiple_of(self.check_every) {
            return;
        }
        let checks = &mut self.counters.checks;
        checks.checked += 1;
        checks.own_address += u64::from(from == own);
        checks.unknown_peers += u64::from(!from.0.starts_with(b"-TG0001-"));
        if self.offers_seen.len() >= OFFERS_SEEN_MAX {
            self.offers_seen.clear();
        }
        checks.duplicates += u64::from(!self.offers_seen.insert(offer));
    }

    pub(super) fn handshake_key(&mut self) -> [u8; 24] {
        client::codec::ws::handshake_key(&self.random.bytes())
    }

    pub(super) fn mask(&mut self) -> [u8; 4] {
        self.random.bytes()
    }
}

/// Returns a session description of more than 1,000 bytes in JSON, as browsers send for a data channel.
fn description(kind: &str, setup: &str) -> String {
    const CANDIDATE: &str = "a=candidate:2999745851 1 udp 2113937151 192.168.56.1 51411 typ host generation 0 \
                             network-cost 999\r\n";
    let sdp = format!(
        "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
         a=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
         m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n{}\
         a=ice-ufrag:Xk7d\r\na=ice-pwd:0SxIs3QmVwqk4Q0Jt8pXyZ2b\r\na=ice-options:trickle\r\n\
         a=fingerprint:sha-256 B5:4C:0A:8E:1F:77:2D:90:C3:5A:66:0B:EE:91:24:D8:3B:7C:F0:15:A9:42:6E:83:DD:07:5F:\
         B1:C8:39:64:12\r\na=setup:{setup}\r\na=mid:0\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n",
        CANDIDATE.repeat(6)
    );
    format!(r#"{{"type":"{kind}","sdp":"{}"}}"#, sdp.replace("\r\n", "\\r\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> SharedState {
        let options = WsOptions::busy(TrackerUrl::web("ws://127.0.0.1").unwrap());
        SharedState::new(&WsOptions { check_every: 1, ..options }, 0, 1)
    }

    #[test]
    fn counts_faulty_offers_and_counts() {
        let mut shared = shared();
        let [one, two] = [0, 1].map(|index| shared.announce(index, 0).peer_id);
        let offers = [1, 2, 3].map(|byte| OfferId([byte; 20]));
        shared.check_offer(one, two, offers[0]);
        shared.check_count(128);
        let checks = shared.counters.checks;
        assert_eq!((checks.checked, checks.own_address, checks.unknown_peers), (2, 0, 0));
        assert_eq!((checks.duplicates, checks.bad_counts), (0, 0));
        shared.check_offer(one, two, offers[0]);
        shared.check_offer(one, one, offers[1]);
        shared.check_offer(one, PeerId([b'x'; 20]), offers[2]);
        shared.check_count(129);
        let checks = shared.counters.checks;
        assert_eq!((checks.duplicates, checks.own_address), (1, 1));
        assert_eq!((checks.unknown_peers, checks.bad_counts), (1, 1));
    }
}
