//! Info hashes that the API imports: the incremental reader against the whole body, read in the
//! obvious way.

use admin::ListReader;
use types::InfoHash;

/// Digits of a v2 hash, and the blanks that a line may have.
const LINE_MAX: usize = 256;

/// Reads a body in pieces of `size` bytes, as JSON or as text.
fn read(is_json: bool, body: &[u8], size: usize) -> Result<Vec<InfoHash>, String> {
    let mut reader = if is_json { ListReader::json() } else { ListReader::text() };
    body.chunks(size.max(1)).try_for_each(|piece| reader.read(piece))?;
    let len = reader.len();
    let hashes = reader.end()?;
    // The last line may have no end.
    assert!((len..=len + 1).contains(&hashes.len()));
    Ok(hashes)
}

/// Checks a body. The first byte says where it is split, the rest is read as text and as JSON.
pub fn check(bytes: &[u8]) {
    let Some((size, body)) = bytes.split_first() else { return };
    let text = read(false, body, body.len());
    let json = read(true, body, body.len());
    // Every size of pieces gives the same result.
    let size = usize::from(*size).max(1);
    assert_eq!(read(false, body, size), text);
    assert_eq!(read(true, body, size), json);
    for error in [&text, &json].into_iter().filter_map(|outcome| outcome.as_ref().err()) {
        let has_place = ["line ", "item ", "expected "].iter().any(|it| error.starts_with(it));
        assert!(has_place && !error.contains(char::is_control), "{error:?}");
    }
    check_text(body, &text);
    check_json(body, &json);
}

/// One hash per line; comments begin with `#`. Lines with more than one word are left to the reader.
fn check_text(body: &[u8], found: &Result<Vec<InfoHash>, String>) {
    let mut expected = Some(Vec::new());
    for line in body.split(|byte| *byte == b'\n') {
        let entry = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if line.len() > LINE_MAX || entry.iter().any(u8::is_ascii_whitespace) {
            return;
        }
        match InfoHash::from_hex(entry) {
            _ if entry.is_empty() => {}
            Ok(hash) => expected.iter_mut().for_each(|hashes| hashes.push(hash)),
            Err(_) => expected = None,
        }
    }
    assert_eq!(found.as_ref().ok(), expected.as_ref());
}

/// An array of strings, as serde_json reads it. Only our reader rejects escapes, which no hash needs.
fn check_json(body: &[u8], found: &Result<Vec<InfoHash>, String>) {
    let twin = serde_json::from_slice::<Vec<String>>(body).ok().and_then(|strings| {
        strings
            .iter()
            .map(|text| InfoHash::from_hex(text.as_bytes()).ok())
            .collect::<Option<Vec<_>>>()
    });
    match found {
        Ok(hashes) => assert_eq!(Some(hashes), twin.as_ref()),
        Err(error) => assert!(twin.is_none() || body.contains(&b'\\'), "{error}"),
    }
}
