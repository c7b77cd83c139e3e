//! Requests that are counted against their sender: those that were refused, offences, and what is neither an announce nor
//! a scrape.

use std::net::IpAddr;

use super::View;
use crate::{BanReason, HeavyHitters, RequestKind};

impl View<'_> {
    /// Counts a request of a client at `from` that is neither an announce nor a scrape, or that was refused.
    /// Returns false, and counts nothing, if its prefix has sent too many. `from` must be verified.
    pub fn admits_other(&self, from: IpAddr) -> bool {
        self.is_within_rate(from, RequestKind::Other)
    }

    /// Sets whether offences of the requests that follow are excused: a web page may have made its
    /// visitor's browser send them.
    #[inline]
    pub fn excuse_offences(&self, excuses: bool) {
        self.excuses_offences.set(excuses);
    }

    /// Counts an offence of a client at `from`, which bans its prefix if there are too many. Does
    /// nothing if the reason is not enabled, the client is exempt from limits, or offences are
    /// [excused](View::excuse_offences).
    ///
    /// `from` must be the client's own address, not a proxy's, and verified unless `reason` says
    /// otherwise.
    #[inline]
    pub fn report_offence(&self, from: IpAddr, reason: BanReason) {
        let bans = &self.tracker.bans;
        let counts = bans.is_enabled(reason) && !self.excuses_offences.get();
        if counts && !self.is_exempt(from) {
            bans.note(self.now, self.prefix(from), reason);
        }
    }

    /// Counts a request of a client at `from` that was refused as one too many. Returns whether this
    /// makes its prefix one to drop in the kernel.
    pub fn note_refusal(&self, heavy_hitters: &mut HeavyHitters, from: IpAddr) -> bool {
        self.settings.limits.note(heavy_hitters, self.now, from)
    }
}
