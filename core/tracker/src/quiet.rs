//! Refusals that no client sees as an error: a response without peers and with a long interval instead.
//!
//! Clients return soon after an error, and over UDP an error cannot say when to return (BEP 15): a response that
//! succeeds is the only one whose interval every client heeds.

use types::{Notice, Refusal, SwarmCounts};

use crate::{AnnounceOk, Answer, View, WebAnnounceOk};

/// The refusals that are quiet, and their intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietRefusals {
    /// By [`Refusal::index`].
    responses: [Option<QuietResponse>; Refusal::ALL.len()],
}

/// The response in place of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QuietResponse {
    interval_s: u32,
    /// The text of the refusal, for clients that show warnings.
    warning: Option<Notice>,
}

impl Default for QuietRefusals {
    fn default() -> Self {
        let mut quiet = Self { responses: [None; Refusal::ALL.len()] };
        // Otherwise the network would be denied.
        quiet.set(Refusal::Network, None);
        quiet
    }
}

impl QuietRefusals {
    /// Answers `refusal` with a response that asks the client to return after `interval_s`; `None` = the interval of
    /// the refusal. Panics if it is not one of [`Refusal::QUIETABLE`].
    pub fn add(&mut self, refusal: Refusal, interval_s: Option<u32>) {
        assert!(Refusal::QUIETABLE.contains(&refusal), "{refusal:?} cannot be quiet");
        self.set(refusal, interval_s);
        if refusal == Refusal::NotAllowed {
            // Uploaders return soon, as they do after an error.
            self.set(Refusal::NotAllowedYet, None);
        }
    }

    fn set(&mut self, refusal: Refusal, interval_s: Option<u32>) {
        let interval_s = interval_s.or_else(|| refusal.interval_s()).unwrap_or(INTERVAL_S);
        let response = QuietResponse { interval_s, warning: Some(Notice::new(refusal.text())) };
        self.responses[refusal.index()] = Some(response);
    }

    fn response(&self, refusal: Refusal) -> Option<QuietResponse> {
        if let Refusal::OverBudget { interval_s } = refusal {
            // Without a warning: it would make the response longer.
            return Some(QuietResponse { interval_s, warning: None });
        }
        let response = self.responses[refusal.index()]?;
        match refusal {
            // Earlier it would be too soon again.
            Refusal::TooSoon { wait_min } => Some(QuietResponse {
                interval_s: response.interval_s.max(u32::from(wait_min) * 60),
                ..response
            }),
            Refusal::Torrent { reason } => {
                Some(QuietResponse { warning: Some(reason), ..response })
            }
            _ => Some(response),
        }
    }
}

/// The interval of refusals that have none.
const INTERVAL_S: u32 = 3600;

impl View<'_> {
    /// Returns the response to send in place of a refusal, if that is quiet. It has no peers and counts none.
    pub fn quiet_response(&self, refusal: Refusal) -> Option<AnnounceOk<'static>> {
        let QuietResponse { interval_s, warning } = self.settings.quiet.response(refusal)?;
        Some(AnnounceOk {
            answer: Answer::without_peers(SwarmCounts::default()),
            interval_s,
            interval_min_s: interval_s,
            warning,
        })
    }

    /// Returns the same for a WebTorrent announce.
    pub fn quiet_web_response(&self, refusal: Refusal) -> Option<WebAnnounceOk> {
        let QuietResponse { interval_s, warning } = self.settings.quiet.response(refusal)?;
        Some(WebAnnounceOk { counts: SwarmCounts::default(), interval_s, warning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_came_too_soon_waits_at_least_for_the_interval() {
        let interval_s = |configured, wait_min| {
            let mut quiet = QuietRefusals::default();
            quiet.add(Refusal::TooSoon { wait_min: 0 }, configured);
            quiet.response(Refusal::TooSoon { wait_min }).map(|response| response.interval_s)
        };
        assert_eq!(interval_s(None, 7), Some(420));
        assert_eq!(interval_s(Some(300), 7), Some(420));
        assert_eq!(interval_s(Some(3600), 7), Some(3600));
    }
}
