//! Users' keys from a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use tracker::{KeyId, KeyRules, PasskeyStore};
use types::{UserKey, limits};

/// The keys of the file that are in force, and their numbers.
#[derive(Default)]
pub(crate) struct FileKeys {
    known: BTreeMap<Box<str>, KeyId>,
    /// How many numbers were given so far: none is given twice.
    given: u32,
}

/// Bytes that a line may have.
const LINE_MAX: u64 = 1024;

impl FileKeys {
    /// Puts the keys in force, and those out of it that are missing among them. The others stay as they
    /// are.
    pub(crate) fn replace(&mut self, passkeys: &PasskeyStore, keys: &[UserKey]) {
        let mut before = std::mem::take(&mut self.known);
        for key in keys {
            let id = before.remove(key.as_str()).or_else(|| self.known.get(key.as_str()).copied());
            let id = id.unwrap_or_else(|| {
                let id = KeyId(KeyId::FILE_FIRST + self.given);
                self.given += 1;
                passkeys.put(id, *key, KeyRules::default());
                id
            });
            self.known.insert(key.as_str().into(), id);
        }
        before.into_values().for_each(|id| _ = passkeys.remove(id));
    }
}

/// The keys in the file at `path`, none if that is empty. The first bad line ends the reading. What it
/// says is not repeated: it may be a key with a slip in it.
pub(super) fn read(path: &Path) -> Result<Vec<UserKey>> {
    if path.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(BufReader::new(file)).with_context(|| path.display().to_string())
}

fn parse(mut text: impl BufRead) -> Result<Vec<UserKey>> {
    let mut keys = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = text.by_ref().take(LINE_MAX + 1);
        if limited.read_until(b'\n', &mut line).with_context(|| format!("line {number}"))? == 0 {
            break;
        }
        if line.len() as u64 > LINE_MAX {
            bail!("line {number}: longer than {LINE_MAX} bytes");
        }
        let entry = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if let Some(key) = words.next() {
            if keys.len() == limits::USER_KEYS_MAX {
                bail!("line {number}: more than {} keys", limits::USER_KEYS_MAX);
            }
            keys.push(UserKey::parse(key).with_context(|| format!("line {number}"))?);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let keys = parse(text.as_bytes()).unwrap();
        keys.iter().map(|key| key.as_str().to_owned()).collect()
    }

    #[test]
    fn lines_are_a_key_and_whatever_tells_whose_it_is() {
        let (a, b) = ("a".repeat(16), "B-_9".repeat(16));
        assert_eq!(keys(&format!("# head\n\n{a} Anna K.\r\n  {b}# old\n{a}")), [a.clone(), b, a]);
        assert_eq!(keys("# nobody\n"), [""; 0]);
    }

    #[test]
    fn bad_lines_are_named_and_not_repeated() {
        let says = |bad: &str| {
            let text = format!("{}\n{bad}\n", "a".repeat(16));
            format!("{:#}", parse(text.as_bytes()).unwrap_err())
        };
        assert_eq!(says("secret"), "line 2: 6 characters where a key has 16 to 64");
        assert_eq!(says("secretsecretsecret!"), "line 2: character 19 is none of A-Z a-z 0-9 _ -");
        assert_eq!(says(&"a".repeat(5000)), "line 2: longer than 1024 bytes");
    }

    #[test]
    fn only_what_differs_is_changed() {
        let tracker = tracker::Tracker::new(
            &tracker::Options {
                policy: tracker::Policy::default(),
                store: tracker::StoreOptions {
                    shards: 1,
                    hash_key: [0; 16],
                    peer_lifetime_s: 1,
                    web_lifetime_s: 1,
                    keep_peer_ids: false,
                    memory_budget: None,
                },
            },
            &tracker::Secrets { connection_ids: [0; 16], offers: [0; 16], limits: [0; 16] },
        );
        let (ring, mut file_keys) = (tracker.passkeys(), FileKeys::default());
        let own = UserKey::parse("made-by-the-api-0").unwrap();
        ring.put(KeyId(1), own, KeyRules::default());
        let [a, b, c] = ["a", "b", "c"].map(|one| UserKey::parse(one.repeat(16)).unwrap());
        file_keys.replace(ring, &[a, b, a]);
        assert_eq!(ring.len(), 3);
        let number = file_keys.known[b.as_str()];
        file_keys.replace(ring, &[b, c]);
        assert_eq!((ring.len(), file_keys.known[b.as_str()]), (3, number));
        assert!(
            file_keys.known[c.as_str()].0 >= KeyId::FILE_FIRST + 2,
            "numbers are not used again"
        );
        file_keys.replace(ring, &[]);
        assert!(ring.len() == 1 && ring.remove(KeyId(1)));
    }
}
