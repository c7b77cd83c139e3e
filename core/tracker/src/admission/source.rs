//! Steps 1 and 2 of the order of checks: the network of a client, and the rate of its prefix.

use std::net::IpAddr;

use types::{NumWant, Refusal};

use super::View;
use crate::bans::Image;
use crate::{NetworkAction, RequestKind};

impl View<'_> {
    /// Step 1 of the [order of checks](super). Returns the most peers that an announce gets, if there is a limit.
    // Within the path of an announce it would cost those that come from no listed network.
    #[inline(never)]
    pub(super) fn check_network(
        &self,
        image: &Image,
        from: IpAddr,
        kind: RequestKind,
    ) -> Result<Option<u16>, Refusal> {
        match image.action(self.now, from) {
            Some(NetworkAction::Deny) => Err(Refusal::Banned),
            Some(NetworkAction::Quiet) if kind == RequestKind::Announce => {
                // Step 2 first: a flood costs less without responses.
                Err(self.check_rate(from, kind).err().unwrap_or(Refusal::Network))
            }
            Some(NetworkAction::Numwant(peers_max)) => Ok(Some(peers_max)),
            _ => Ok(None),
        }
    }

    /// Returns what a client wants, but `peers_max` peers at most.
    #[cold]
    pub(super) fn at_most(&self, peers_max: u16, want: NumWant) -> NumWant {
        NumWant::Peers(self.settings.policy.peers(want).min(peers_max))
    }

    /// Step 2 of the [order of checks](super).
    #[inline]
    pub(super) fn check_rate(&self, from: IpAddr, kind: RequestKind) -> Result<(), Refusal> {
        if self.is_within_rate(from, kind) { Ok(()) } else { Err(Refusal::TooManyRequests) }
    }

    /// Counts a request. Returns false if it is over the rate of its prefix. Few clients are, so exemptions
    /// are looked up last.
    #[inline]
    pub(super) fn is_within_rate(&self, from: IpAddr, kind: RequestKind) -> bool {
        self.tracker.limiter.take(&self.settings.limits, self.now, from, kind)
            || self.is_exempt(from)
    }
}
