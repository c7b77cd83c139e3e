//! The one-pass parser against its plain form.

use super::*;

/// The plain form of [`announce_query`].
mod plain {
    use super::super::{AnnounceQuery, event, parameters};
    use types::{Announce, InfoHash, NumWant, PeerId, Refusal};

    pub(super) fn announce_query(query: &[u8]) -> Result<AnnounceQuery, Refusal> {
        let first = |wanted: &[u8]| {
            parameters(query).find(|(name, _)| *name == wanted).map(|(_, value)| value)
        };
        let info_hash = first(b"info_hash").ok_or(Refusal::InfoHashMissing)?;
        let truncated = || Some(*bytes::<32>(info_hash)?.first_chunk::<20>()?);
        let info_hash = bytes(info_hash).or_else(truncated).ok_or(Refusal::InfoHashMalformed)?;
        let peer_id = first(b"peer_id").and_then(bytes).ok_or(Refusal::PeerIdMalformed)?;
        let port = first(b"port").and_then(number).ok_or(Refusal::PortMalformed)?;
        let left = match first(b"left") {
            None | Some(b"") => None,
            Some(text) => Some(left(text).ok_or(Refusal::LeftMalformed)?),
        };
        let announce = Announce {
            info_hash: InfoHash(info_hash),
            peer_id: PeerId(peer_id),
            port: u16::try_from(port).map_err(|_| Refusal::PortMalformed)?,
            event: event(first(b"event").unwrap_or_default()),
            left,
            uploaded: first(b"uploaded").and_then(number).unwrap_or(0),
            downloaded: first(b"downloaded").and_then(number).unwrap_or(0),
            want: match first(b"numwant").and_then(number) {
                Some(peers) => NumWant::Peers(u16::try_from(peers).unwrap_or(u16::MAX)),
                None => NumWant::Default,
            },
        };
        let compact = first(b"compact") != Some(b"0");
        Ok(AnnounceQuery { announce, compact, no_peer_id: first(b"no_peer_id") == Some(b"1") })
    }

    fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut rest = text;
        for byte in &mut bytes {
            let (first, behind) = rest.split_first()?;
            (*byte, rest) = if *first == b'%' {
                let ([high, low], behind) = behind.split_first_chunk()?;
                let digit = |digit: u8| char::from(digit).to_digit(16);
                ((digit(*high)? << 4 | digit(*low)?) as u8, behind)
            } else {
                (*first, behind)
            };
        }
        rest.is_empty().then_some(bytes)
    }

    fn number(text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?;
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    fn left(text: &[u8]) -> Option<u64> {
        let unsigned = text.strip_prefix(b"-").unwrap_or(text);
        let is_number = !unsigned.is_empty() && unsigned.iter().all(u8::is_ascii_digit);
        let value = is_number.then(|| number(unsigned).unwrap_or(u64::MAX))?;
        Some(if unsigned.len() < text.len() { u64::MAX } else { value })
    }
}

const TWENTY: &str = "abcdefghijklmnopqrst";
const HEX: &str = "%00%01%02%03%04%05%06%07%08%09%0a%0B%0c%0d%0e%0f%10%11%12a";

/// Names of random queries, separated by spaces: known, nearly known, and unknown.
const NAMES: &str = "info_hash peer_id port uploaded downloaded left event numwant compact no_peer_id key ip \
    info_has info_hashh portx i com no_peer_i corrupt peer_id+ ";
/// Values of random queries, separated by spaces. The last is empty.
const VALUES: &str = "%2 %2g%% 0 1 -1 - 65535 65536 50 started completed stopped paused 1x = a=b %26 007 \
    18446744073709551615 18446744073709551616 99999999999999999999999 abcdefghijklmnopqrs% \
    abcdefghijklmnopqrstu abcdefghijklmnopqrs%4 abcdefghijklmnopqrstuvwxyzABCDEF \
    %00%01%02%03%04%05%06%07%08%09%0a%0B%0c%0d%0e%0f%10%11%12abcdefghijkl%ff \
    abcdefghijklmnopqrstuvwxyzABCDE% ";

#[test]
fn one_pass_agrees_with_the_plain_form() {
    let mut random = fastrand::Rng::with_seed(1);
    let names: Vec<&str> = NAMES.split(' ').collect();
    let values: Vec<&str> = VALUES.split(' ').chain([TWENTY, HEX]).collect();
    let (mut served, mut refused) = (0, 0);
    for round in 0..50_000 {
        // Every other query has what an announce needs, so that the rest of it matters.
        let mut query = match round % 2 {
            0 => format!("info_hash={HEX}&peer_id={TWENTY}&port=1"),
            _ => String::new(),
        };
        for _ in 0..random.usize(..7) {
            let joint = ["&", "&", "&", "&&", ""][random.usize(..5)];
            let equals = ["=", "=", "=", ""][random.usize(..4)];
            let name = names[random.usize(..names.len())];
            let value = values[random.usize(..values.len())];
            query += &format!("{joint}{name}{equals}{value}");
        }
        let parsed = announce_query(query.as_bytes());
        assert_eq!(parsed, plain::announce_query(query.as_bytes()), "{query}");
        if parsed.is_ok() { served += 1 } else { refused += 1 }
    }
    assert!(served > 5_000 && refused > 5_000, "{served} served, {refused} refused");
}
