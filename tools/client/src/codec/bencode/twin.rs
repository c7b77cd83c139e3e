//! The strict parser against a naive one: both accept the same texts, with the same values.

use super::{Value, parse};

/// BEP 3 to the letter: parses a number's text, writes the number again and compares.
fn naive_parse(text: &[u8]) -> Option<(Value<'_>, &[u8])> {
    match *text.first()? {
        b'i' => {
            let end = text.iter().position(|byte| *byte == b'e')?;
            let number: i64 = canonical(&text[1..end])?;
            Some((Value::Int(number), &text[end + 1..]))
        }
        b'l' => {
            let (mut items, mut rest) = (Vec::new(), &text[1..]);
            while *rest.first()? != b'e' {
                let (item, after) = naive_parse(rest)?;
                items.push(item);
                rest = after;
            }
            Some((Value::List(items), &rest[1..]))
        }
        b'd' => {
            let (mut entries, mut rest) = (Vec::new(), &text[1..]);
            while *rest.first()? != b'e' {
                let (key, after) = naive_bytes(rest)?;
                let (value, after) = naive_parse(after)?;
                entries.push((key, value));
                rest = after;
            }
            let sorted = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
            sorted.then_some((Value::Dict(entries), &rest[1..]))
        }
        _ => naive_bytes(text).map(|(bytes, rest)| (Value::Bytes(bytes), rest)),
    }
}

fn naive_bytes(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let len: u64 = canonical(&text[..colon])?;
    text[colon + 1..].split_at_checked(usize::try_from(len).ok()?)
}

/// Returns the number, if its text is canonical.
fn canonical<N: std::str::FromStr + ToString>(text: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(text).ok()?;
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Checks that both parsers agree. Returns whether they accept the text.
fn agree(text: &[u8]) -> bool {
    let slow = naive_parse(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value);
    let fast = parse(text);
    if let Err(error) = fast {
        assert!(error.at <= text.len(), "{error} in {}", text.escape_ascii());
    }
    assert_eq!(fast.as_ref().ok(), slow.as_ref(), "{}", text.escape_ascii());
    slow.is_some()
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(format!("{}:", bytes.len()).bytes());
    out.extend(bytes);
}

#[test]
fn both_parsers_agree_on_every_short_text() {
    const MARKS: &[u8] = b"ilde:-01";
    for len in 0..=6 {
        for number in 0..MARKS.len().pow(len) {
            let text: Vec<u8> = (0..len)
                .map(|place| MARKS[number / MARKS.len().pow(place) % MARKS.len()])
                .collect();
            agree(&text);
        }
    }
}

#[test]
fn both_parsers_agree_on_key_order() {
    let keys: [&[u8]; 6] = [b"", b"a", b"aa", b"ab", b"b", b"\xff"];
    for (first, one) in keys.iter().enumerate() {
        for (second, other) in keys.iter().enumerate() {
            let mut text = vec![b'd'];
            for key in [one, other] {
                write_bytes(key, &mut text);
                write_bytes(b"", &mut text);
            }
            text.push(b'e');
            assert_eq!(agree(&text), first < second, "{}", text.escape_ascii());
        }
    }
}
