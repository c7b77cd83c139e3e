//! Messages of clients, and those of the tracker as `JSON.parse` reads them. `tests/codecs` compares the parser
//! with one made of `serde_json`.

use super::{
    Action, Announce, Answer, Message, MessageError, Offer, Relay, announce_reply, failure, read,
    read_binary, scrape_reply,
};
use serde_json::{Value, json};
use types::{
    Event, FamilyCounts, InfoHash, NumWant, OfferId, PeerId, Refusal, Role, SwarmCounts, limits,
};

const HASH: InfoHash = InfoHash(*b"aaaaaaaaaaaaaaaaaaaa");
const PEER: PeerId = PeerId(*b"-WW0205-abcdefghijkl");
const OTHER: PeerId = PeerId(*b"-WW0205-bcdefghijklm");
const OFFER: OfferId = OfferId(*b"oooooooooooooooooooo");
const FULL: Refusal = Refusal::FullScrape;

fn announce(text: &str) -> Announce<'_> {
    match read(text) {
        Ok(Message::Announce(announce)) => announce,
        other => panic!("{other:?} of {text}"),
    }
}

fn refusal(text: &str) -> Refusal {
    match read(text) {
        Err(bad) => bad.refusal,
        other => panic!("{other:?} of {text}"),
    }
}

fn scraped(text: &str) -> Result<Vec<InfoHash>, Refusal> {
    let Ok(Message::Scrape(scrape)) = read(text) else { panic!("{text}") };
    scrape.read_into(&mut [InfoHash::default(); _]).map(<[InfoHash]>::to_vec)
}

/// An announce of `HASH` by `PEER` with these members added.
fn with(members: &str) -> String {
    format!(
        r#"{{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":"-WW0205-abcdefghijkl",{members}}}"#
    )
}

/// The text that `write` appends, which is JSON. Checks that it leaves the bytes before it.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> (String, Value) {
    let mut out = b"before".to_vec();
    write(&mut out);
    let text = String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned();
    let json = serde_json::from_str(&text).unwrap();
    (text, json)
}

/// All forms of a character up to U+00FF in a JSON string.
fn forms(byte: u8) -> Vec<String> {
    let mut forms = vec![format!("\\u00{byte:02x}"), format!("\\u00{byte:02X}")];
    if byte >= 0x20 && byte != b'"' && byte != b'\\' {
        forms.push(char::from(byte).to_string());
    }
    let short = [
        (b'"', "\\\""),
        (b'\\', "\\\\"),
        (b'/', "\\/"),
        (0x08, "\\b"),
        (0x0c, "\\f"),
        (b'\n', "\\n"),
        (b'\r', "\\r"),
        (b'\t', "\\t"),
    ];
    forms
        .extend(short.iter().filter(|(known, _)| *known == byte).map(|(_, text)| text.to_string()));
    forms
}

//= webtorrent#binary-strings
//= type=test
#[test]
fn reads_every_byte_in_every_form() {
    for byte in 0..=255 {
        for form in forms(byte) {
            let [all, first, last] =
                [form.repeat(20), format!("{form}{:19}", ""), format!("{:19}{form}", "")];
            let text = format!(
                r#"{{"action":"announce","info_hash":"{all}","peer_id":"{first}","offers":[{{"offer_id":"{last}","offer":{{}}}}]}}"#
            );
            let announce = announce(&text);
            assert_eq!(announce.info_hash, InfoHash([byte; 20]), "{text}");
            let mut expected = [b' '; 20];
            expected[0] = byte;
            assert_eq!(announce.peer_id, PeerId(expected), "{text}");
            expected.reverse();
            assert_eq!(announce.offers[0].id, OfferId(expected), "{text}");
            let scrape = format!(r#"{{"action":"scrape","info_hash":"{all}"}}"#);
            assert_eq!(scraped(&scrape), Ok(vec![InfoHash([byte; 20])]), "{scrape}");
        }
    }
}

//= webtorrent#binary-strings
//= type=test
#[test]
fn writes_bytes_like_a_browser() {
    for byte in 0..=255_u8 {
        let mut bytes = [byte; 20];
        bytes[3] = byte.wrapping_add(1);
        // As `JSON.stringify` writes them.
        let string = json!(bytes.map(char::from).iter().collect::<String>()).to_string();
        let relay = Relay::new(&InfoHash(bytes), &PeerId(bytes));
        let (text, _) = written(|out| relay.offer(out, &Offer { id: OfferId(bytes), json: "{}" }));
        assert_eq!(text.matches(&string).count(), 3, "{text}");
    }
}

//= webtorrent#binary-strings
//= type=test
#[test]
fn rejects_strings_of_other_lengths_and_characters() {
    let strings = [
        "",
        "a",
        "aaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "0123456789abcdef0123456789abcdef01234567",
        // Twenty bytes that are only ten characters.
        "ääääääääää",
        "aaaaaaaaaaaaaaaaaaaĀ",
        "Āaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaa€",
        "aaaaaaaaaaaaaaaaaaa😀",
        r"aaaaaaaaaaaaaaaaaaa\u0100",
        r"aaaaaaaaaaaaaaaaaaa\u2028",
        r"aaaaaaaaaaaaaaaaaaa\uffff",
        r"aaaaaaaaaaaaaaaaaaa\ud800",
        r"aaaaaaaaaaaaaaaaaaa\udfff",
        r"aaaaaaaaaaaaaaaaaa\ud83d\ude00",
        r"aaaaaaaaaaaaaaaaaaa\ud83d\ude00",
        r"\u0061aaaaaaaaaaaaaaaaaaaa",
        r"\u0061aaaaaaaaaaaaaaaaaa",
    ];
    let quoted = strings.iter().map(|string| format!("\"{string}\""));
    let others = ["1", "true", "false", "[]", "{}", r#"["aaaaaaaaaaaaaaaaaaaa"]"#];
    for bad in quoted.chain(others.map(String::from)) {
        let put = |text: &str, place: &str| text.replace(&format!("\"{place}\""), &bad);
        let text = with(r#""left":0"#);
        assert_eq!(refusal(&put(&text, "aaaaaaaaaaaaaaaaaaaa")), Refusal::InfoHashString, "{bad}");
        assert_eq!(refusal(&put(&text, "-WW0205-abcdefghijkl")), Refusal::PeerIdString, "{bad}");
        let text = with(r#""offers":[{"offer_id":"oo","offer":{}}]"#);
        assert_eq!(refusal(&put(&text, "oo")), Refusal::OfferMalformed, "{bad}");
        for (to, of) in [("oo", "oooooooooooooooooooo"), ("oooooooooooooooooooo", "oo")] {
            let text = with(&format!(r#""to_peer_id":"{to}","offer_id":"{of}","answer":{{}}"#));
            assert_eq!(refusal(&put(&text, "oo")), Refusal::AnswerMalformed, "{bad}");
        }
        // An array of one hash is valid in a scrape only.
        let expected = match bad.as_str() {
            "[]" => Err(FULL),
            list if list.starts_with('[') => Ok(vec![HASH]),
            _ => Err(Refusal::InfoHashString),
        };
        assert_eq!(scraped(&format!(r#"{{"action":"scrape","info_hash":{bad}}}"#)), expected);
    }
}

/// A data channel's description by Chromium, without candidates.
const SDP: &str = r"v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:Xk7d\r\na=ice-pwd:0SxIs3QmVwqk4Q0Jt8pXyZ2b\r\na=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\n";

//= webtorrent#announce
//= type=test
//= webtorrent#offers
//= type=test
#[test]
fn reads_announces_of_real_clients() {
    // bittorrent-tracker's client sends the counters first, and each offer before its id.
    let offer = format!(r#"{{"type":"offer","sdp":"{SDP}"}}"#);
    let text = format!(
        r#"{{"numwant":5,"uploaded":1,"downloaded":2,"left":1048576,"event":"started","action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":"-WW0205-abcdefghijkl","offers":[{{"offer":{offer},"offer_id":"oooooooooooooooooooo"}},{{"offer":{offer},"offer_id":"\u0000\u0001\b\t\n\u000b\f\r\"\\ /é\u007fÿ     "}}],"trackerid":"x"}}"#
    );
    let second = OfferId(*b"\x00\x01\x08\t\n\x0b\x0c\r\"\\ /\xe9\x7f\xff     ");
    let mut expected = Announce::new(HASH, PEER);
    expected.event = Event::Started;
    (expected.uploaded, expected.downloaded, expected.left) = (1, 2, Some(1_048_576));
    expected.want = NumWant::Peers(5);
    expected.offers.push(Offer { id: OFFER, json: &offer });
    expected.offers.push(Offer { id: second, json: &offer });
    assert_eq!(announce(&text), expected);
    assert_eq!(read_binary(text.as_bytes()), Ok(Message::Announce(expected)));
}

//= webtorrent#events
//= type=test
#[test]
fn reads_events_and_roles() {
    for (members, event, left, role) in [
        (r#""left":7"#, Event::None, Some(7), Role::Leecher),
        (r#""event":"started","left":7"#, Event::Started, Some(7), Role::Leecher),
        (r#""event":"started","left":0"#, Event::Started, Some(0), Role::Seeder),
        // WebTorrent's `left` is Infinity before it has the metadata; JSON.stringify writes null.
        (r#""event":"started","left":null"#, Event::Started, None, Role::Leecher),
        (r#""event":"completed","left":0"#, Event::Completed, Some(0), Role::Seeder),
        (r#""event":"completed","left":null"#, Event::Completed, None, Role::Seeder),
        (r#""event":"completed""#, Event::Completed, None, Role::Seeder),
        (r#""event":"stopped","left":0"#, Event::Stopped, Some(0), Role::Seeder),
        (r#""event":"stopped","left":3"#, Event::Stopped, Some(3), Role::Leecher),
        (r#""event":"paused","left":3"#, Event::Paused, Some(3), Role::PartialSeed),
        (r#""event":"\u0073topped""#, Event::Stopped, None, Role::Leecher),
        (r#""event":"update""#, Event::None, None, Role::Leecher),
        (r#""event":"STOPPED""#, Event::None, None, Role::Leecher),
        (r#""event":"""#, Event::None, None, Role::Leecher),
        (r#""event":null"#, Event::None, None, Role::Leecher),
        (r#""event":2"#, Event::None, None, Role::Leecher),
        (r#""event":["stopped"]"#, Event::None, None, Role::Leecher),
    ] {
        let text = with(members);
        let announce = announce(&text);
        assert_eq!((announce.event, announce.left), (event, left), "{members}");
        assert_eq!(announce.role(), role, "{members}");
    }
}

//= webtorrent#left-unknown
//= type=test
#[test]
fn reads_numbers_of_every_form() {
    for (number, expected) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("0.0", Some(0)),
        ("0e9", Some(0)),
        ("1", Some(1)),
        // A fraction above 0 is not complete.
        ("0.25", Some(1)),
        ("1e-9", Some(1)),
        ("1e3", Some(1000)),
        ("1E+3", Some(1000)),
        ("123456789012345678", Some(123_456_789_012_345_678)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", Some(u64::MAX)),
        ("1e999", Some(u64::MAX)),
        ("-1", None),
        ("-0.5", None),
        ("-1e999", None),
        ("null", None),
        ("true", None),
        ("\"Infinity\"", None),
        ("\"5\"", None),
        ("\"\"", None),
        ("[5]", None),
        ("{}", None),
    ] {
        let text =
            with(&format!(r#""left":{number},"uploaded":{number},"downloaded" : {number} "#));
        let announce = announce(&text);
        assert_eq!(announce.left, expected, "{number}");
        assert_eq!(announce.uploaded, expected.unwrap_or(0), "{number}");
        assert_eq!(announce.downloaded, expected.unwrap_or(0), "{number}");
    }
    for bad in ["Infinity", "-Infinity", "NaN", "+1", "01", "1.", ".5", "1e", "0x10", "-", "1e+"] {
        assert_eq!(refusal(&with(&format!("\"left\":{bad}"))), Refusal::NotJson, "{bad}");
    }
}

//= webtorrent#numwant
//= type=test
#[test]
fn reads_num_want() {
    for (number, expected) in [
        ("0", NumWant::Peers(0)),
        ("5", NumWant::Peers(5)),
        ("4.2", NumWant::Peers(5)),
        ("65535", NumWant::Peers(65535)),
        ("65536", NumWant::Peers(65535)),
        ("1e30", NumWant::Peers(65535)),
        ("-1", NumWant::Default),
        ("null", NumWant::Default),
        ("\"5\"", NumWant::Default),
        ("[]", NumWant::Default),
    ] {
        assert_eq!(announce(&with(&format!("\"numwant\":{number}"))).want, expected, "{number}");
    }
    assert_eq!(announce(&with("\"left\":1")).want, NumWant::Default);
}

//= webtorrent#answer
//= type=test
#[test]
fn reads_answers_of_real_clients() {
    let json = format!(r#"{{"type":"answer","sdp":"{SDP}"}}"#);
    let text = with(&format!(
        r#""to_peer_id":"-WW0205-bcdefghijklm","answer":{json},"offer_id":"oooooooooooooooooooo""#
    ));
    let expected =
        Answer { info_hash: HASH, peer_id: PEER, to_peer_id: OTHER, offer_id: OFFER, json: &json };
    assert_eq!(read(&text), Ok(Message::Answer(expected)));
    // Other members of an announce are ignored.
    let more = text.replace("\"answer\":", r#""event":"started","offers":7,"left":[],"answer":"#);
    assert_eq!(read(&more), Ok(Message::Answer(expected)));
    let none = text.replace(&json, "null");
    assert_eq!(announce(&none), Announce::new(HASH, PEER));
    for bad in ["1", "false", "\"x\"", "[]"] {
        assert_eq!(refusal(&text.replace(&json, bad)), Refusal::AnswerMalformed, "{bad}");
    }
    for absent in ["to_peer_id", "offer_id"] {
        assert_eq!(refusal(&text.replace(absent, "other")), Refusal::AnswerMalformed, "{absent}");
    }
}

//= webtorrent#scrape
//= type=test
#[test]
fn reads_scrapes_of_one_and_several_torrents() {
    let scrape =
        |info_hash: &str| scraped(&format!(r#"{{"action":"scrape","info_hash":{info_hash}}}"#));
    let [a, b] = [b'a', b'b'].map(|byte| InfoHash([byte; 20]));
    let [one, two] = ["\"aaaaaaaaaaaaaaaaaaaa\"", "\"bbbbbbbbbbbbbbbbbbbb\""];
    assert_eq!(scrape(one), Ok(vec![a]));
    assert_eq!(scrape(&format!("[{one}]")), Ok(vec![a]));
    assert_eq!(scrape(&format!("[ {two} ,\t{one}\r\n]")), Ok(vec![b, a]));
    let escaped = format!("\"{}\"", "\\u0061".repeat(20));
    assert_eq!(scrape(&format!("[{one},{two},{one},{escaped},{two}]")), Ok(vec![a, b]));
    assert_eq!(scrape("[]"), Err(FULL));
    assert_eq!(scrape("null"), Err(FULL));
    assert_eq!(scraped(r#"{"action":"scrape"}"#), Err(FULL));
    let bad = Err(Refusal::InfoHashString);
    for value in ["7", "{}", "\"\"", "[null]", "[[]]", &format!("[{one},null]")] {
        assert_eq!(scrape(value), bad, "{value}");
    }
    let many: Vec<String> = (100..400).map(|n| format!("\"{n}aaaaaaaaaaaaaaaaa\"")).collect();
    let hashes = scrape(&format!("[{}]", many.join(","))).unwrap();
    assert_eq!(hashes.len(), limits::SCRAPE_HASHES_WEB_MAX);
    assert_eq!(hashes[127], InfoHash(*b"227aaaaaaaaaaaaaaaaa"));
    // Hashes over the limit are still checked.
    assert_eq!(scrape(&format!("[{},1]", many.join(","))), bad);
}

//= webtorrent#unknown-keys
//= type=test
#[test]
fn skips_unknown_keys_and_takes_last_of_repeated() {
    let members = r#""left":1,"x":{"left":2,"y":[null,true,false,-1.5e-3,"\ud800\/"]},"":0,
        "offers":[1],"offers":[{"offer_id":"x","offer":{},"offer_id":"oooooooooooooooooooo","z":[]}],
        "\u006ceft":3,"peer_id":"-WW0205-bcdefghijklm","lefT":4,"left\u0000":5,"\u00ff":6,"ÿ":7"#;
    let text = with(members);
    let mut expected = Announce::new(HASH, OTHER);
    expected.left = Some(3);
    expected.offers.push(Offer { id: OFFER, json: "{}" });
    assert_eq!(announce(&text), expected);
    let nothing =
        with(r#""left":1,"left":null,"answer":{},"answer":null,"offers":7,"offers":null"#);
    assert_eq!(announce(&nothing), Announce::new(HASH, PEER));
    let twice = with(r#""action":"scrape""#);
    assert_eq!(scraped(&twice), Ok(vec![HASH]));
}

//= webtorrent#offers
//= type=test
#[test]
fn rejects_malformed_offers() {
    const ID: &str = "\"offer_id\":\"oooooooooooooooooooo\"";
    for offers in [
        "1",
        "true",
        "\"\"",
        "{}",
        "[null]",
        "[1]",
        "[[]]",
        "[\"\"]",
        "[{}]",
        "[{\"offer\":{}}]",
        &format!("[{{{ID}}}]"),
        &format!("[{{{ID},\"offer\":null}}]"),
        &format!("[{{{ID},\"offer\":\"sdp\"}}]"),
        &format!("[{{{ID},\"offer\":[]}}]"),
        &format!("[{{{ID},\"offer\":{{}},\"offer\":null}}]"),
        "[{\"offer_id\":null,\"offer\":{}}]",
        "[{\"offer_id\":7,\"offer\":{}}]",
        &format!("[{{{ID},\"offer\":{{}}}},null]"),
        &format!("[null,{{{ID},\"offer\":{{}}}}]"),
    ] {
        let text = with(&format!("\"offers\":{offers}"));
        let expected = MessageError {
            refusal: Refusal::OfferMalformed,
            action: Some(Action::Announce),
            info_hash: Some(HASH),
        };
        assert_eq!(read(&text), Err(expected), "{offers}");
    }
    for none in ["null", "[]", " [ ] "] {
        assert_eq!(announce(&with(&format!("\"offers\":{none}"))).offers.len(), 0, "{none}");
    }
    for broken in ["[", "[,]", "[{},]", "[{]", "[}", "{\"offer\"}", "[{\"offer\":}]"] {
        assert_eq!(refusal(&with(&format!("\"offers\":{broken}"))), Refusal::NotJson, "{broken}");
    }
}

#[test]
fn truncates_offers_at_the_limit() {
    let offers = |count: usize| {
        let offer = |n| format!(r#"{{"offer_id":"{n:020}","offer":{{"n":{n}}}}}"#);
        (0..count).map(offer).collect::<Vec<String>>().join(",")
    };
    for count in [0, 1, limits::WEB_OFFERS_MAX, limits::WEB_OFFERS_MAX + 1, 1000] {
        let text = with(&format!("\"offers\":[{}]", offers(count)));
        let announce = announce(&text);
        assert_eq!(announce.offers.len(), count.min(limits::WEB_OFFERS_MAX));
        for (n, offer) in announce.offers.iter().enumerate() {
            assert_eq!(offer.id.0, *format!("{n:020}").as_bytes());
            assert_eq!(offer.json, format!(r#"{{"n":{n}}}"#));
        }
    }
    // Offers over the limit must be JSON; nothing else is checked.
    let many = offers(limits::WEB_OFFERS_MAX);
    assert_eq!(announce(&with(&format!("\"offers\":[{many},null]"))).offers.len(), 64);
    assert_eq!(refusal(&with(&format!("\"offers\":[{many},nul]"))), Refusal::NotJson);
}

//= webtorrent#opaque
//= type=test
#[test]
fn relays_offers_and_answers_unchanged() {
    for json in [
        "{}",
        "{ \"sdp\" :\t\"v=0\\r\\n\",\n \"type\":\"offer\" }",
        r#"{"a":"\u00e9\u00E9é\/😀\u2028","a":1.50e+07,"":[[],{},null,-0]}"#,
        "{\"\u{7f}\u{80}\u{2028}\u{10ffff}\":true}",
    ] {
        let text =
            with(&format!(r#""offers":[{{"offer": {json} ,"offer_id":"oooooooooooooooooooo"}}]"#));
        let announce = announce(&text);
        assert_eq!(announce.offers[0].json, json);
        let relay = Relay::new(&announce.info_hash, &announce.peer_id);
        let start = r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":"-WW0205-abcdefghijkl","offer_id":"oooooooooooooooooooo""#;
        let (passed, _) = written(|out| relay.offer(out, &announce.offers[0]));
        assert_eq!(passed, format!(r#"{start},"offer":{json}}}"#));

        let text = with(&format!(
            r#""to_peer_id":"-WW0205-bcdefghijklm","offer_id":"oooooooooooooooooooo","answer":{json}"#
        ));
        let Ok(Message::Answer(answer)) = read(&text) else { panic!("{text}") };
        assert_eq!(answer.json, json);
        let relay = Relay::new(&answer.info_hash, &answer.peer_id);
        let (passed, _) = written(|out| relay.answer(out, &answer.offer_id, answer.json));
        assert_eq!(passed, format!(r#"{start},"answer":{json}}}"#));
    }
}

//= webtorrent#json
//= type=test
#[test]
fn every_prefix_of_a_message_fails() {
    let offer = format!(r#"{{"offer_id":"oooooooooooooooooooo","offer":{{"sdp":"{SDP}é"}}}}"#);
    for text in [
        with(&format!(r#""event":"paused","left":1.5e3,"offers":[{offer},{offer}]"#)),
        with(
            r#""to_peer_id":"-WW0205-bcdefghijklm","offer_id":"oooooooooooooooooooo","answer":{}"#,
        ),
        r#"{"action":"scrape","info_hash":["aaaaaaaaaaaaaaaaaaaa"]}"#.into(),
    ] {
        let bytes = text.as_bytes();
        assert!(read(&text).is_ok() && read_binary(bytes) == read(&text), "{text}");
        let bad = MessageError { refusal: Refusal::NotJson, action: None, info_hash: None };
        for cut in 0..bytes.len() {
            assert_eq!(read_binary(&bytes[..cut]), Err(bad), "{cut} of {text}");
        }
        assert_eq!(refusal(&format!("{text}}}")), Refusal::NotJson);
        assert_eq!(refusal(&format!("{text}{text}")), Refusal::NotJson);
        assert_eq!(read(&format!("\t\r\n {text} \n")), read(&text));
    }
}

#[test]
fn rejects_messages_that_are_not_objects() {
    for text in ["", " ", "null", "7", "\"\"", "[]", "[{}]", "\u{feff}{}", "{", "}", "{}{}", "{},"]
    {
        assert_eq!(refusal(text), Refusal::NotJson, "{text}");
    }
    for bytes in [&b"\xff"[..], b"{\"\xff\":0}", b"{\"\xed\xa0\x80\":0}", b"{\"\xc0\x80\":0}"] {
        let bad = MessageError { refusal: Refusal::NotJson, action: None, info_hash: None };
        assert_eq!(read_binary(bytes), Err(bad));
    }
    let controls = ["\"\0\"", "\"\n\"", "\"\u{1f}\"", "\u{a0}1", "\u{c}1"];
    let others = r#""\x" "\u" "\u12" "\u123g" "\U0061" "\" 'a' tru True nulll undefined {1:2} {"a"} {"a":} {,} /**/1"#;
    for inside in others.split(' ').chain(controls).chain(["[1 2]", "{\"a\" 1}"]) {
        assert_eq!(refusal(&with(&format!("\"x\":{inside}"))), Refusal::NotJson, "{inside}");
    }
}

//= webtorrent#failure
//= type=test
#[test]
fn refusals_name_action_and_torrent() {
    let bad = |refusal, action, info_hash| Err(MessageError { refusal, action, info_hash });
    let action = Some(Action::Announce);
    assert_eq!(read("{}"), bad(Refusal::UnknownAction, None, None));
    for other in ["null", "1", "\"\"", "\"Announce\"", "\"announce \"", "[\"announce\"]"] {
        let text = with("\"left\":0").replace("\"announce\"", other);
        assert_eq!(read(&text), bad(Refusal::UnknownAction, None, None), "{other}");
    }
    let escaped = with("\"left\":0").replace("\"announce\"", "\"\\u0061nnounc\\u0065\"");
    assert!(read(&escaped).is_ok());
    assert_eq!(read(r#"{"action":"announce"}"#), bad(Refusal::InfoHashMissing, action, None));
    let null = with("\"info_hash\":null");
    assert_eq!(read(&null), bad(Refusal::InfoHashMissing, action, None));
    let short = with("\"info_hash\":\"a\"");
    assert_eq!(read(&short), bad(Refusal::InfoHashString, action, None));
    let no_peer = with("\"peer_id\":null");
    assert_eq!(read(&no_peer), bad(Refusal::PeerIdString, action, Some(HASH)));
    let nothing = with("\"answer\":{}");
    assert_eq!(read(&nothing), bad(Refusal::AnswerMalformed, action, Some(HASH)));
}

#[test]
fn limits_nesting() {
    let deepest = limits::JSON_DEPTH_MAX as usize - 1;
    for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
        let nested = |depth: usize| {
            let inside = if open == "[" { "" } else { "0" };
            with(&format!("\"x\":{}{inside}{}", open.repeat(depth), close.repeat(depth)))
        };
        assert!(read(&nested(deepest)).is_ok());
        assert_eq!(refusal(&nested(deepest + 1)), Refusal::NotJson);
        // Siblings are not limited.
        let (one, other) = (nested(deepest), nested(deepest));
        let beside = one.replace("\"x\":", &format!("\"y\":[{other},{other}],\"x\":"));
        assert_eq!(refusal(&beside), Refusal::NotJson, "they are in a list in an object");
        let beside = format!("{}[],[],[[]]]}}", with("\"x\":[").trim_end_matches('}'));
        assert!(read(&beside).is_ok(), "{beside}");
        assert_eq!(refusal(&open.repeat(1_000_000)), Refusal::NotJson);
    }
    let offer = |depth: usize| {
        let json = format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        with(&format!(r#""offers":[{{"offer_id":"oooooooooooooooooooo","offer":{json}}}]"#))
    };
    // Nested in the message, its array, the array's object and the offer itself.
    assert!(read(&offer(deepest - 3)).is_ok());
    assert_eq!(refusal(&offer(deepest - 2)), Refusal::NotJson);
}

#[test]
fn reads_hostile_messages_in_linear_time() {
    // With one pass over the input for each string, escape, digit or bracket, this would take minutes.
    const TIMES: usize = 1 << 16;
    for inside in ["\"\",", "\"\\n\\u00e9\",", "1,", "[],", "{},", " "] {
        let text = with(&format!("\"x\":[{}0]", inside.repeat(TIMES)));
        assert!(read(&text).is_ok(), "{inside}");
    }
    for inside in ["\\r\\n", "a", "\\u0000", "é"] {
        assert!(read(&with(&format!("\"x\":\"{}\"", inside.repeat(TIMES)))).is_ok());
    }
    assert!(read(&with(&format!("\"left\":1{}", "0".repeat(TIMES)))).is_ok());
    let scrape = format!("[{}\"aaaaaaaaaaaaaaaaaaaa\"]", "\"aaaaaaaaaaaaaaaaaaaa\",".repeat(TIMES));
    let text = format!(r#"{{"action":"scrape","info_hash":{scrape}}}"#);
    assert_eq!(scraped(&text), Ok(vec![HASH]));
}

//= webtorrent#announce-reply
//= type=test
//= webtorrent#scrape-reply
//= type=test
#[test]
fn writes_replies() {
    let counts = |seeders, leechers, downloads| SwarmCounts {
        web: FamilyCounts { seeders, leechers },
        downloads,
        ..SwarmCounts::default()
    };
    for (seeders, leechers, interval_s) in [(0, 0, 0), (1, 2, 120), (u32::MAX, 9, u32::MAX)] {
        let counts = counts(seeders, leechers, 1);
        let (_, reply) = written(|out| announce_reply(out, &HASH, &counts, interval_s));
        let expected = json!({
            "action": "announce", "info_hash": "aaaaaaaaaaaaaaaaaaaa",
            "complete": seeders, "incomplete": leechers, "interval": interval_s,
        });
        assert_eq!(reply, expected);
    }
    let hashes = [HASH, InfoHash([b'b'; 20]), InfoHash([0xff; 20])];
    let all = [counts(1, 2, 3), counts(0, 0, 0), counts(7, 8, u32::MAX)];
    let names = ["a", "b", "ÿ"].map(|letter| letter.repeat(20));
    for len in 0..=hashes.len() {
        let (_, reply) = written(|out| scrape_reply(out, &hashes[..len], &all[..len]));
        let files = names[..len].iter().zip(&all).map(|(name, counts)| {
            let file = json!({
                "complete": counts.web.seeders, "incomplete": counts.web.leechers,
                "downloaded": counts.downloads,
            });
            (name.clone(), file)
        });
        let files: serde_json::Map<String, Value> = files.collect();
        assert_eq!(reply, json!({ "action": "scrape", "files": files }));
    }
}

//= webtorrent#failure
//= type=test
#[test]
fn refusal_texts_need_no_escapes() {
    for refusal in Refusal::ALL {
        for (action, name) in [
            (None, Value::Null),
            (Some(Action::Announce), "announce".into()),
            (Some(Action::Scrape), "scrape".into()),
        ] {
            for (hash, text) in [(None, Value::Null), (Some(HASH), "a".repeat(20).into())] {
                let (_, reply) = written(|out| failure(out, refusal, action, hash.as_ref()));
                assert_eq!(reply["failure reason"], refusal.text());
                assert_eq!((&reply["action"], &reply["info_hash"]), (&name, &text));
            }
        }
    }
}
