//! The settings that an operator can change while the tracker serves. They are one value, replaced as a whole:
//! every batch sees either the old settings or the new ones.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::load::Paced;
use crate::{
    Interval, Limits, ListenerPolicy, ListenerPolicyId, Near, Pacing, PeerLifetimes, Policy,
    QuietRefusals, Service,
};

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Intervals, lifetimes and numbers of peers.
    pub policy: Policy,
    /// The listeners' policies, by their ids. The first always exists.
    pub listeners: Vec<ListenerPolicy>,
    /// The limits of requests and connections.
    pub limits: Limits,
    /// The refusals that are quiet.
    pub quiet: QuietRefusals,
    /// The rules by which answers prefer near peers; `None` = they do not.
    pub near: Option<Arc<Near>>,
    /// The stretch of intervals, and budgets.
    pacing: Pacing,
    /// The values that follow from `policy` and `pacing`.
    paced: Paced,
}

impl Settings {
    /// Returns the policy of a listener.
    pub fn listener(&self, ListenerPolicyId(id): ListenerPolicyId) -> Option<&ListenerPolicy> {
        self.listeners.get(usize::from(id))
    }

    /// Returns the intervals and budgets in force.
    pub fn pacing(&self) -> &Pacing {
        &self.pacing
    }

    #[inline]
    pub(crate) fn has_budget(&self, service: Service) -> bool {
        self.paced.has_budget[service.index()]
    }

    /// Returns the interval in the responses of a service.
    #[inline]
    pub fn interval(&self, service: Service) -> &Interval {
        &self.paced.intervals[service.index()]
    }

    /// Returns the lifetimes of peers.
    pub fn lifetimes(&self) -> PeerLifetimes {
        self.paced.lifetimes
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.paced = Paced::new(&self.policy, &self.pacing);
    }

    pub(crate) fn set_pacing(&mut self, pacing: Pacing) {
        self.pacing = pacing;
        self.paced = Paced::new(&self.policy, &self.pacing);
    }

    /// Returns whether caps do not count the peers that others get at `ip`: the address is exempt from limits, or
    /// stands for the peers beside the tracker.
    fn exempts_peers(&self, ip: IpAddr) -> bool {
        let is_external = |listener: &ListenerPolicy| {
            listener.external.as_ref().is_some_and(|external| external.contains(ip))
        };
        self.limits.exempt.contains(ip) || self.listeners.iter().any(is_external)
    }
}

/// The settings, shared by all that read them.
#[derive(Clone)]
pub(crate) struct SharedSettings(Arc<ArcSwap<Settings>>);

impl SharedSettings {
    /// Returns settings with one open listener and without limits.
    pub(crate) fn new(policy: Policy) -> Self {
        let listeners = vec![ListenerPolicy::default()];
        let limits = Limits::default();
        let quiet = QuietRefusals::default();
        let pacing = Pacing::default();
        let paced = Paced::new(&policy, &pacing);
        let near = None;
        let settings = Settings { policy, listeners, limits, quiet, near, pacing, paced };
        Self(Arc::new(ArcSwap::from_pointee(settings)))
    }

    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Settings>> {
        self.0.load()
    }

    /// Changes the settings, for every worker from its next batch on. Calls `change` again if they were changed
    /// meanwhile.
    pub(crate) fn change(&self, change: impl Fn(&mut Settings)) {
        self.0.rcu(|settings| {
            let mut new = Settings::clone(settings);
            change(&mut new);
            new
        });
    }

    /// Returns a function that says, from now on, which addresses caps do not count.
    pub(crate) fn cap_exemption(&self) -> impl Fn(IpAddr) -> bool + use<> {
        let settings = self.clone();
        move |ip| settings.load().exempts_peers(ip)
    }
}
