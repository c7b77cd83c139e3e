//! Messages of clients, each read by the parser and by its twin on `serde_json`, and the tracker's own. The fuzz
//! target `webtorrent` compares the two parsers on whole messages, and on mutations of these.

mod twin;

use serde_json::{Value, json};
use twin::{Parsed, check, check_refusal};
use types::{
    Event, FamilyCounts, InfoHash, NumWant, OfferId, PeerId, Refusal, SwarmCounts, limits,
};
use wire::webtorrent::{
    Action, Announce, Answer, MessageError, Offer, announce_reply, read_binary, scrape_reply,
};

const HASH: InfoHash = InfoHash(*b"aaaaaaaaaaaaaaaaaaaa");
const PEER: PeerId = PeerId(*b"-WW0205-abcdefghijkl");
const OTHER: PeerId = PeerId(*b"-WW0205-bcdefghijklm");
const OFFER: OfferId = OfferId(*b"oooooooooooooooooooo");
const NOT_JSON: MessageError =
    MessageError { refusal: Refusal::NotJson, action: None, info_hash: None };

fn announce(text: &str) -> Announce<'_> {
    match check(text.as_bytes()) {
        Ok(Parsed::Announce(announce)) => *announce,
        other => panic!("{other:?} of {text}"),
    }
}

fn scraped(text: &str) -> Vec<InfoHash> {
    match check(text.as_bytes()) {
        Ok(Parsed::Scrape(Ok(hashes))) => hashes,
        other => panic!("{other:?} of {text}"),
    }
}

fn refusal(text: &str) -> Refusal {
    match check(text.as_bytes()) {
        Err(MessageError { refusal, .. }) | Ok(Parsed::Scrape(Err(refusal))) => refusal,
        other => panic!("{other:?} of {text}"),
    }
}

/// An announce of `HASH` by `PEER` with these members added.
fn with(members: &str) -> String {
    format!(
        r#"{{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":"-WW0205-abcdefghijkl",{members}}}"#
    )
}

fn scrape(info_hash: &str) -> String {
    format!(r#"{{"action":"scrape","info_hash":{info_hash}}}"#)
}

/// All forms of a character up to U+00FF in a JSON string.
fn forms(byte: u8) -> Vec<String> {
    let shortest = json!(char::from(byte)).to_string();
    let mut forms = vec![format!("\\u00{byte:02x}"), format!("\\u00{byte:02X}")];
    forms.push(shortest[1..shortest.len() - 1].into());
    forms.extend((byte == b'/').then(|| "\\/".into()));
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
        }
    }
}

//= webtorrent#binary-strings
//= type=test
#[test]
fn rejects_strings_of_other_lengths_and_characters() {
    let strings = [
        "",
        "aaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaa",
        "0123456789abcdef0123456789abcdef01234567",
        // Twenty bytes that are only ten characters.
        "ääääääääää",
        "aaaaaaaaaaaaaaaaaaaĀ",
        "Āaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaa€",
        "aaaaaaaaaaaaaaaaaaa😀",
        r"aaaaaaaaaaaaaaaaaaa\u0100",
        r"aaaaaaaaaaaaaaaaaaa\uffff",
        r"aaaaaaaaaaaaaaaaaaa\ud800",
        r"aaaaaaaaaaaaaaaaaa\ud83d\ude00",
        r"\u0061aaaaaaaaaaaaaaaaaaaa",
        r"\u0061aaaaaaaaaaaaaaaaaa",
    ];
    let quoted = strings.map(|string| format!("\"{string}\""));
    for bad in quoted.into_iter().chain(["1", "true", "{}"].map(String::from)) {
        let answer = r#""to_peer_id":"TO","offer_id":"OF","answer":{}"#;
        for (text, place, expected) in [
            (with(r#""left":0"#), "aaaaaaaaaaaaaaaaaaaa", Refusal::InfoHashString),
            (with(r#""left":0"#), "-WW0205-abcdefghijkl", Refusal::PeerIdString),
            (with(r#""offers":[{"offer_id":"OF","offer":{}}]"#), "OF", Refusal::OfferMalformed),
            (with(&answer.replace("OF", "oooooooooooooooooooo")), "TO", Refusal::AnswerMalformed),
            (with(&answer.replace("TO", "oooooooooooooooooooo")), "OF", Refusal::AnswerMalformed),
            (scrape("\"OF\""), "OF", Refusal::InfoHashString),
            (scrape("[\"OF\"]"), "OF", Refusal::InfoHashString),
        ] {
            let text = text.replace(&format!("\"{place}\""), &bad);
            assert_eq!(refusal(&text), expected, "{text}");
        }
    }
}

/// A data channel's description by Chromium, without candidates.
const SDP: &str = r"v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:Xk7d\r\na=ice-pwd:0SxIs3QmVwqk4Q0Jt8pXyZ2b\r\na=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\n";

//= webtorrent#announce
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
}

//= webtorrent#events
//= type=test
#[test]
fn reads_events() {
    for (members, event, left) in [
        (r#""left":7"#, Event::None, Some(7)),
        (r#""event":"started","left":0"#, Event::Started, Some(0)),
        // WebTorrent's `left` is Infinity before it has the metadata; JSON.stringify writes null.
        (r#""event":"started","left":null"#, Event::Started, None),
        (r#""event":"completed""#, Event::Completed, None),
        (r#""event":"stopped","left":3"#, Event::Stopped, Some(3)),
        (r#""event":"paused","left":3"#, Event::Paused, Some(3)),
        (r#""event":"\u0073topped""#, Event::Stopped, None),
        (r#""event":"update""#, Event::None, None),
        (r#""event":"STOPPED""#, Event::None, None),
        (r#""event":["stopped"]"#, Event::None, None),
    ] {
        let text = with(members);
        let announce = announce(&text);
        assert_eq!((announce.event, announce.left), (event, left), "{members}");
    }
}

//= webtorrent#left-unknown
//= webtorrent#numwant
//= type=test
#[test]
fn reads_numbers_of_every_form() {
    for (number, expected, want) in [
        ("0", Some(0), NumWant::Peers(0)),
        ("-0", Some(0), NumWant::Peers(0)),
        ("0e9", Some(0), NumWant::Peers(0)),
        // A fraction above 0 is not complete.
        ("0.25", Some(1), NumWant::Peers(1)),
        ("1e-9", Some(1), NumWant::Peers(1)),
        ("1E+3", Some(1000), NumWant::Peers(1000)),
        ("65536", Some(65536), NumWant::Peers(65535)),
        ("18446744073709551615", Some(u64::MAX), NumWant::Peers(65535)),
        ("18446744073709551616", Some(u64::MAX), NumWant::Peers(65535)),
        ("1e999", Some(u64::MAX), NumWant::Peers(65535)),
        ("-0.5", None, NumWant::Default),
        ("-1e999", None, NumWant::Default),
        ("null", None, NumWant::Default),
        ("true", None, NumWant::Default),
        ("\"5\"", None, NumWant::Default),
        ("[5]", None, NumWant::Default),
    ] {
        let text = with(&format!(
            r#""left":{number},"uploaded":{number},"downloaded" : {number} ,"numwant":{number}"#
        ));
        let announce = announce(&text);
        assert_eq!((announce.left, announce.want), (expected, want), "{number}");
        let [uploaded, downloaded] = [announce.uploaded, announce.downloaded];
        assert_eq!([uploaded, downloaded], [expected.unwrap_or(0); 2], "{number}");
    }
    for bad in ["Infinity", "-Infinity", "NaN", "+1", "01", "1.", ".5", "1e", "0x10", "-", "1e+"] {
        assert_eq!(refusal(&with(&format!("\"left\":{bad}"))), Refusal::NotJson, "{bad}");
    }
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
    // Other members of an announce are ignored.
    let more = text.replace("\"answer\":", r#""event":"started","offers":7,"left":[],"answer":"#);
    for text in [&text, &more] {
        assert_eq!(check(text.as_bytes()), Ok(Parsed::Answer(expected)));
    }
    assert_eq!(announce(&text.replace(&json, "null")), Announce::new(HASH, PEER));
    for (from, to) in [(&*json, "1"), (&json, "[]"), ("to_peer_id", "other"), ("offer_id", "other")]
    {
        assert_eq!(refusal(&text.replace(from, to)), Refusal::AnswerMalformed, "{to}");
    }
}

//= webtorrent#scrape
//= type=test
#[test]
fn reads_scrapes_of_one_and_several_torrents() {
    let [a, b] = [b'a', b'b'].map(|byte| InfoHash([byte; 20]));
    let [one, two] = ["\"aaaaaaaaaaaaaaaaaaaa\"", "\"bbbbbbbbbbbbbbbbbbbb\""];
    assert_eq!(scraped(&scrape(one)), [a]);
    assert_eq!(scraped(&scrape(&format!("[ {two} ,\t{one}\r\n]"))), [b, a]);
    let escaped = format!("\"{}\"", "\\u0061".repeat(20));
    assert_eq!(scraped(&scrape(&format!("[{one},{two},{one},{escaped},{two}]"))), [a, b]);
    for all in [&scrape("[]"), &scrape("null"), r#"{"action":"scrape"}"#] {
        assert_eq!(refusal(all), Refusal::FullScrape, "{all}");
    }
    for value in ["7", "{}", "[null]", "[[]]", &format!("[{one},null]")] {
        assert_eq!(refusal(&scrape(value)), Refusal::InfoHashString, "{value}");
    }
    let many: Vec<String> = (100..400).map(|n| format!("\"{n}aaaaaaaaaaaaaaaaa\"")).collect();
    let hashes = scraped(&scrape(&format!("[{}]", many.join(","))));
    assert_eq!(hashes.len(), limits::SCRAPE_HASHES_WEB_MAX);
    // Hashes over the limit are still checked.
    assert_eq!(refusal(&scrape(&format!("[{},1]", many.join(",")))), Refusal::InfoHashString);
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
    assert_eq!(scraped(&with(r#""action":"scrape""#)), [HASH]);
}

//= webtorrent#offers
//= type=test
#[test]
fn rejects_malformed_offers_and_truncates_at_the_limit() {
    const ID: &str = "\"offer_id\":\"oooooooooooooooooooo\"";
    for offers in [
        "1",
        "{}",
        "[null]",
        "[[]]",
        "[{\"offer\":{}}]",
        &format!("[{{{ID}}}]"),
        &format!("[{{{ID},\"offer\":null}}]"),
        &format!("[{{{ID},\"offer\":\"sdp\"}}]"),
        &format!("[{{{ID},\"offer\":{{}},\"offer\":null}}]"),
        &format!("[{{{ID},\"offer\":{{}}}},null]"),
    ] {
        let text = with(&format!("\"offers\":{offers}"));
        assert_eq!(refusal(&text), Refusal::OfferMalformed, "{offers}");
    }
    for none in ["null", "[]", " [ ] "] {
        assert_eq!(announce(&with(&format!("\"offers\":{none}"))).offers.len(), 0, "{none}");
    }
    for broken in ["[", "[,]", "[{},]", "[{]", "[}", "{\"offer\"}", "[{\"offer\":}]"] {
        assert_eq!(refusal(&with(&format!("\"offers\":{broken}"))), Refusal::NotJson, "{broken}");
    }
    let offer = |n| format!(r#"{{"offer_id":"{n:020}","offer":{{"n":{n}}}}}"#);
    let most: Vec<String> = (0..limits::WEB_OFFERS_MAX).map(offer).collect();
    // Offers over the limit must be JSON; nothing else is checked.
    let text = with(&format!("\"offers\":[{},null,{}]", most.join(","), offer(0)));
    let announce = announce(&text);
    assert_eq!(announce.offers.len(), limits::WEB_OFFERS_MAX);
    assert_eq!(announce.offers[63].json, r#"{"n":63}"#);
    let text = with(&format!("\"offers\":[{},nul]", most.join(",")));
    assert_eq!(refusal(&text), Refusal::NotJson);
}

/// The twin compares the relayed message, byte by byte.
//= webtorrent#opaque
//= type=test
#[test]
fn relays_offers_and_answers_unchanged() {
    for json in [
        "{ \"sdp\" :\t\"v=0\\r\\n\",\n \"type\":\"offer\" }",
        r#"{"a":"\u00e9\u00E9é\/😀\u2028","a":1.50e+07,"":[[],{},null,-0]}"#,
        "{\"\u{7f}\u{80}\u{2028}\u{10ffff}\":true}",
    ] {
        let id = r#""offer_id":"oooooooooooooooooooo""#;
        let offer = with(&format!(r#""offers":[{{"offer": {json} ,{id}}}]"#));
        assert_eq!(announce(&offer).offers[0].json, json);
        let answer = with(&format!(r#""to_peer_id":"-WW0205-bcdefghijklm",{id},"answer":{json}"#));
        let parsed = check(answer.as_bytes());
        assert!(matches!(parsed, Ok(Parsed::Answer(answer)) if answer.json == json), "{json}");
    }
}

//= webtorrent#json
//= type=test
#[test]
fn every_prefix_of_a_message_fails() {
    let offer = format!(r#"{{"offer_id":"oooooooooooooooooooo","offer":{{"sdp":"{SDP}é"}}}}"#);
    for text in [
        with(&format!(r#""event":"paused","left":1.5e3,"offers":[{offer},{offer}]"#)),
        scrape(r#"["aaaaaaaaaaaaaaaaaaaa"]"#),
    ] {
        let bytes = text.as_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(check(&bytes[..cut]), Err(NOT_JSON), "{cut} of {text}");
        }
        assert_eq!(refusal(&format!("{text}}}")), Refusal::NotJson);
        assert_eq!(check(format!("\t\r\n {text} \n").as_bytes()), check(bytes));
    }
}

#[test]
fn rejects_messages_that_are_not_objects() {
    for text in ["", " ", "null", "7", "\"\"", "[]", "[{}]", "\u{feff}{}", "{", "}", "{}{}", "{},"]
    {
        assert_eq!(refusal(text), Refusal::NotJson, "{text}");
    }
    for bytes in [&b"\xff"[..], b"{\"\xff\":0}", b"{\"\xed\xa0\x80\":0}", b"{\"\xc0\x80\":0}"] {
        assert_eq!(check(bytes), Err(NOT_JSON));
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
    let announce = Some(Action::Announce);
    for (text, refusal, action, info_hash) in [
        ("{}".into(), Refusal::UnknownAction, None, None),
        (with("\"action\":1"), Refusal::UnknownAction, None, None),
        (with("\"action\":\"Announce\""), Refusal::UnknownAction, None, None),
        (r#"{"action":"announce"}"#.into(), Refusal::InfoHashMissing, announce, None),
        (with("\"info_hash\":null"), Refusal::InfoHashMissing, announce, None),
        (with("\"info_hash\":\"a\""), Refusal::InfoHashString, announce, None),
        (with("\"peer_id\":null"), Refusal::PeerIdString, announce, Some(HASH)),
        (with("\"answer\":{}"), Refusal::AnswerMalformed, announce, Some(HASH)),
    ] {
        let expected = MessageError { refusal, action, info_hash };
        assert_eq!(check(text.as_bytes()), Err(expected), "{text}");
    }
    assert!(check(with("\"action\":\"\\u0061nnounc\\u0065\"").as_bytes()).is_ok());
    // Their texts need no escapes.
    for refusal in Refusal::ALL {
        check_refusal(refusal, Some(Action::Scrape), Some(HASH));
    }
}

#[test]
fn limits_nesting() {
    let deepest = limits::JSON_DEPTH_MAX as usize - 1;
    for (open, close) in [("[", "]"), ("{\"x\":", "}")] {
        let inside = if open == "[" { "" } else { "0" };
        let nested = |depth: usize| {
            with(&format!("\"x\":{}{inside}{}", open.repeat(depth), close.repeat(depth)))
        };
        assert!(check(nested(deepest).as_bytes()).is_ok());
        assert_eq!(refusal(&nested(deepest + 1)), Refusal::NotJson);
        assert_eq!(read_binary(open.repeat(1_000_000).as_bytes()), Err(NOT_JSON));
    }
    // Siblings are not limited.
    let siblings = "[],".repeat(1000);
    assert!(check(with(&format!("\"x\":[{siblings}[[]]]")).as_bytes()).is_ok());
    let offer = |depth: usize| {
        let json = format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        with(&format!(r#""offers":[{{"offer_id":"oooooooooooooooooooo","offer":{json}}}]"#))
    };
    // Nested in the message, its array, the array's object and the offer itself.
    assert!(check(offer(deepest - 3).as_bytes()).is_ok());
    assert_eq!(refusal(&offer(deepest - 2)), Refusal::NotJson);
}

#[test]
fn reads_hostile_messages_in_linear_time() {
    // With one pass over the input for each string, escape, digit or bracket, this would take minutes.
    const TIMES: usize = 1 << 16;
    let hash = "\"aaaaaaaaaaaaaaaaaaaa\"";
    let repeated = |text: &str| text.repeat(TIMES);
    let lists = ["\"\",", "\"\\n\\u00e9\",", "1,", "[],", "{},", " "];
    let strings = ["\\r\\n", "a", "\\u0000", "é"];
    let texts = lists
        .map(|inside| with(&format!("\"x\":[{}0]", repeated(inside))))
        .into_iter()
        .chain(strings.map(|inside| with(&format!("\"x\":\"{}\"", repeated(inside)))))
        .chain([with(&format!("\"left\":1{}", repeated("0")))])
        .chain([scrape(&format!("[{}{hash}]", repeated(&format!("{hash},"))))]);
    for text in texts {
        assert!(check(text.as_bytes()).is_ok());
    }
}

/// The JSON that `write` appends. Checks that it leaves the bytes before it.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut out = b"before".to_vec();
    write(&mut out);
    serde_json::from_slice(out.strip_prefix(b"before").unwrap()).unwrap()
}

//= webtorrent#announce-reply
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
        let reply = written(|out| announce_reply(out, &HASH, &counts, interval_s, None));
        let expected = json!({
            "action": "announce", "info_hash": "aaaaaaaaaaaaaaaaaaaa",
            "complete": seeders, "incomplete": leechers, "interval": interval_s,
        });
        assert_eq!(reply, expected);
    }
    assert_eq!(
        written(|out| scrape_reply(out, &[], &[])),
        json!({ "action": "scrape", "files": {} })
    );
    let hashes = [HASH, InfoHash([0xff; 20])];
    let reply = written(|out| scrape_reply(out, &hashes, &[counts(1, 2, 3), counts(7, 8, 0)]));
    let expected = json!({ "action": "scrape", "files": {
        "aaaaaaaaaaaaaaaaaaaa": { "complete": 1, "incomplete": 2, "downloaded": 3 },
        "ÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿ": { "complete": 7, "incomplete": 8, "downloaded": 0 },
    } });
    assert_eq!(reply, expected);
}
