//! Problems of the tracker as sentences, which say what is wrong and what to do. The dashboard shows them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use subsystem::{HealthArea, HealthItem, Level};
use tracker::counters::DropReason;
use types::Refusal;

use super::state::Api;
use crate::annotation::AnnotationKind;
use crate::clock::since_epoch;
use crate::recorder::{Cause, CommonEnding};
use crate::sources::{MetricSources, ReloadFailure, is_renewal_late};

/// Percent of the memory budget from which it is a warning.
const MEMORY_WARNING_PERCENT: u64 = 90;
/// Datagrams lost in ten minutes from which it is a warning. Fewer are a burst: clients ask again.
const LOST_WARNING: u64 = 1000;
/// Seconds between two annotations of a lasting failure.
const FAILURE_PERIOD_S: u64 = 600;

/// Returns everything that an operator should know, the worst first.
pub(super) fn health_items(api: &Api) -> Vec<HealthItem> {
    let sources = api.sources();
    let mut items = Vec::new();
    process(api, &mut items);
    items.extend(udp_engine(sources));
    items.extend(receive_losses(api.recorder.recent_losses()));
    items.extend(unreachable_external(api).map(unreachable_peers));
    items.extend(api.recorder.common_ending().as_ref().map(common_ending));
    records(api, &mut items);
    items.extend(sources.subsystems.read_all().iter().flat_map(|it| it.problems()));
    certificates(&(sources.certificates)(), SystemTime::now(), &mut items);
    memory(sources, &mut items);
    items.sort_by_key(|item| std::cmp::Reverse(item.level));
    items
}

fn process(api: &Api, items: &mut Vec<HealthItem>) {
    let status = &api.sources().status;
    if !status.ready.load(Ordering::Relaxed) {
        let text = "Not all listeners serve: tidegate is starting or stopping.";
        items.push(HealthItem::new(Level::Warning, HealthArea::Listeners, text));
    }
    if let Some(ReloadFailure { file, error }) = status.reload_failure() {
        let text = format!(
            "The last reload failed: the configuration from before it is in force. {error}"
        );
        let option = file.map(|file| format!(" --config {}", file.display())).unwrap_or_default();
        let remedy = format!(
            "Correct it, then reload. `tidegate config check{option}` finds mistakes without a reload."
        );
        let failed = HealthItem::new(Level::Warning, HealthArea::Config, text);
        items.push(failed.with_remedy(remedy));
    }
    if (api.deps.is_upgrade_pending)() {
        let text = "The program file has changed since the start: a new version is installed, but not running.";
        let remedy = format!(
            "Upgrade without downtime: Upgrade on the dashboard, `tidegate admin upgrade`, or `kill -USR2 {}`.",
            std::process::id()
        );
        let pending = HealthItem::new(Level::Info, HealthArea::Upgrade, text);
        items.push(pending.with_remedy(remedy));
    }
}

fn udp_engine(sources: &MetricSources) -> Option<HealthItem> {
    let why = sources.status.udp_fallback.get()?;
    let text = format!("UDP is served without its XDP program: {why}.");
    let remedy = "Clients notice nothing, but a flood costs more. Remove the cause and restart; or set udp.engine to \
                  auto. See docs/xdp.md.";
    Some(HealthItem::new(Level::Warning, HealthArea::Xdp, text).with_remedy(remedy))
}

/// Returns the address by which others cannot reach the peers on this machine, if they were given it.
fn unreachable_external(api: &Api) -> Option<IpAddr> {
    let settings = api.tracker().settings();
    let mut externals = settings.listeners.iter().filter_map(|policy| policy.external.as_ref());
    externals.find_map(|external| external.unreachable())
}

/// `given` is the address under which others get the peers on this machine.
fn unreachable_peers(given: IpAddr) -> HealthItem {
    let text = format!(
        "Peers on this machine are given to others by the address {given}, which only this network can reach."
    );
    let remedy = "If clients elsewhere should reach them, set tracker.external_address to the public address, and \
                  forward their ports to this machine.";
    HealthItem::new(Level::Info, HealthArea::Listeners, text).with_remedy(remedy)
}

fn receive_losses(lost: u64) -> Option<HealthItem> {
    let level = match lost {
        0 => return None,
        1..LOST_WARNING => Level::Info,
        _ => Level::Warning,
    };
    let datagrams = if lost == 1 { "datagram" } else { "datagrams" };
    let text = format!(
        "The kernel dropped {lost} {datagrams} in the last 10 minutes: the receive buffers of the UDP sockets were full."
    );
    let remedy = "Clients ask again. If it continues, raise net.core.rmem_max to 8388608 and restart; \
                  if a core is busy all the time, see docs/operate/tuning.md.";
    Some(HealthItem::new(level, HealthArea::Listeners, text).with_remedy(remedy))
}

fn common_ending(ending: &CommonEnding) -> HealthItem {
    let CommonEnding { cause, percent, requests } = ending;
    let (how, label, remedy) = match *cause {
        Cause::Refused(refusal) => ("refused", refusal.label(), refusal_remedy(refusal)),
        Cause::Dropped(reason) => ("dropped", reason.label(), drop_remedy(reason)),
    };
    let text = format!(
        "{percent} % of the {requests} requests of the last 5 minutes were {how} for the same reason: {label}."
    );
    HealthItem::new(Level::Warning, HealthArea::Listeners, text).with_remedy(remedy)
}

/// Returns what to do if nearly all requests are refused for the same reason.
fn refusal_remedy(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotAllowed | Refusal::NotAllowedYet => {
            "Only torrents on the allow list are served. Add yours to it, or set access.mode to open."
        }
        Refusal::Denied => "Remove the torrent from the deny list, if it is there by mistake.",
        Refusal::Torrent { .. } => "Remove the reason of the torrent, if it is refused by mistake.",
        Refusal::Frozen => "Unfreeze the torrent, if it was frozen by mistake.",
        Refusal::Banned => BANNED_REMEDY,
        Refusal::KeyMissing | Refusal::ScrapeWithoutKey => {
            "The tracker is private: announce URLs must contain a user's key. Set access.private to false to serve \
             everybody."
        }
        Refusal::KeyUnknown | Refusal::KeyExpired => {
            "The keys in clients' announce URLs are not valid here. See that your site's keys are in access.keys, or \
             were added by the API."
        }
        Refusal::KeyUnexpected => {
            "Clients announce with keys, but this listener is not private. Set access.private to true, or give out \
             announce URLs without keys."
        }
        Refusal::TokenMissing
        | Refusal::TokenInvalid
        | Refusal::TokenExpired
        | Refusal::TokenOtherTorrent
        | Refusal::TokenUnverified => {
            "Announce URLs need a valid token. See jwt_keys, jwt_issuer and jwt_audience of [access], and that your \
             site signs by these keys."
        }
        Refusal::AddressNotPublic => {
            "Clients seem to have private addresses. Behind a proxy, name it in trusted_proxies; in a private network, \
             set tracker.private_addresses to allow."
        }
        Refusal::TooManyRequests => {
            "If clients share an address, or a proxy does not tell theirs, raise the limits or name the proxy in \
             trusted_proxies."
        }
        Refusal::OverBudget { .. } => {
            "Raise the budget in load.budgets, or load.interval_max_s, so that clients return later."
        }
        Refusal::ClientRefused => "See clients_allow and clients_deny of [access].",
        _ => "See docs/troubleshoot.md for this reason.",
    }
}

/// Returns what to do if nearly all requests are dropped for the same reason.
fn drop_remedy(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Banned => BANNED_REMEDY,
        DropReason::UntrustedProxy => {
            "A proxy sends PROXY headers but is not trusted: add its address to trusted_proxies."
        }
        DropReason::BadProxyHeader => {
            "A trusted proxy sends no PROXY header: turn it on at the proxy, or remove the proxy from trusted_proxies."
        }
        DropReason::ForbiddenOrigin => {
            "See websocket_origins and websocket_origins_deny of [http]."
        }
        DropReason::BadTls => {
            "Clients do not accept the certificate, or speak plain HTTP to a TLS port. Check it by `tidegate check`."
        }
        _ => "See docs/troubleshoot.md for this reason.",
    }
}

/// The remedy if nearly all clients are in banned networks.
const BANNED_REMEDY: &str = "A ban, or access.networks_allow and networks_deny, covers nearly all clients. `tidegate admin bans list` shows bans.";

fn records(api: &Api, items: &mut Vec<HealthItem>) {
    if let Some(why) = api.records().health().failing() {
        let text = format!(
            "Records are not written ({why}). The tracker serves, but changes are refused, and counters of the \
             last minutes would be lost with the process."
        );
        let remedy = format!(
            "Free space on {} and check its permissions. Writing continues by itself.",
            disk_of_state(api)
        );
        items.push(HealthItem::new(Level::Error, HealthArea::Records, text).with_remedy(remedy));
    }
    if !api.records().is_durable() {
        let text = "Records are in memory only: keys, lists, bans, tokens, statistics and swarms are lost when \
                    tidegate stops.";
        let remedy = "Start it without --memory, or set state.dir, to keep them.";
        items.push(HealthItem::new(Level::Warning, HealthArea::Records, text).with_remedy(remedy));
    }
}

fn disk_of_state(api: &Api) -> String {
    match api.records().directory() {
        Some(dir) => format!("the disk of {}", dir.display()),
        None => "the disk of state.dir".into(),
    }
}

/// Returns the whole days until `expires`, below 0 after it.
pub(super) fn days_left(expires: SystemTime, now: SystemTime) -> i64 {
    let seconds = |time| i64::try_from(since_epoch(time).as_secs()).unwrap_or(i64::MAX);
    (seconds(expires) - seconds(now)).div_euclid(86_400)
}

fn certificates(
    validities: &BTreeMap<String, Range<SystemTime>>,
    now: SystemTime,
    items: &mut Vec<HealthItem>,
) {
    for (name, validity) in validities {
        let name = if name.is_empty() { "without a name" } else { name };
        let (level, text) = match days_left(validity.end, now) {
            days if days < 0 => {
                let ago = plural(-days - 1);
                (
                    Level::Error,
                    format!("The certificate {name} expired {ago} ago: clients refuse it."),
                )
            }
            days if is_renewal_late(validity, now) => {
                (Level::Warning, format!("The certificate {name} expires in {}.", plural(days)))
            }
            _ => continue,
        };
        let remedy =
            "Renew the files of tls.certificates and reload; with ACME, see the log (area acme).";
        items.push(HealthItem::new(level, HealthArea::Certificates, text).with_remedy(remedy));
    }
}

fn plural(days: i64) -> String {
    match days {
        0 => "less than a day".into(),
        1 => "1 day".into(),
        days => format!("{days} days"),
    }
}

fn memory(sources: &MetricSources, items: &mut Vec<HealthItem>) {
    let (totals, budget) = (sources.tracker.totals(), sources.tracker.store().memory_budget());
    let Some(budget) = budget.filter(|budget| *budget > 0) else { return };
    let percent = totals.memory_used.saturating_mul(100) / budget;
    if percent >= MEMORY_WARNING_PERCENT {
        let text = format!(
            "{percent} % of the memory for torrents and peers is used. When it is full, new peers are answered, but \
             not stored."
        );
        let remedy = "Raise limits.memory_mib, or limit peers per address.";
        items.push(HealthItem::new(Level::Warning, HealthArea::Memory, text).with_remedy(remedy));
    }
}

/// Failures of records and journal that were annotated.
#[derive(Default)]
pub(super) struct Failures {
    /// Failures so far, and the time of the last annotation.
    records: (u64, u64),
    journal: (u64, u64),
}

impl Failures {
    pub(super) fn annotate(&mut self, api: &Api) {
        let now = since_epoch(SystemTime::now()).as_secs();
        let is_new = |known: &mut (u64, u64), count: u64| {
            let is_new = count > known.0 && now >= known.1 + FAILURE_PERIOD_S;
            *known = (count, if is_new { now } else { known.1 });
            is_new
        };
        if is_new(&mut self.records, api.records().health().serious_failures()) {
            let text = "The records could not be written";
            api.hub().annotate(AnnotationKind::RecordsFailed, text);
        }
        let failures = api.sources().subsystems.read("journal").map_or(0, |it| it.write_failures());
        if is_new(&mut self.journal, failures) {
            let text = "The journal of swarms could not be written";
            api.hub().annotate(AnnotationKind::JournalFailed, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn certificates_warn_before_they_expire() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100 * 86_400);
        let hours = |hours: i64| {
            let shift = Duration::from_secs(hours.unsigned_abs() * 3600);
            if hours < 0 { now - shift } else { now + shift }
        };
        // Name, days of its lifetime, hours that are left.
        let all = [
            ("far", 90, 24 * 40),
            ("near", 90, 24 * 3 + 1),
            ("today", 90, 5),
            ("late", 90, -30),
            ("now", 90, -1),
            ("short, fresh", 6, 24 * 6),
            ("short, to renew", 6, 24 * 2 - 1),
        ];
        let validity = |days: i64, left: i64| hours(left - 24 * days)..hours(left);
        let validities = all.map(|(name, days, left)| (name.to_owned(), validity(days, left)));
        let mut items = Vec::new();
        certificates(&validities.into(), now, &mut items);
        let texts: Vec<_> = items.iter().map(|item| (item.level, item.text.as_str())).collect();
        assert_eq!(
            texts,
            [
                (Level::Error, "The certificate late expired 1 day ago: clients refuse it."),
                (Level::Warning, "The certificate near expires in 3 days."),
                (
                    Level::Error,
                    "The certificate now expired less than a day ago: clients refuse it."
                ),
                (Level::Warning, "The certificate short, to renew expires in 1 day."),
                (Level::Warning, "The certificate today expires in less than a day."),
            ]
        );
    }
}
