//! Pages that a listener serves over HTTP besides announces and scrapes of named torrents: full scrapes, ACME
//! challenges, the public page, statistics. `front` asks for them by its trait [`Pages`].
#![forbid(unsafe_code)]

mod challenges;
mod list;
mod page;
mod services;
mod site;
mod stats;

use std::net::IpAddr;
use std::sync::Arc;

use front::http::{LongBody, PageAnswer, Pages};
use tracker::{FullScrapePermit, ListenerPolicyId, Tracker, View};
use wire::http::{RequestHead, Status, TorrentList};

use page::{JSON_HEADERS, PAGE_HEADERS, Page};
use site::OverviewAccess;
use stats::StatsRequest;

pub use challenges::Challenges;
pub use page::PublicPage;
pub use site::{PublicUrl, Site, SiteOptions};
pub use stats::{StatsForm, StatsOptions};

/// The pages of a listener.
#[derive(Clone, Debug, Default)]
pub struct PageOptions {
    /// The page that a browser gets at `/`.
    pub page: PublicPage,
    /// Statistics, if there are any.
    pub stats: Option<StatsOptions>,
    /// Responses to an ACME authority; shared by all clones.
    pub challenges: Arc<Challenges>,
}

/// Answers the requests of a listener that are neither announces nor scrapes of named torrents.
pub struct ListenerPages {
    /// The tracker whose torrents are listed.
    pub tracker: Arc<Tracker>,
    /// The data that pages and statistics show; shared by all listeners.
    pub site: Arc<Site>,
    /// The policy of the listener.
    pub listener_policy: ListenerPolicyId,
    /// The pages that there are.
    pub options: PageOptions,
}

impl Pages for ListenerPages {
    fn full_scrape(&self, permit: FullScrapePermit) -> LongBody {
        list::torrents(TorrentList::Bencoded, &self.tracker, self.listener_policy, permit)
    }

    fn answer(&self, view: &View<'_>, request: &RequestHead<'_>, ip: IpAddr) -> PageAnswer {
        let PageOptions { page, stats, challenges } = &self.options;
        if let Some(answer) = challenges.answer(request.path) {
            return PageAnswer::Text(Status::Ok, answer.into());
        }
        if let Some(stats) = stats
            && let Some(asked) = stats.read(request)
        {
            if !stats.networks.contains(ip) {
                let text = "statistics are not for your address: see http.stats_networks\n";
                return PageAnswer::Text(Status::Forbidden, text.into());
            }
            return self.answer_stats(view, ip, asked);
        }
        if *page == PublicPage::Off {
            return PageAnswer::NotFound;
        }
        match request.path {
            b"/" => PageAnswer::Document {
                content_type: "text/html; charset=utf-8",
                headers: PAGE_HEADERS,
                body: self.page(view, request).html(),
            },
            b"/page.json" => PageAnswer::Document {
                content_type: "application/json",
                headers: JSON_HEADERS,
                body: self.page(view, request).json(),
            },
            _ => PageAnswer::NotFound,
        }
    }
}

impl ListenerPages {
    /// Returns the public page, with figures if there are to be any.
    fn page(&self, view: &View<'_>, request: &RequestHead<'_>) -> Page<'_> {
        let shows_figures = self.options.page == PublicPage::Figures;
        let now = view.now();
        let figures = shows_figures
            .then(|| (self.site.figures(&self.tracker, now), self.site.service_texts(now)));
        Page::new(&self.site, view, request, figures)
    }

    fn answer_stats(&self, view: &View<'_>, ip: IpAddr, asked: StatsRequest<'_>) -> PageAnswer {
        let Self { tracker, site, listener_policy, .. } = self;
        let now = view.now();
        let document =
            |content_type, body| PageAnswer::Document { content_type, headers: "", body };
        match asked {
            StatsRequest::Unknown => unknown_stats(),
            StatsRequest::Text(mode) => match stats::text(mode, &site.figures(tracker, now)) {
                Some(text) => document(stats::content_type(mode), text),
                None => unknown_stats(),
            },
            StatsRequest::List(list) => match view.permit_listing(ip) {
                Ok(permit) => {
                    PageAnswer::Long(list::torrents(list, tracker, *listener_policy, permit))
                }
                Err(refusal) => PageAnswer::Refused(refusal),
            },
            StatsRequest::Overview(form) => match site.overview(now) {
                OverviewAccess::Due(ticket) => {
                    PageAnswer::Long(list::overview(form, tracker, site, ticket, now))
                }
                OverviewAccess::Ready(overview) => {
                    let figures = site.figures(tracker, now);
                    document(form.content_type(), form.text(&figures, &overview))
                }
                OverviewAccess::Busy => {
                    let text = "the first statistics are being made: try again in a second\n";
                    PageAnswer::Text(Status::Unavailable, text.into())
                }
            },
        }
    }
}

fn unknown_stats() -> PageAnswer {
    PageAnswer::Text(Status::NotFound, "this tracker has no such statistics\n".into())
}
