//! Users' keys from a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use tracker::{KeyId, KeyRules, PasskeyStore};
use types::{UserKey, limits};

#[derive(Default)]
pub(crate) struct FileKeys {
    known: BTreeMap<Box<str>, KeyId>,
    /// Number of ids that have been assigned. No id is used twice.
    assigned: u32,
}

const LINE_MAX: u64 = 1024;

impl FileKeys {
    /// Adds new keys and removes missing ones. Keys that were in use before are not changed.
    pub(crate) fn replace(&mut self, passkeys: &PasskeyStore, keys: &[UserKey]) {
        let mut before = std::mem::take(&mut self.known);
        for key in keys {
            let id = before.remove(key.as_str()).or_else(|| self.known.get(key.as_str()).copied());
            let id = id.unwrap_or_else(|| {
                let id = KeyId(KeyId::FILE_FIRST + self.assigned);
                self.assigned += 1;
                passkeys.put(id, *key, KeyRules::default());
                id
            });
            self.known.insert(key.as_str().into(), id);
        }
        before.into_values().for_each(|id| _ = passkeys.remove(id));
    }
}

/// Reads the keys in the file at `path`; none if that is empty. Fails at the first invalid line. The
/// error does not quote the line, because it may be a mistyped key.
pub(super) fn read(path: &Path) -> Result<Vec<UserKey>> {
    if path.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("access.keys: cannot read {name}"))?;
    parse(&name, BufReader::new(file)).context("access.keys")
}

fn parse(name: &str, mut text: impl BufRead) -> Result<Vec<UserKey>> {
    let mut keys = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = text.by_ref().take(LINE_MAX + 1);
        if limited.read_until(b'\n', &mut line).with_context(|| format!("{name}:{number}"))? == 0 {
            break;
        }
        if line.len() as u64 > LINE_MAX {
            bail!("{name}:{number}: expected a line of at most {LINE_MAX} bytes");
        }
        let comment = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
        let entry = line.get(..comment).unwrap_or(&line);
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if let Some(key) = words.next() {
            if keys.len() == limits::USER_KEYS_MAX {
                bail!("{name}:{number}: expected at most {} keys", limits::USER_KEYS_MAX);
            }
            keys.push(UserKey::parse(key).with_context(|| format!("{name}:{number}"))?);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let keys = parse("keys.txt", text.as_bytes()).unwrap();
        keys.iter().map(|key| key.as_str().to_owned()).collect()
    }

    #[test]
    fn reads_keys_and_skips_notes() {
        let (a, b) = ("a".repeat(16), "B-_9".repeat(16));
        assert_eq!(keys(&format!("# head\n\n{a} Anna K.\r\n  {b}# old\n{a}")), [a.clone(), b, a]);
        assert_eq!(keys("# none\n"), [""; 0]);
    }

    #[test]
    fn reports_invalid_lines_without_quoting_them() {
        let message = |bad: &str| {
            let text = format!("{}\n{bad}\n", "a".repeat(16));
            format!("{:#}", parse("keys.txt", text.as_bytes()).unwrap_err())
        };
        assert_eq!(message("secret"), "keys.txt:2: expected a key of 16 to 64 characters, found 6");
        assert_eq!(message(&"a".repeat(5000)), "keys.txt:2: expected a line of at most 1024 bytes");
    }

    #[test]
    fn changes_only_what_differs() {
        let options = tracker::Options::predictable(tracker::Policy::default());
        let tracker = tracker::Tracker::new(&options, &tracker::Secrets::PUBLIC);
        let (ring, mut file_keys) = (tracker.passkeys(), FileKeys::default());
        let own = UserKey::parse("made-by-the-api-0").unwrap();
        ring.put(KeyId(1), own, KeyRules::default());
        let [a, b, c] = ["a", "b", "c"].map(|one| UserKey::parse(one.repeat(16)).unwrap());
        file_keys.replace(ring, &[a, b, a]);
        assert_eq!(ring.keys(), 3);
        let number = file_keys.known[b.as_str()];
        file_keys.replace(ring, &[b, c]);
        assert_eq!((ring.keys(), file_keys.known[b.as_str()]), (3, number));
        assert!(file_keys.known[c.as_str()].0 >= KeyId::FILE_FIRST + 2, "ids are not used again");
        file_keys.replace(ring, &[]);
        assert!(ring.keys() == 1 && ring.remove(KeyId(1)));
    }
}
