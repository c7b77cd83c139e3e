//! Requests that are neither announces nor scrapes: ACME challenges, the public page, statistics.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tracker::counters::DropReason;
use tracker::{RequestKind, View};
use types::{Family, Refusal};
use wire::http::{RequestHead, ResponseFraming, Status};

use super::http_service::{HttpClient, NextStep, State};
use super::list::ListJob;
use super::page::{self, PAGE_HEADERS, PublicPage};
use super::site::OverviewAccess;
use super::stats::StatsRequest;
use crate::connection_error::ConnectionError;
use crate::reject_log;

/// The response to a browser on a path for WebSockets.
const WEB_PATH: &str = "this is a BitTorrent tracker: WebTorrent clients connect here by WebSocket, \
                        others announce to /announce\n";
/// The response to a mode or format that is not served.
const NO_SUCH_STATS: &str = "this tracker has no such statistics\n";

/// A request and how it is answered.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) request: &'a RequestHead<'a>,
    pub(super) response: ResponseFraming,
    /// The client's address.
    pub(super) ip: IpAddr,
}

impl State {
    /// Ends an exchange with a client whose prefix has sent too many requests, without a response. A trusted
    /// proxy gets a short one, since its connection carries other clients, too.
    ///
    /// # Errors
    ///
    /// If the connection is to be closed.
    pub(super) fn shed(
        &mut self,
        client: HttpClient<'_>,
        exchange: Exchange<'_>,
    ) -> Result<NextStep, ConnectionError> {
        let HttpClient { listener, remote, may_stay } = client;
        let Exchange { response, ip, .. } = exchange;
        if !listener.options.trusted_proxies.contains(remote.ip()) {
            return Err(ConnectionError::NotAdmitted(DropReason::RequestRate));
        }
        let refusal = Refusal::TooManyRequests;
        reject_log::refused("http", ip, refusal);
        let mut counters = listener.http();
        counters.response(Family::of(ip), RequestKind::Other);
        counters.refuse(refusal);
        response.text(&mut self.out, Status::TooManyRequests, "too many requests\n");
        Ok(NextStep::after(response.keep_alive, may_stay))
    }

    /// Answers a request that is neither an announce nor a scrape.
    pub(super) fn answer_other(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        exchange: Exchange<'_>,
    ) -> NextStep {
        let Exchange { request, response, .. } = exchange;
        #[cfg(test)]
        crate::test_panic::check(request.path);
        let options = &client.listener.options;
        let is_private = view.is_private(options.listener_policy);
        let stats = options.stats.as_ref().and_then(|stats| stats.read(request, unix_s()));
        if let Some(answer) = options.challenges.answer(request.path) {
            response.ok(&mut self.out, answer.as_bytes());
        } else if let Some(stats) = stats {
            return self.answer_stats(client, view, exchange, stats);
        } else if request.path == b"/" && options.page != PublicPage::Off {
            self.answer_page(view, exchange, options.page);
        } else if options.web.as_ref().is_some_and(|web| web.names(request, is_private)) {
            response.text(&mut self.out, Status::UpgradeRequired, WEB_PATH);
        } else {
            client.listener.http().not_found += 1;
            response.not_found(&mut self.out);
        }
        NextStep::after(response.keep_alive, client.may_stay)
    }

    fn answer_page(&mut self, view: &View<'_>, exchange: Exchange<'_>, page: PublicPage) {
        let figures =
            (page == PublicPage::Figures).then(|| self.site.figures(&self.tracker, view.now()));
        let totals = figures.as_ref().map(|figures| &figures.totals);
        let html = page::html(&self.site, view, exchange.request, totals);
        let (content_type, response) = ("text/html; charset=utf-8", exchange.response);
        response.document(&mut self.out, content_type, PAGE_HEADERS, html.as_bytes());
    }

    fn answer_stats(
        &mut self,
        client: HttpClient<'_>,
        view: &View<'_>,
        exchange: Exchange<'_>,
        stats: StatsRequest,
    ) -> NextStep {
        let HttpClient { listener, may_stay, .. } = client;
        let Exchange { request, response, ip } = exchange;
        let options = &listener.options;
        let is_allowed = options.stats.as_ref().is_some_and(|stats| stats.networks.contains(ip));
        match stats {
            _ if !is_allowed => {
                let text = "statistics are not for your address: see http.stats_networks\n";
                response.text(&mut self.out, Status::Forbidden, text);
            }
            StatsRequest::Unknown => {
                listener.http().not_found += 1;
                response.text(&mut self.out, Status::NotFound, NO_SUCH_STATS);
            }
            StatsRequest::Text(mode) => {
                let figures = self.site.figures(&self.tracker, view.now());
                let text = mode.text(&figures);
                response.document(&mut self.out, mode.content_type(), "", text.as_bytes());
            }
            StatsRequest::List(list) => match view.permit_listing(ip) {
                Ok(permit) => {
                    let listener_policy = options.listener_policy;
                    let job = ListJob::Torrents { list, listener_policy, permit };
                    return self.start_list(view.now(), request, may_stay, job);
                }
                Err(refusal) => {
                    reject_log::refused("http", ip, refusal);
                    listener.http().refuse(refusal);
                    self.answer_unavailable(response, refusal);
                }
            },
            StatsRequest::Overview(form) => match self.site.overview(view.now()) {
                OverviewAccess::Due(ticket) => {
                    let job = ListJob::Overview { form, ticket };
                    return self.start_list(view.now(), request, may_stay, job);
                }
                OverviewAccess::Ready(overview) => {
                    let figures = self.site.figures(&self.tracker, view.now());
                    let text = form.text(&figures, &overview);
                    response.document(&mut self.out, form.content_type(), "", text.as_bytes());
                }
                OverviewAccess::Busy => {
                    let text = "the first statistics are being made: try again in a second\n";
                    response.text(&mut self.out, Status::Unavailable, text);
                }
            },
        }
        NextStep::after(response.keep_alive, may_stay)
    }

    fn answer_unavailable(&mut self, response: ResponseFraming, refusal: Refusal) {
        let text = format!("{}\n", refusal.text());
        response.text(&mut self.out, Status::Unavailable, &text);
    }
}

/// Returns the seconds of unix time.
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
