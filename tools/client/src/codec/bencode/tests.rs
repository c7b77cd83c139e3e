//! Values, violations, and hostile input.

use super::*;

#[test]
fn parses_every_kind_of_value() {
    let list = vec![Value::Int(-1_234_567_890_123_456_789), Value::Bytes(b"\xff:e")];
    let dict = Value::Dict(vec![(b"a", Value::Int(0)), (b"b", Value::List(list))]);
    assert_eq!(parse(b"d1:ai0e1:bli-1234567890123456789e3:\xff:eee"), Ok(dict));
}

//= bep3#bencode-integers
//= type=test
//= bep3#bencode-sorted-keys
//= type=test
#[test]
fn rejects_bencoding_that_is_not_strict() {
    fn error_of(text: &[u8]) -> Result<Value<'_>, (usize, BencodeErrorKind)> {
        parse(text).map_err(|error| (error.at, error.kind))
    }
    assert_eq!(error_of(b""), Err((0, BencodeErrorKind::Truncated)));
    assert_eq!(error_of(b"i01e"), Err((1, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"i-0e"), Err((2, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"ie"), Err((1, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"i9223372036854775808e"), Err((1, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"i-9223372036854775808e"), Ok(Value::Int(i64::MIN)));
    assert_eq!(error_of(b"01:a"), Err((0, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"5:abc"), Err((5, BencodeErrorKind::Truncated)));
    assert_eq!(error_of(b"99999999999999999999:"), Err((0, BencodeErrorKind::InvalidNumber)));
    assert_eq!(error_of(b"d1:b0:1:a0:e"), Err((6, BencodeErrorKind::KeyOrder)));
    assert_eq!(error_of(b"d1:a0:1:a0:e"), Err((6, BencodeErrorKind::KeyOrder)));
    assert_eq!(error_of(b"di1e0:e"), Err((1, BencodeErrorKind::UnexpectedByte)));
    assert_eq!(error_of(b"i1ex"), Err((3, BencodeErrorKind::TrailingData)));
    assert_eq!(error_of(&[b'l'; 100_000]), Err((DEPTH_MAX + 1, BencodeErrorKind::TooDeep)));
}

#[test]
fn every_prefix_is_truncated() {
    let whole = b"d1:ai-10e1:bl3:xyzi0eee";
    assert!(parse(whole).is_ok());
    for len in 0..whole.len() {
        assert_eq!(parse(&whole[..len]).unwrap_err().kind, BencodeErrorKind::Truncated, "{len}");
    }
}

#[test]
fn lenient_parsing_reports_the_first_violation() {
    let parsed = |text| {
        parse_lenient(text).map(|(value, violation)| {
            (value.at("a").and_then(Value::int), violation.map(|it| (it.at, it.kind)))
        })
    };
    assert_eq!(parsed(b"d1:ai1ee"), Ok((Some(1), None)));
    assert_eq!(parsed(b"d1:b0:1:ai1ee"), Ok((Some(1), Some((6, BencodeErrorKind::KeyOrder)))));
    assert_eq!(parsed(b"d1:ai1ee\r\n"), Ok((Some(1), Some((8, BencodeErrorKind::TrailingData)))));
    assert_eq!(parsed(b"d1:b0:1:ai1eex"), Ok((Some(1), Some((6, BencodeErrorKind::KeyOrder)))));
    assert_eq!(parsed(b"d1:ai1e").unwrap_err().kind, BencodeErrorKind::Truncated);
    assert_eq!(parsed(b"d1:ai01ee").unwrap_err().kind, BencodeErrorKind::InvalidNumber);
}

#[test]
fn returns_raw_dictionary_values() {
    let text = b"d8:announce3:udp4:infod4:name1:x6:lengthi7ee1:zlee\n";
    assert_eq!(dict_entry(text, "info"), Ok(Some(b"d4:name1:x6:lengthi7ee".as_slice())));
    assert_eq!(dict_entry(text, "z"), Ok(Some(b"le".as_slice())));
    assert_eq!(dict_entry(text, "name"), Ok(None));
    assert_eq!(dict_entry(b"l4:infoe", "info").unwrap_err().kind, BencodeErrorKind::UnexpectedByte);
    assert_eq!(dict_entry(b"", "info").unwrap_err().kind, BencodeErrorKind::Truncated);
    for len in 1..text.len() - 1 {
        assert_eq!(
            dict_entry(&text[..len], "info").unwrap_err().kind,
            BencodeErrorKind::Truncated,
            "{len}"
        );
    }
}
