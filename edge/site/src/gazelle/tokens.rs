//! Tells Gazelle which freeleech tokens a completed download has used up, as Ocelot does: `tools.php?type=expiretoken`.
//!
//! The batch of the download has ended the token in the table; the call is for what the site has cached. So it is bounded
//! and may be lost: an announce puts a token into a queue, and a thread calls, tries again for some minutes, and gives up.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Tokens that wait. More are not reported.
const WAITING_MAX: usize = 10_000;
/// Tokens of one call: some 350 characters, as Ocelot sends.
const TOKENS_PER_CALL: usize = 20;
/// Time for which a call waits for more tokens, and after which an end of the process is noticed.
const GATHER: Duration = Duration::from_millis(500);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The first and the longest time between attempts.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const ATTEMPTS: u32 = 10;
/// Bytes of a response that are read: its status.
const STATUS_LEN_MAX: u64 = 64;

/// The site's address for these calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteUrl {
    host: String,
    port: u16,
    /// Without a `/` at its end.
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedToken {
    pub(crate) user: u32,
    pub(crate) torrent: u32,
}

pub(crate) struct TokenCalls {
    url: SiteUrl,
    queue: SyncSender<UsedToken>,
    waiting: Mutex<Option<Receiver<UsedToken>>>,
}

impl SiteUrl {
    /// Reads `http://HOST[:PORT][/PATH]`. Returns `None` if it is malformed, or HTTPS, which Ocelot does not speak either.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return None;
        }
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = place.rsplit_once(':').filter(|(host, _)| !host.ends_with(':'));
        let (host, port) = match has_port {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, 80),
        };
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port, path })
    }
}

impl TokenCalls {
    pub(crate) fn new(url: SiteUrl) -> Self {
        let (queue, waiting) = sync_channel(WAITING_MAX);
        Self { url, queue, waiting: Mutex::new(Some(waiting)) }
    }

    /// Reports a token. Waits for nothing: without room it is left out.
    pub(crate) fn report(&self, token: UsedToken) {
        if self.queue.try_send(token).is_err() {
            tracing::warn!(
                target: "site",
                "{WAITING_MAX} used tokens wait for the site: the one of user {} is not reported",
                token.user
            );
        }
    }

    /// Calls until `stopping` is set. Call once.
    pub(crate) fn run(&self, password: &str, stopping: &AtomicBool) {
        let Some(waiting) = self.waiting.lock().take() else { return };
        while !stopping.load(Ordering::Acquire) {
            match waiting.recv_timeout(GATHER) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(first) => {
                    let tokens = gather(first, &waiting);
                    self.call_until_heard(password, &tokens, stopping);
                }
            }
        }
    }

    fn call_until_heard(&self, password: &str, tokens: &[UsedToken], stopping: &AtomicBool) {
        let mut wait = RETRY.0;
        for attempt in 1..=ATTEMPTS {
            let Err(error) = self.call(password, tokens) else { return };
            if attempt == ATTEMPTS {
                break;
            }
            if attempt == 1 {
                let SiteUrl { host, port, .. } = &self.url;
                tracing::warn!(
                    target: "site",
                    "cannot tell {host}:{port} of used tokens: {error}; check site.url, or why the site does not answer"
                );
            }
            let until = Instant::now() + wait;
            while Instant::now() < until {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                std::thread::sleep(GATHER.min(wait));
            }
            wait = (wait * 2).min(RETRY.1);
        }
        tracing::warn!(
            target: "site",
            "{} used tokens were not reported: the site shows them until its cache ends",
            tokens.len()
        );
    }

    fn call(&self, password: &str, tokens: &[UsedToken]) -> io::Result<()> {
        let SiteUrl { host, port, .. } = &self.url;
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (name, *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CALL_TIMEOUT) {
                Ok(stream) => return self.ask(stream, password, tokens),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    fn ask(&self, mut stream: TcpStream, password: &str, tokens: &[UsedToken]) -> io::Result<()> {
        stream.set_read_timeout(Some(CALL_TIMEOUT))?;
        stream.set_write_timeout(Some(CALL_TIMEOUT))?;
        let pair = |it: &UsedToken| format!("{}:{}", it.user, it.torrent);
        let tokens: Vec<_> = tokens.iter().map(pair).collect();
        let SiteUrl { host, path, .. } = &self.url;
        let request = format!(
            "GET {path}/tools.php?key={password}&type=expiretoken&action=ocelot&tokens={} HTTP/1.0\r\nHost: {host}\r\n\
             Accept: */*\r\nConnection: close\r\n\r\n",
            tokens.join(",")
        );
        stream.write_all(request.as_bytes())?;
        let mut status = Vec::new();
        // The rest is a page.
        match stream.take(STATUS_LEN_MAX).read_to_end(&mut status) {
            Err(error) if status.is_empty() => return Err(error),
            _ => {}
        }
        let line = status.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let is_ok = line.starts_with(b"HTTP/") && line.get(8..12) == Some(b" 200");
        let found = || format!("expected status 200, found {:?}", String::from_utf8_lossy(line));
        if is_ok { Ok(()) } else { Err(io::Error::other(found())) }
    }
}

/// Takes further tokens that wait, as many as a call has room for.
fn gather(first: UsedToken, waiting: &Receiver<UsedToken>) -> Vec<UsedToken> {
    let mut tokens = vec![first];
    tokens.extend(waiting.try_iter().take(TOKENS_PER_CALL - 1));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let url = |host: &str, port, path: &str| {
            Some(SiteUrl { host: host.into(), port, path: path.into() })
        };
        assert_eq!(SiteUrl::parse("http://site.example"), url("site.example", 80, ""));
        assert_eq!(
            SiteUrl::parse("http://site.example:8080/a/b/"),
            url("site.example", 8080, "/a/b")
        );
        assert_eq!(SiteUrl::parse("http://[::1]:81/"), url("[::1]", 81, ""));
        assert_eq!(SiteUrl::parse("http://[::1]/"), url("[::1]", 80, ""));
        for wrong in [
            "https://a",
            "a",
            "http://",
            "http://:80",
            "http://a:x",
            "http://a b",
            "http://a/?x",
            "http://a@b",
        ] {
            assert_eq!(SiteUrl::parse(wrong), None, "{wrong}");
        }
    }
}
