//! Responses that need a pass over all torrents: full scrapes, and some statistics. A thread of low
//! priority makes them, so that no announce waits, and the connection sends them as fast as the client
//! reads.
//!
//! Plain form: the connection's task visits the torrents and writes each. Departures:
//! 1. The thread: a task that works without a pause would keep its worker from announces for milliseconds,
//!    and compression takes several times as long as all else.
//! 2. It is at most [`CHUNKS_WAITING`] chunks ahead of the client, and ends as soon as that is gone. Permits
//!    bound how many there are ([`types::limits::FULL_SCRAPES_AT_ONCE`]).

use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracker::{FullScrapePermit, ListenerPolicyId, TorrentPages, Tracker};
use types::{Tick, limits};
use wire::http::{StreamFraming, TorrentList};

use super::site::{OverviewTicket, Site};
use super::stats::OverviewForm;

/// Bytes of a chunk, about.
const CHUNK_LEN: usize = 60 * 1024;
/// Chunks that wait for the client.
const CHUNKS_WAITING: usize = 2;

/// A body that a thread makes.
pub(super) enum ListJob {
    /// A list of the torrents that a listener serves.
    Torrents { list: TorrentList, listener_policy: ListenerPolicyId, permit: FullScrapePermit },
    /// Statistics over all torrents.
    Overview { form: OverviewForm, ticket: OverviewTicket },
}

impl ListJob {
    pub(super) fn content_type(&self) -> &'static str {
        match self {
            Self::Torrents { .. } => "text/plain",
            Self::Overview { form, .. } => form.content_type(),
        }
    }
}

/// The body of a response, made by a thread.
#[derive(Debug)]
pub(super) struct ListStream {
    chunks: mpsc::Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
    /// True if the response is counted as a full scrape.
    pub(super) is_full_scrape: bool,
}

/// The sources that a job reads.
pub(super) struct ListSources {
    pub(super) tracker: Arc<Tracker>,
    pub(super) site: Arc<Site>,
    pub(super) now: Tick,
}

impl ListStream {
    /// Starts a thread that makes the body. Call it on a worker's thread.
    pub(super) fn start(job: ListJob, framing: StreamFraming, sources: ListSources) -> Self {
        let (sender, chunks) = mpsc::channel(CHUNKS_WAITING);
        let is_full_scrape = matches!(job, ListJob::Torrents { .. });
        let thread = tokio::task::spawn_blocking(move || {
            // Without the right to a lower priority, it shares the cores with the workers.
            let _ = net::process::lower_priority();
            make(job, BodyWriter::new(framing, sender), &sources)
        });
        Self { chunks, thread, is_full_scrape }
    }

    /// Returns the next chunk, framed; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.chunks.recv().await
    }

    /// Returns an error if the body is not complete. Call it after the last chunk.
    ///
    /// # Panics
    ///
    /// If the thread has.
    pub(super) async fn finish(self) -> io::Result<()> {
        match self.thread.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(io::Error::other(error)),
            },
        }
    }
}

/// Makes a body, until the client has gone.
fn make(job: ListJob, mut body: BodyWriter, sources: &ListSources) -> io::Result<()> {
    let ListSources { tracker, site, now } = sources;
    let permit = match job {
        ListJob::Torrents { list, listener_policy, permit } => {
            list.begin(&mut body.plain);
            let mut pages = TorrentPages::new(limits::FULL_SCRAPE_PAGE);
            while let Some(page) = pages.next_page(tracker, listener_policy) {
                for torrent in page {
                    list.torrent(&mut body.plain, &torrent.info_hash, &torrent.counts);
                    body.send_if_long()?;
                }
                body.check_client()?;
            }
            list.end(&mut body.plain);
            Some(permit)
        }
        ListJob::Overview { form, ticket } => {
            let overview = ticket.refresh(tracker, *now);
            let figures = site.figures(tracker, *now);
            body.plain.extend_from_slice(form.text(&figures, &overview).as_bytes());
            None
        }
    };
    body.finish(permit)
}

/// Compresses and frames a body, and sends it in chunks.
struct BodyWriter {
    framing: StreamFraming,
    /// Bytes to be sent next, neither compressed nor framed yet.
    plain: Vec<u8>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    sender: mpsc::Sender<Vec<u8>>,
}

impl BodyWriter {
    fn new(framing: StreamFraming, sender: mpsc::Sender<Vec<u8>>) -> Self {
        let gzip = framing.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { framing, plain: Vec::with_capacity(CHUNK_LEN + 256), gzip, sender }
    }

    fn check_client(&self) -> io::Result<()> {
        if self.sender.is_closed() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn send_if_long(&mut self) -> io::Result<()> {
        if self.plain.len() < CHUNK_LEN {
            return Ok(());
        }
        match &mut self.gzip {
            None => send(self.framing, &self.sender, &self.plain)?,
            Some(gzip) => {
                gzip.write_all(&self.plain)?;
                if gzip.get_ref().len() >= CHUNK_LEN {
                    send(self.framing, &self.sender, gzip.get_ref())?;
                    gzip.get_mut().clear();
                }
            }
        }
        self.plain.clear();
        Ok(())
    }

    /// Sends the rest. Returns the permit before that: a client that has it all may ask for the next list.
    fn finish(mut self, permit: Option<FullScrapePermit>) -> io::Result<()> {
        let rest = match self.gzip.take() {
            None => self.plain,
            Some(mut gzip) => {
                gzip.write_all(&self.plain)?;
                gzip.finish()?
            }
        };
        let mut last = Vec::with_capacity(rest.len() + 32);
        self.framing.part(&mut last, &rest);
        self.framing.end(&mut last);
        drop(permit);
        if last.is_empty() { Ok(()) } else { hand_over(&self.sender, last) }
    }
}

/// Frames a part of a body, and waits until the client has read those before it.
fn send(framing: StreamFraming, sender: &mpsc::Sender<Vec<u8>>, part: &[u8]) -> io::Result<()> {
    let mut chunk = Vec::with_capacity(part.len() + 16);
    framing.part(&mut chunk, part);
    hand_over(sender, chunk)
}

fn hand_over(sender: &mpsc::Sender<Vec<u8>>, chunk: Vec<u8>) -> io::Result<()> {
    sender.blocking_send(chunk).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// The time in which a client must read a body of any length: the time for any other response, and the
/// time that the bytes it has read take at the lowest accepted rate.
#[derive(Debug)]
pub(super) struct Pace {
    timeout_s: u32,
    blocked_s: u32,
    sent: u64,
}

impl Pace {
    pub(super) fn new(timeout_s: u32) -> Self {
        Self { timeout_s, blocked_s: 0, sent: 0 }
    }

    /// Returns the seconds in which the client must read the next chunk.
    pub(super) fn left_s(&self) -> u32 {
        let earned_s = self.sent / limits::FULL_SCRAPE_BYTES_PER_S_MIN;
        let earned_s = u32::try_from(earned_s).unwrap_or(u32::MAX);
        self.timeout_s.saturating_add(earned_s).saturating_sub(self.blocked_s)
    }

    /// Records that the client has read a chunk of `len` bytes within `seconds`.
    pub(super) fn add(&mut self, len: usize, seconds: u32) {
        self.sent += len as u64;
        self.blocked_s = self.blocked_s.saturating_add(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_earns_time_by_reading() {
        let mut pace = Pace::new(20);
        assert_eq!(pace.left_s(), 20);
        pace.add(CHUNK_LEN, 15);
        assert_eq!(pace.left_s(), 5);
        // A megabyte a second: time accumulates.
        (0..100).for_each(|_| pace.add(1 << 20, 1));
        assert_eq!(pace.left_s(), 5 + 100 * 15);
        pace.add(0, u32::MAX);
        assert_eq!(pace.left_s(), 0);
    }
}
