//! Connections that no honest client makes: named kinds of them, beside the load.

use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::Poll;

use crate::found::Found;
use crate::random::Random;
use crate::stream::{Dialer, Stream};

/// A kind of hostile connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pest {
    /// A request whose head comes a byte at a time, and never ends.
    Slowloris,
    /// Random bytes.
    Garbage,
    /// A request with a head of 64 KiB.
    Oversize,
    /// Half a request, and the connection is closed.
    Half,
    /// Connections on which nothing is said.
    Silent,
}

const NAMES: [(&str, Pest); 5] = [
    ("slowloris", Pest::Slowloris),
    ("garbage", Pest::Garbage),
    ("oversize", Pest::Oversize),
    ("half", Pest::Half),
    ("silent", Pest::Silent),
];

/// How often a slow one sends a byte.
const SLOWLY: Duration = Duration::from_millis(200);
/// How soon the next connection follows one that has ended.
const AGAIN: Duration = Duration::from_millis(20);

/// All hostile connections of a worker.
pub(crate) struct Pests {
    kind: Pest,
    dialer: Dialer,
    /// Their numbers start here.
    first: usize,
    places: Vec<Place>,
    host: String,
    random: Random,
}

struct Place {
    stream: Option<Stream>,
    script: Vec<u8>,
    said: usize,
    /// When something is to be done next.
    next: Instant,
    was_answered: bool,
}

impl Pests {
    /// So many, with numbers from `first` on.
    pub(crate) fn new(
        kind: Pest,
        (first, count): (usize, usize),
        dialer: Dialer,
        host: &str,
        seed: u64,
    ) -> Self {
        let place = || Place {
            stream: None,
            script: Vec::new(),
            said: 0,
            next: Instant::now(),
            was_answered: false,
        };
        let places = (0..count).map(|_| place()).collect();
        Self { kind, dialer, first, places, host: host.to_owned(), random: Random::new(seed) }
    }

    /// Does what is due, now and then.
    pub(crate) fn go_on(&mut self, poll: &Poll, found: &mut Found) -> Result<()> {
        let now = Instant::now();
        for at in 0..self.places.len() {
            let Some(place) = self.places.get_mut(at).filter(|place| place.next <= now) else {
                continue;
            };
            if place.stream.is_none() {
                // A tracker that takes no more of them defends itself; that is no trouble of the load.
                let Ok(stream) = self.dialer.dial(poll, self.first + at) else { continue };
                let script = self.script();
                let Some(place) = self.places.get_mut(at) else { continue };
                *place = Place {
                    stream: Some(stream),
                    script,
                    said: 0,
                    next: now + SLOWLY,
                    was_answered: false,
                };
                found.hostile_sent += 1;
            }
            self.say(at, found);
        }
        Ok(())
    }

    /// Something has happened on the one with this number, if it is one of these.
    pub(crate) fn hear(&mut self, number: usize, found: &mut Found) -> bool {
        let Some(at) = number.checked_sub(self.first).filter(|at| *at < self.places.len()) else {
            return false;
        };
        let Some(place) = self.places.get_mut(at) else { return true };
        let mut room = [0; 4096];
        while let Some(stream) = &mut place.stream {
            match stream.read(&mut room) {
                Ok(len @ 1..) => {
                    found.bytes_in += len as u64;
                    found.hostile_answered += u64::from(!place.was_answered);
                    place.was_answered = true;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    break;
                }
                Ok(_) | Err(_) => {
                    place.stream = None;
                    place.next = Instant::now() + AGAIN;
                }
            }
        }
        if self.kind != Pest::Slowloris {
            self.say(at, found);
        }
        true
    }

    /// Says what is to be said now.
    fn say(&mut self, at: usize, found: &mut Found) {
        let Some(place) = self.places.get_mut(at) else { return };
        let Some(stream) = &mut place.stream else { return };
        let rest = place.script.get(place.said..).unwrap_or_default();
        let rest = match self.kind {
            Pest::Slowloris => rest.get(..1).unwrap_or_default(),
            _ => rest,
        };
        place.next = Instant::now() + SLOWLY;
        match stream.write(rest) {
            Ok(len) => {
                found.bytes_out += len as u64;
                place.said += len;
                let is_said = place.said >= place.script.len() && !stream.is_pending();
                if self.kind == Pest::Half && is_said {
                    place.stream = None;
                    place.next = Instant::now() + AGAIN;
                }
            }
            Err(_) => {
                place.stream = None;
                place.next = Instant::now() + AGAIN;
            }
        }
    }

    fn script(&mut self) -> Vec<u8> {
        let head = format!(
            "GET /announce?info_hash=aaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: {}\r\n",
            self.host
        );
        let mut script = head.into_bytes();
        match self.kind {
            // For minutes.
            Pest::Slowloris => script.extend(b"X-Slow: 1\r\n".repeat(1000)),
            Pest::Oversize => script.extend(format!("X-Large: {}", "x".repeat(65_536)).bytes()),
            Pest::Half => script.truncate(script.len() / 2),
            Pest::Silent => script.clear(),
            Pest::Garbage => {
                script.clear();
                script.extend((0..512).map(|_| self.random.next() as u8));
            }
        }
        script
    }
}

impl FromStr for Pest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        found.ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("unknown kind of hostile connections `{text}`: {names}")
        })
    }
}

impl fmt::Display for Pest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (name, kind) in NAMES {
            assert_eq!((name.parse(), kind.to_string().as_str()), (Ok(kind), name));
        }
        assert!("bad-ids".parse::<Pest>().unwrap_err().contains("slowloris, garbage"));
    }
}
