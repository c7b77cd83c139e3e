//! HTTP, and what is the same over TLS.

mod browsers;
mod lifetime;
mod limits;
mod proxies;
mod requests;
mod seats;
mod turns;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use front::http::{ForwardedHeader, HttpOptions, LongBody, MemoryLimits, PageAnswer, Pages};
use tracker::counters::{DropReason, Protocol};
use tracker::{FullScrapePermit, View};
use types::Refusal;
use wire::http::{RequestHead, Status};

use crate::testing::*;

/// Sends requests, and reads no response, until the server closes the connection.
fn write_without_reading(mut client: Client) -> JoinHandle<()> {
    let requests = get("/scrape?x", "").repeat(1000);
    spawn(move || while client.0.send(&requests).is_ok() {})
}

/// A page at `/hook` that calls a function of the test.
struct Hook<F>(F);

impl<F: Fn() + Send + Sync> Pages for Hook<F> {
    fn full_scrape(&self, _: FullScrapePermit) -> LongBody {
        unreachable!("no test scrapes all torrents here");
    }

    fn answer(&self, _: &View<'_>, request: &RequestHead<'_>, _: IpAddr) -> PageAnswer {
        if request.path != b"/hook" {
            return PageAnswer::NotFound;
        }
        (self.0)();
        PageAnswer::Text(Status::Ok, "".into())
    }
}

impl HttpServer {
    fn with_hook(hook: impl Fn() + Send + Sync + 'static) -> Self {
        let pages: Option<Arc<dyn Pages>> = Some(Arc::new(Hook(hook)));
        Self::set_up(Setup { pages, ..Setup::default() })
    }
}
