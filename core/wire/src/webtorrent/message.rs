//! Parsing of clients' messages.

use arrayvec::ArrayVec;
use types::{Event, InfoHash, NumWant, OfferId, PeerId, Refusal, limits};

use super::json::{JsonValue, Scanner};

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack until it is answered")]
pub enum Message<'a> {
    /// An announce, which may carry offers.
    Announce(Announce<'a>),
    /// The answer to another client's offer.
    Answer(Answer<'a>),
    /// A scrape.
    Scrape(Scrape<'a>),
}

/// An announce with its offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The client's peer id in this torrent.
    pub peer_id: PeerId,
    /// The event of the announce.
    pub event: Event,
    /// Bytes left to download. `None` if unknown: absent, null, negative or not a number.
    pub left: Option<u64>,
    /// Bytes uploaded since the client started, as the client reports.
    pub uploaded: u64,
    /// Bytes downloaded since the client started, as the client reports.
    pub downloaded: u64,
    /// The number of peers requested.
    pub want: NumWant,
    /// One offer for each peer that the client wants to connect to.
    pub offers: Offers<'a>,
}

/// The offers of one announce. Offers over the limit are dropped.
pub type Offers<'a> = ArrayVec<Offer<'a>, { limits::WEB_OFFERS_MAX }>;

/// An offer to connect (WebRTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// The id that the answer will repeat.
    pub id: OfferId,
    /// The offer itself: a JSON object, unchanged.
    pub json: &'a str,
}

/// The answer to an offer (WebRTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer that answers.
    pub peer_id: PeerId,
    /// The peer that made the offer.
    pub to_peer_id: PeerId,
    /// The id of the offer.
    pub offer_id: OfferId,
    /// The answer itself: a JSON object, unchanged.
    pub json: &'a str,
}

/// A request for the counts of torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrape<'a> {
    info_hash: JsonValue<'a>,
}

/// The `action` of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An announce or an answer.
    Announce,
    /// A scrape.
    Scrape,
}

/// An error in a message, with the fields for [`super::failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageError {
    /// The reason.
    pub refusal: Refusal,
    /// The message's action, if known.
    pub action: Option<Action>,
    /// The message's torrent, if known.
    pub info_hash: Option<InfoHash>,
}

/// Parses a client's message.
///
/// # Errors
///
/// Returns the refusal for a text that is not a JSON object, for an unknown action, and for the first member that
/// is malformed or missing, with the action and the torrent if these are known.
pub fn read(text: &str) -> Result<Message<'_>, MessageError> {
    let bad = |refusal| Err(MessageError { refusal, action: None, info_hash: None });
    let mut members = Members::default();
    if members.read(text).is_none() {
        return bad(Refusal::NotJson);
    }
    match word(members.action, &mut [0; 16]) {
        b"announce" => members.announce(),
        b"scrape" => Ok(Message::Scrape(Scrape { info_hash: members.info_hash })),
        _ => bad(Refusal::UnknownAction),
    }
}

/// Parses a client's message from a binary frame, which some clients send.
///
/// # Errors
///
/// Returns [`Refusal::NotJson`] if the bytes are not UTF-8, and what [`read`] returns.
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
    /// Returns an announce with an unknown `left`, no event and no offers.
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
}

impl Scrape<'_> {
    /// Writes the requested info hashes to `buffer` and returns the filled part. Hashes keep their order
    /// and are distinct, because they become the keys of an object.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::InfoHashString`] if a hash is not a string of 20 characters up to U+00FF, and
    /// [`Refusal::FullScrape`] if there is none.
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
                // Cannot fail by itself, because the text was validated before: it stops early only
                // at a malformed hash.
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

/// The known members of a message. Absent members are null.
#[derive(Default)]
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
    /// True if `offers` has a value that is not an array of offers.
    offers_malformed: bool,
}

impl<'a> Members<'a> {
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

    /// Parses the value of `offers`.
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

    /// Returns the announce, or the answer, which has the same action.
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

/// Parses an element of `offers`. Returns `Some(None)` if it is JSON, but not an offer.
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
fn twenty_bytes(value: JsonValue<'_>) -> Option<[u8; 20]> {
    match value {
        JsonValue::String(text) => text.twenty_bytes(),
        _ => None,
    }
}

/// Returns the keyword in a value, empty if it is not a short string.
fn word<'b>(value: JsonValue<'b>, buffer: &'b mut [u8; 16]) -> &'b [u8] {
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

/// Returns a number of bytes or peers. Fractions are rounded up, so that only 0 is 0. `None` if it is
/// negative or not a number.
fn number(value: JsonValue<'_>) -> Option<u64> {
    let JsonValue::Number(text) = value else { return None };
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as intended")]
    (number >= 0.0).then_some(number.ceil() as u64)
}
