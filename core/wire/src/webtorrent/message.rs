//! What clients say.

use arrayvec::ArrayVec;
use types::{Event, InfoHash, NumWant, OfferId, PeerId, Refusal, Role, limits};

use super::json::{JsonValue, Scanner};

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for as long as it is answered"
)]
pub enum Message<'a> {
    /// It is there, or leaves, and may offer connections.
    Announce(Announce<'a>),
    /// It takes an offer.
    Answer(Answer<'a>),
    /// It asks for figures.
    Scrape(Scrape<'a>),
}

/// An announce with its offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// What the client calls itself in this torrent.
    pub peer_id: PeerId,
    /// Why it announces.
    pub event: Event,
    /// Bytes it still misses; `None` when it does not know: absent, null, negative, no number.
    pub left: Option<u64>,
    /// Bytes it has sent since it started, by its own account.
    pub uploaded: u64,
    /// Bytes it has received since it started, by its own account.
    pub downloaded: u64,
    /// How many peers it asks for.
    pub want: NumWant,
    /// One offer for each peer it would like to know.
    pub offers: Offers<'a>,
}

/// Offers of one announce; those above the limit are cut.
pub type Offers<'a> = ArrayVec<Offer<'a>, { limits::WEB_OFFERS_MAX }>;

/// An offer to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// What the answer will name.
    pub id: OfferId,
    /// The offer itself: a JSON object, byte for byte as it came.
    pub json: &'a str,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Who answers.
    pub peer_id: PeerId,
    /// Who offered.
    pub to_peer_id: PeerId,
    /// Which offer.
    pub offer_id: OfferId,
    /// The answer itself: a JSON object, byte for byte as it came.
    pub json: &'a str,
}

/// A question for torrents' figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrape<'a> {
    info_hash: JsonValue<'a>,
}

/// What a message is about, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An announce or an answer.
    Announce,
    /// A scrape.
    Scrape,
}

/// A message that is refused, with what its [`super::failure`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageError {
    /// What is wrong.
    pub refusal: Refusal,
    /// What it is about, if that is known.
    pub action: Option<Action>,
    /// The torrent, if one is named.
    pub info_hash: Option<InfoHash>,
}

/// Reads a client's message.
pub fn read(text: &str) -> Result<Message<'_>, MessageError> {
    let bad = |refusal| Err(MessageError { refusal, action: None, info_hash: None });
    let mut members = Members::new();
    if members.read(text).is_none() {
        return bad(Refusal::NotJson);
    }
    match word(members.action, &mut [0; 16]) {
        b"announce" => members.announce(),
        b"scrape" => Ok(Message::Scrape(Scrape { info_hash: members.info_hash })),
        _ => bad(Refusal::UnknownAction),
    }
}

/// Reads a client's message that came as bytes, which some clients send.
//= webtorrent#json
pub fn read_binary(bytes: &[u8]) -> Result<Message<'_>, MessageError> {
    let text = simdutf8::basic::from_utf8(bytes);
    read(text.map_err(|_| MessageError {
        refusal: Refusal::NotJson,
        action: None,
        info_hash: None,
    })?)
}

impl Announce<'_> {
    /// An update that says nothing else.
    pub fn new(info_hash: InfoHash, peer_id: PeerId) -> Self {
        Self {
            info_hash,
            peer_id,
            event: Event::None,
            left: None,
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Default,
            offers: Offers::new(),
        }
    }

    /// The role that the announce claims.
    pub fn role(&self) -> Role {
        Role::claimed(self.event, self.left)
    }
}

impl Scrape<'_> {
    /// Puts the named torrents into `buffer`, in their order and without repeats, since they become the
    /// keys of an object, and gives that slice. One that is malformed refuses the scrape.
    pub fn read_into<'b>(
        &self,
        buffer: &'b mut [InfoHash; limits::SCRAPE_HASHES_WEB_MAX],
    ) -> Result<&'b [InfoHash], Refusal> {
        let mut named = 0;
        let mut add = |value| {
            let hash = InfoHash(twenty_bytes(value).ok_or(Refusal::InfoHashString)?);
            let known = buffer.get(..named).unwrap_or_default().contains(&hash);
            if let (false, Some(slot)) = (known, buffer.get_mut(named)) {
                *slot = hash;
                named += 1;
            }
            Ok(())
        };
        //= webtorrent#scrape
        match self.info_hash {
            JsonValue::Null => {}
            JsonValue::Array(text) => {
                let mut result = Ok(());
                // It was read before, so it ends only where it ends, or at a bad member.
                let _ = Scanner::new(text).elements(|scanner| {
                    result = add(scanner.value()?);
                    result.ok()
                });
                result?;
            }
            value => add(value)?,
        }
        match buffer.get(..named) {
            None | Some([]) => Err(Refusal::FullScrape),
            Some(named) => Ok(named),
        }
    }
}

/// The members of a message that have a meaning; those that are absent are as if null.
struct Members<'a> {
    action: JsonValue<'a>,
    info_hash: JsonValue<'a>,
    peer_id: JsonValue<'a>,
    to_peer_id: JsonValue<'a>,
    offer_id: JsonValue<'a>,
    answer: JsonValue<'a>,
    event: JsonValue<'a>,
    left: JsonValue<'a>,
    uploaded: JsonValue<'a>,
    downloaded: JsonValue<'a>,
    numwant: JsonValue<'a>,
    offers: Offers<'a>,
    /// Whether `offers` is something else than offers.
    offers_malformed: bool,
}

impl<'a> Members<'a> {
    fn new() -> Self {
        Self {
            action: JsonValue::Null,
            info_hash: JsonValue::Null,
            peer_id: JsonValue::Null,
            to_peer_id: JsonValue::Null,
            offer_id: JsonValue::Null,
            answer: JsonValue::Null,
            event: JsonValue::Null,
            left: JsonValue::Null,
            uploaded: JsonValue::Null,
            downloaded: JsonValue::Null,
            numwant: JsonValue::Null,
            offers: Offers::new(),
            offers_malformed: false,
        }
    }

    fn read(&mut self, text: &'a str) -> Option<()> {
        let mut scanner = Scanner::new(text);
        scanner.members(|scanner, key| {
            let place = match key.word(&mut [0; 16]) {
                b"action" => &mut self.action,
                b"info_hash" => &mut self.info_hash,
                b"peer_id" => &mut self.peer_id,
                b"to_peer_id" => &mut self.to_peer_id,
                b"offer_id" => &mut self.offer_id,
                b"answer" => &mut self.answer,
                b"event" => &mut self.event,
                b"left" => &mut self.left,
                b"uploaded" => &mut self.uploaded,
                b"downloaded" => &mut self.downloaded,
                b"numwant" => &mut self.numwant,
                b"offers" => return self.take_offers(scanner),
                //= webtorrent#unknown-keys
                _ => return scanner.value().map(drop),
            };
            *place = scanner.value()?;
            Some(())
        })?;
        scanner.end()
    }

    /// Takes the value of `offers`.
    //= webtorrent#offers
    fn take_offers(&mut self, scanner: &mut Scanner<'a>) -> Option<()> {
        self.offers.clear();
        self.offers_malformed = false;
        if scanner.peek()? != b'[' {
            self.offers_malformed = scanner.value()? != JsonValue::Null;
            return Some(());
        }
        scanner.elements(|scanner| {
            if self.offers_malformed || self.offers.is_full() {
                return scanner.value().map(drop);
            }
            match offer(scanner)? {
                Some(offer) => self.offers.push(offer),
                None => self.offers_malformed = true,
            }
            Some(())
        })
    }

    /// An announce, or the answer that clients send under the same name.
    //= webtorrent#announce
    fn announce(self) -> Result<Message<'a>, MessageError> {
        let known = twenty_bytes(self.info_hash).map(InfoHash);
        let bad =
            |refusal| MessageError { refusal, action: Some(Action::Announce), info_hash: known };
        let info_hash = known.ok_or_else(|| match self.info_hash {
            JsonValue::Null => bad(Refusal::InfoHashMissing),
            _ => bad(Refusal::InfoHashString),
        })?;
        let peer_id = twenty_bytes(self.peer_id).ok_or_else(|| bad(Refusal::PeerIdString))?;
        let peer_id = PeerId(peer_id);
        //= webtorrent#answer
        if self.answer != JsonValue::Null {
            let answer = self.answer(info_hash, peer_id);
            return answer.map(Message::Answer).ok_or_else(|| bad(Refusal::AnswerMalformed));
        }
        if self.offers_malformed {
            return Err(bad(Refusal::OfferMalformed));
        }
        Ok(Message::Announce(Announce {
            info_hash,
            peer_id,
            event: event(self.event),
            //= webtorrent#left-unknown
            left: number(self.left),
            uploaded: number(self.uploaded).unwrap_or(0),
            downloaded: number(self.downloaded).unwrap_or(0),
            //= webtorrent#numwant
            want: number(self.numwant).map_or(NumWant::Default, |number| {
                NumWant::Peers(u16::try_from(number).unwrap_or(u16::MAX))
            }),
            offers: self.offers,
        }))
    }

    fn answer(&self, info_hash: InfoHash, peer_id: PeerId) -> Option<Answer<'a>> {
        let JsonValue::Object(json) = self.answer else { return None };
        Some(Answer {
            info_hash,
            peer_id,
            to_peer_id: PeerId(twenty_bytes(self.to_peer_id)?),
            offer_id: OfferId(twenty_bytes(self.offer_id)?),
            json,
        })
    }
}

/// Takes a member of `offers`, and gives it if it is an offer.
fn offer<'a>(scanner: &mut Scanner<'a>) -> Option<Option<Offer<'a>>> {
    if scanner.peek()? != b'{' {
        scanner.value()?;
        return Some(None);
    }
    let (mut id, mut json) = (None, JsonValue::Null);
    scanner.members(|scanner, key| {
        match key.word(&mut [0; 16]) {
            b"offer_id" => {
                id = scanner.twenty_bytes();
                if id.is_none() {
                    scanner.value()?;
                }
            }
            b"offer" => json = scanner.value()?,
            _ => drop(scanner.value()?),
        }
        Some(())
    })?;
    Some(match (id, json) {
        (Some(id), JsonValue::Object(json)) => Some(Offer { id: OfferId(id), json }),
        _ => None,
    })
}

#[inline]
pub(super) fn twenty_bytes(value: JsonValue<'_>) -> Option<[u8; 20]> {
    match value {
        JsonValue::String(text) => text.twenty_bytes(),
        _ => None,
    }
}

/// The word that a value is; empty if it is none of the protocol.
pub(super) fn word<'b>(value: JsonValue<'b>, buffer: &'b mut [u8; 16]) -> &'b [u8] {
    match value {
        JsonValue::String(text) => text.word(buffer),
        _ => b"",
    }
}

//= webtorrent#events
fn event(value: JsonValue<'_>) -> Event {
    match word(value, &mut [0; 16]) {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        b"paused" => Event::Paused,
        _ => Event::None,
    }
}

/// A number of bytes or peers. A fraction counts as a whole, so that only 0 is 0; what is negative or
/// no number is unknown.
pub(super) fn number(value: JsonValue<'_>) -> Option<u64> {
    let JsonValue::Number(text) = value else { return None };
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "it saturates, which is what is wanted")]
    (number >= 0.0).then_some(number.ceil() as u64)
}
