//! The WebTorrent parser against one built on `serde_json`: both accept and reject the same messages. The fuzz
//! target `webtorrent` compares them on whole messages, and on mutations of these.

mod twin;

use twin::check;

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
