//! Bodies that need a pass over all torrents: full scrapes, and some statistics.
//!
//! Plain form: the connection's task visits the torrents and writes each. Departures:
//! 1. A thread of low priority does it: a task that works without a pause would keep its worker from
//!    announces for milliseconds, and compression takes several times as long as all else.
//! 2. The thread is at most a few chunks ahead of the client, and ends as soon as that is gone. Permits
//!    bound how many there are ([`types::limits::FULL_SCRAPES_AT_ONCE`]).

use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use front::http::LongBody;
use tokio::sync::mpsc;
use tracker::{FullScrapePermit, ListenerPolicyId, TorrentPages, Tracker};
use types::{Tick, limits};
use wire::http::{StreamFraming, TorrentList};

use crate::site::{OverviewTicket, Site};
use crate::stats::OverviewForm;

/// Bytes of a chunk, about.
const CHUNK_LEN: usize = 60 * 1024;

/// Returns a list of the torrents that a listener serves. It holds `permit` until it is made.
pub(crate) fn torrents(
    list: TorrentList,
    tracker: &Arc<Tracker>,
    listener_policy: ListenerPolicyId,
    permit: FullScrapePermit,
) -> LongBody {
    let tracker = Arc::clone(tracker);
    LongBody {
        content_type: "text/plain",
        is_full_scrape: true,
        make: Box::new(move |framing, sender| {
            let mut body = BodyWriter::new(framing, sender);
            list.begin(&mut body.plain);
            let mut pages = TorrentPages::new(limits::FULL_SCRAPE_PAGE);
            while let Some(page) = pages.next_page(&tracker, listener_policy) {
                for torrent in page {
                    list.torrent(&mut body.plain, &torrent.info_hash, &torrent.counts);
                    body.send_if_long()?;
                }
                if body.sender.is_closed() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            list.end(&mut body.plain);
            body.finish(Some(permit))
        }),
    }
}

/// Returns statistics over all torrents, which also refresh the site's overview.
pub(crate) fn overview(
    form: OverviewForm,
    tracker: &Arc<Tracker>,
    site: &Arc<Site>,
    ticket: OverviewTicket,
    now: Tick,
) -> LongBody {
    let (tracker, site) = (Arc::clone(tracker), Arc::clone(site));
    LongBody {
        content_type: form.content_type(),
        is_full_scrape: false,
        make: Box::new(move |framing, sender| {
            let overview = ticket.refresh(&tracker, now);
            let figures = site.figures(&tracker, now);
            let mut body = BodyWriter::new(framing, sender);
            body.plain.extend_from_slice(form.text(&figures, &overview).as_bytes());
            body.finish(None)
        }),
    }
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

    fn send_if_long(&mut self) -> io::Result<()> {
        if self.plain.len() < CHUNK_LEN {
            return Ok(());
        }
        let part = match &mut self.gzip {
            None => &mut self.plain,
            Some(gzip) => {
                gzip.write_all(&self.plain)?;
                self.plain.clear();
                gzip.get_mut()
            }
        };
        if part.len() >= CHUNK_LEN {
            send(self.framing, &self.sender, part)?;
            part.clear();
        }
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
