//! The WebTorrent parser against one built on `serde_json`: both accept and reject the same messages.

mod twin;

use twin::{Parsed, check};
use types::Refusal;

/// A small generator with a fixed seed, so that failures reproduce. Assertions print the text.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn space(&mut self, out: &mut String) {
        if self.one_in(8) {
            out.push_str(self.of(&[" ", "\t", "\r\n", "  \n"]));
        }
    }

    /// Appends a character of a string, in any of its forms.
    fn character(&mut self, char: char, out: &mut String) {
        let code = u32::from(char);
        let must = code < 0x20 || char == '"' || char == '\\';
        match (self.below(if must { 3 } else { 16 }), char) {
            (0, _) if code < 0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
            (1, _) if code < 0x1_0000 => out.push_str(&format!("\\u{code:04X}")),
            (_, '"' | '\\') => out.extend(['\\', char]),
            (2, '/') => out.push_str("\\/"),
            (_, '\n') => out.push_str("\\n"),
            (_, '\r') => out.push_str("\\r"),
            (_, '\t') => out.push_str("\\t"),
            (_, '\u{8}') => out.push_str("\\b"),
            (_, '\u{c}') => out.push_str("\\f"),
            _ if must => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push(char),
        }
    }

    fn string(&mut self, text: &str, out: &mut String) {
        out.push('"');
        text.chars().for_each(|char| self.character(char, out));
        out.push('"');
    }

    /// Appends mostly one of a few 20-byte strings, so that they repeat.
    fn identifier(&mut self, out: &mut String) {
        let seed = self.below(5) as u8 * 50;
        let len = if self.one_in(16) { self.below(43) } else { 20 };
        let mut text: Vec<char> =
            (0..len).map(|n| char::from(seed.wrapping_add((n * 7) as u8))).collect();
        if self.one_in(16) {
            text.truncate(19);
            text.push('\u{100}');
        }
        self.string(&String::from_iter(text), out);
    }

    /// Appends lines with escaped ends, like a session description.
    fn description(&mut self, out: &mut String) {
        out.push('"');
        for _ in 0..self.below(12) {
            out.push_str(self.of(&[
                "v=0",
                "a=fingerprint:sha-256 B5:4C:0A:8E:1F:77:2D",
                "",
                "s=ß",
            ]));
            let end = if self.one_in(40) { r#"\" \\ \u000a \ud800 \/ \t"# } else { r"\r\n \r \n" };
            out.push_str(self.of(&end.split(' ').collect::<Vec<_>>()));
        }
        out.push('"');
    }

    fn value(&mut self, depth: usize, out: &mut String) {
        self.space(out);
        match self.below(if depth < 5 { 10 } else { 8 }) {
            0 => out.push_str(self.of(&["null", "true", "false", "null"])),
            1 => out.push_str(self.of(&["0", "-0", "17", "-3", "1.5", "2e3", "1E-9", "-0.0e+1"])),
            2 => {
                out.push_str(self.of(&["1e999", "18446744073709551616", "65536", "0.1", "65535.5"]))
            }
            3 => self.identifier(out),
            4 => self.description(out),
            5 => {
                let text = self.of(&["announce", "scrape", "started", "stopped", "paused", "é€😀"]);
                self.string(text, out);
            }
            6 => out.push_str(r#""\ud83d\ude00\udead""#),
            7 => out.push_str(self.of(&["{}", "[]", "[ ]", "{\n}"])),
            8 => self.list(out, '[', ']', 3, |random, out| random.value(depth + 1, out)),
            _ => self.object(depth, out),
        }
        self.space(out);
    }

    fn object(&mut self, depth: usize, out: &mut String) {
        self.list(out, '{', '}', 3, |random, out| {
            let key = random.of(&["sdp", "type", "offer", "offer_id", "\u{0}", "ü"]);
            random.string(key, out);
            out.push(':');
            random.value(depth + 1, out);
        });
    }

    fn list(
        &mut self,
        out: &mut String,
        open: char,
        close: char,
        most: usize,
        mut item: impl FnMut(&mut Self, &mut String),
    ) {
        out.push(open);
        for at in 0..self.below(most + 1) {
            if at > 0 {
                out.push(',');
            }
            item(self, out);
        }
        out.push(close);
    }

    fn offers(&mut self, out: &mut String) {
        let most = if self.one_in(20) { 70 } else { 4 };
        self.list(out, '[', ']', most, |random, out| {
            if random.one_in(100) {
                return random.value(2, out);
            }
            out.push('{');
            let id_first = random.one_in(2);
            for id in [id_first, !id_first] {
                let key = if id { "offer_id" } else { "offer" };
                random.string(key, out);
                out.push(':');
                if id {
                    random.identifier(out)
                } else {
                    random.object(3, out)
                }
                if id == id_first {
                    out.push(',');
                }
            }
            out.push('}');
        });
    }

    /// Appends a member with a valid value, sometimes with another one.
    fn member(&mut self, key: &str, out: &mut String) {
        self.space(out);
        self.string(key, out);
        self.space(out);
        out.push(':');
        match key {
            _ if self.one_in(24) => self.value(1, out),
            "action" => {
                let action = self.of(&["announce", "announce", "announce", "scrape", "Announce"]);
                self.string(action, out);
            }
            "info_hash" if self.one_in(4) => {
                let most = if self.one_in(20) { 150 } else { 5 };
                self.list(out, '[', ']', most, Self::identifier);
            }
            "info_hash" | "peer_id" | "to_peer_id" | "offer_id" => self.identifier(out),
            "offers" => self.offers(out),
            "answer" => self.object(1, out),
            _ => self.value(1, out),
        }
    }

    fn message(&mut self) -> String {
        const ALWAYS: [&str; 3] = ["action", "info_hash", "peer_id"];
        const OFTEN: [&str; 8] =
            ["offers", "event", "left", "numwant", "uploaded", "downloaded", "x", "to_peer_id"];
        let mut keys: Vec<&str> = ALWAYS.into_iter().filter(|_| !self.one_in(30)).collect();
        keys.extend(OFTEN.iter().filter(|_| self.one_in(2)));
        if self.one_in(3) {
            keys.extend(["answer", "to_peer_id", "offer_id"]);
        }
        if self.one_in(4) {
            keys.push(ALWAYS[self.below(3)]);
        }
        let mut out = String::new();
        self.space(&mut out);
        for (at, key) in keys.iter().enumerate() {
            out.push(if at == 0 { '{' } else { ',' });
            self.member(key, &mut out);
        }
        out.push_str(if keys.is_empty() { "{}" } else { "}" });
        self.space(&mut out);
        out
    }
}

#[test]
fn both_parsers_agree_on_mutated_messages() {
    const MARKS: &[u8] =
        b"{}[]\",:\\/unrbtf0129aAeE+-. \n\t\x00\x1f\x20\x7f\x80\xbf\xc2\xc3\xc4\xe2\xf0";
    let mut random = Random(1);
    let (mut announces, mut answers, mut scrapes, mut check_refusal, mut broken) = (0, 0, 0, 0, 0);
    for _ in 0..1_500 {
        let message = random.message();
        let mut text = message.clone().into_bytes();
        for mutation in 0..6 {
            match check(&text) {
                Ok(Parsed::Announce(announce)) => announces += 1 + announce.offers.len(),
                Ok(Parsed::Answer(_)) => answers += 1,
                Ok(Parsed::Scrape(hashes)) => scrapes += usize::from(hashes.is_ok()),
                Err(bad) if bad.refusal == Refusal::NotJson => {
                    assert!(mutation > 0, "not written as JSON: {message}");
                    broken += 1;
                }
                Err(_) => check_refusal += 1,
            }
            if text.is_empty() {
                break;
            }
            let at = random.below(text.len());
            let mark = MARKS[random.below(MARKS.len())];
            match random.below(4) {
                0 => text[at] = mark,
                1 => text.insert(at, mark),
                2 => drop(text.remove(at)),
                _ => {
                    text.clear();
                    text.extend(message.bytes());
                }
            }
        }
    }
    let all = [announces, answers, scrapes, check_refusal, broken];
    assert!(all.iter().all(|times| *times > 200), "{all:?}: too few to mean much");
}

#[test]
fn both_parsers_agree_on_short_strings() {
    const PARTS: [&str; 12] = [
        r"\r\n", r"\n", r"\\", r#"\""#, r"\u0000", r"\u00", r"\x", r"\", "\"", "\n", "\u{7f}", "é",
    ];
    for first in PARTS {
        for second in PARTS {
            // The scanner reads strings eight bytes at a time.
            for len in 0..9 {
                let fill = "a".repeat(len);
                let _ = check(format!(r#"{{"x":"{first}{fill}{second}"}}"#).as_bytes());
                let _ = check(format!(r#"{{"x":"{fill}{first}{second}{fill}"}}"#).as_bytes());
                // Long enough for the scanner's path for session descriptions.
                for line in [r"\r\nabcdefg", r"\rabcdef", r"\nabcdef", "abcdefg"] {
                    let lines = line.repeat(20);
                    let text = format!(r#"{{"x":"{first}{fill}{lines}{second}{fill}"}}"#);
                    let _ = check(text.as_bytes());
                }
            }
        }
    }
}

#[test]
fn both_parsers_agree_on_every_short_text() {
    const MARKS: &[u8] = b"{}[]\",:\\0-.e ";
    for len in 0..=4 {
        for number in 0..MARKS.len().pow(len) {
            let marks: Vec<u8> = (0..len)
                .map(|place| MARKS[number / MARKS.len().pow(place) % MARKS.len()])
                .collect();
            let _ = check(&marks);
            let _ = check(&[b"{\"x\":", marks.as_slice(), b"}"].concat());
            let _ =
                check(&[b"{\"action\":\"announce\",\"left\":", marks.as_slice(), b"}"].concat());
        }
    }
}
