//! The XDP program before the UDP sockets: sets it up, keeps it up to date, and counts what it does.
//!
//! It is opened where sockets are bound, because it needs the same rights. A thread of its own writes, four
//! times a second, which connection ids are valid, what is banned and blocked, and at which addresses it
//! serves. The program's counts become those of the listeners, so that metrics are complete.

mod check;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admin::MetricSources;
use anyhow::{Context, Result, bail};
use front::Clock;
use net::{Engine, UdpSocket, UdpWorker};
use tracing::{debug, info, warn};
use tracker::counters::{DropReason, Listener, Protocol, WorkerMetrics};
use tracker::{RequestKind, Tracker};
use types::{Family, limits};
use wire::udp;
use xdp::{
    ConnectRate, Control, HandOver, IdSlices, InheritedXdp, ListenerCounts, ProtocolNumbers, Rules,
    TakeOver, WorkerQueues, Xdp, XdpOptions, XdpStatus,
};

use super::listeners::{BoundListener, BoundListeners};
pub(super) use check::check;
use config::{Config, worker_count};

/// How often the program gets what has changed.
pub(super) const PERIOD: Duration = Duration::from_millis(250);
/// In how many steps addresses and interfaces are looked at once: once a second.
const REFRESH_STEPS: u32 = 4;

/// The numbers that the program needs to answer connects before the sockets.
const PROTOCOL_NUMBERS: ProtocolNumbers = ProtocolNumbers {
    connect_magic: udp::MAGIC,
    connect_action: udp::action::CONNECT,
    connect_reply_action: udp::action::CONNECT,
    head_len: udp::HEAD_LEN as u16,
};

/// The program, attached to its interfaces, before anything is served.
pub(super) struct OpenXdp {
    xdp: Xdp,
    /// The listeners that it knows, in its order.
    listeners: Vec<Listener>,
}

/// The program if there is one, and why there is none although the engine has one.
type Outcome = (Option<OpenXdp>, Option<String>);

/// Sets up the XDP program if the engine has one. If that fails, `config` gets the engine of the sockets,
/// unless the program is required.
pub(super) fn open(
    config: &mut Config,
    bound: &BoundListeners,
    inherited: InheritedXdp,
) -> Result<Outcome> {
    if !config.engine.has_program() || bound.udp.is_empty() {
        return Ok((None, None));
    }
    // Each worker has a socket of every listener, or of none.
    let sockets = bound.udp.iter().map(|listener| listener.sockets.len());
    let workers = sockets.max().unwrap_or(0).min(worker_count(config.udp_workers));
    let error = match Xdp::open(&options(config, workers)?, listeners(bound), inherited) {
        Ok(xdp) => {
            xdp.warnings.iter().for_each(|warning| warn!("{warning}"));
            for it in xdp.control.interfaces() {
                info!(
                    interface = it.name,
                    driver = it.driver,
                    mode = it.mode.label(),
                    queues = it.queues,
                    "attached the XDP program"
                );
            }
            let known = bound.udp.iter().take(limits::XDP_LISTENERS_MAX);
            let listeners = known.filter_map(listener).collect();
            if bound.udp.len() > limits::XDP_LISTENERS_MAX {
                warn!(
                    "more than {} UDP listeners: the others are served without the XDP program",
                    limits::XDP_LISTENERS_MAX
                );
            }
            return Ok((Some(OpenXdp { xdp, listeners }), None));
        }
        Err(error) => error,
    };
    let engine = config.engine.label();
    if !error.verifier_log.is_empty() {
        debug!(log = error.verifier_log, "the kernel's verifier refused the XDP program");
    }
    if config.xdp.required {
        bail!("xdp.required: engine {engine} is not available: {error}");
    }
    config.engine = config.engine.of_sockets();
    warn!("engine {engine} is not available, serving with {}: {error}", config.engine.label());
    Ok((None, Some(format!("engine {engine} is not available: {error}"))))
}

/// Returns how the program is set up for `config`, and how many workers its queues are distributed among.
pub(super) fn options(config: &Config, workers: usize) -> Result<XdpOptions> {
    let mut secret = [0; 3];
    for word in &mut secret {
        *word = getrandom::u64().context("cannot get random numbers from the system")?;
    }
    let xdp = &config.xdp;
    Ok(XdpOptions {
        interfaces: xdp.interfaces.clone(),
        mode: xdp.mode,
        zero_copy: xdp.zero_copy,
        frames: xdp.frames,
        vlans: xdp.vlans.clone(),
        protocol: PROTOCOL_NUMBERS,
        secret,
        redirect: config.engine == Engine::Xdp,
        workers,
    })
}

fn listener(bound: &BoundListener<UdpSocket>) -> Option<Listener> {
    let listener_policy = bound.group.listener_policy;
    let address = bound.sockets.first()?.local_addr();
    Some(Listener { protocol: Protocol::Udp, address, listener_policy })
}

/// Returns the listeners as the program needs to know them.
fn listeners(bound: &BoundListeners) -> Vec<xdp::Listener> {
    let listener = |bound: &BoundListener<UdpSocket>| {
        let address = listener(bound)?.address;
        Some(xdp::Listener { address, is_direct: bound.group.simple_proxies.is_none() })
    };
    bound.udp.iter().filter_map(listener).collect()
}

/// Returns the engine of the UDP listeners, and where its program runs.
pub(super) fn engine_text(config: &Config, xdp: Option<&OpenXdp>) -> String {
    let engine = config.engine.resolve().label();
    let Some(xdp) = xdp else { return engine.into() };
    let interfaces = xdp.xdp.control.interfaces();
    let texts = interfaces.iter().map(|it| format!("{} on {}", it.mode.label(), it.name));
    format!("{engine}: {}", texts.collect::<Vec<_>>().join(", "))
}

/// The rules of the program, which a reload changes.
#[derive(Clone)]
pub(super) struct SharedRules(Arc<Mutex<Rules>>);

impl SharedRules {
    pub(super) fn new(config: &Config) -> Self {
        Self(Arc::new(Mutex::new(rules(config))))
    }

    /// Applies what a reload can change.
    pub(super) fn set(&self, config: &Config) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rules(config);
    }

    fn get(&self) -> Rules {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn rules(config: &Config) -> Rules {
    let limits = &config.limits;
    let rate = limits.connects;
    let rate = ConnectRate {
        per_s: rate.per_s,
        burst: rate.burst.max(rate.per_s),
        prefix_v4: limits.prefix_v4,
        prefix_v6: limits.prefix_v6,
    };
    Rules {
        answers: config.xdp.answer_connects,
        // Otherwise bans need each of them.
        verifies: config.bans.bad_connection_ids_per_min == 0,
        rate: Some(rate).filter(|rate| rate.per_s > 0),
        exempt: limits.exempt.prefixes(),
        reply_mac: config.xdp.reply_mac,
    }
}

/// What a new process gets of the sockets: copies of them, and what leaves the AF_XDP sockets.
pub(super) type HandOverParts = (Vec<(String, OwnedFd)>, Option<HandOver>);

pub(super) fn hand_over_parts(
    bound: &BoundListeners,
    xdp: Option<&OpenXdp>,
) -> Result<HandOverParts> {
    let mut descriptors = bound.descriptors()?;
    let Some(xdp) = xdp else { return Ok((descriptors, None)) };
    let (of_xdp, queues) = xdp.hand_over()?;
    descriptors.extend(of_xdp);
    Ok((descriptors, Some(queues)))
}

impl OpenXdp {
    /// Returns what an upgrade hands over: descriptors with their names, and what stops serving them.
    pub(super) fn hand_over(&self) -> io::Result<(Vec<(String, OwnedFd)>, HandOver)> {
        Ok((self.xdp.descriptors()?, self.xdp.hand_over()))
    }

    /// Takes what completes an upgrade in the process that takes over.
    pub(super) fn take_over(&mut self) -> TakeOver {
        std::mem::take(&mut self.xdp.take_over)
    }

    /// Sets the list of blocked networks of a UDP worker. Returns its AF_XDP sockets.
    pub(super) fn equip(&mut self, number: usize, worker: &mut UdpWorker) -> WorkerQueues {
        worker.blocks = Some(self.xdp.control.blocks());
        self.xdp.queues.get_mut(number).map(std::mem::take).unwrap_or_default()
    }

    /// Returns what keeps the program up to date.
    pub(super) fn updater(
        self,
        rules: SharedRules,
        tracker: Arc<Tracker>,
        clock: Clock,
        sources: &MetricSources,
    ) -> Updater {
        let status = Arc::<Mutex<XdpStatus>>::default();
        let shown = Arc::clone(&status);
        let read = move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.subsystems.add("xdp", read);
        let metrics = self.listeners.into_iter().map(|listener| {
            let family = Family::of(listener.address.ip());
            (family, sources.registry.register(listener))
        });
        Updater {
            control: self.xdp.control,
            metrics: metrics.collect(),
            shared_rules: rules,
            rules: None,
            bans_version: 0,
            do_bans_fit: true,
            steps: 0,
            tracker,
            clock,
            status,
        }
    }
}

/// Keeps the program up to date.
pub(super) struct Updater {
    control: Control,
    /// The counters of each listener, with its family.
    metrics: Vec<(Family, WorkerMetrics)>,
    shared_rules: SharedRules,
    /// Those that the program has.
    rules: Option<Rules>,
    /// The version of the bans that the program has.
    bans_version: u64,
    /// Whether the program knows of all of them.
    do_bans_fit: bool,
    steps: u32,
    tracker: Arc<Tracker>,
    clock: Clock,
    /// What management shows.
    status: Arc<Mutex<XdpStatus>>,
}

impl Updater {
    /// Tells the program what has changed, and counts what it has done. Call it every [`PERIOD`].
    pub(super) fn step(&mut self) {
        let slices = self.tracker.connection_id_slices(self.clock.now());
        // Before endpoints: without ids, all that comes to them would be dropped.
        self.control.set_ids(&IdSlices {
            key: slices.key,
            current: slices.current,
            accepts_next: slices.accepts_next,
        });
        if let Some(bans) = self.tracker.bans().ranges(self.bans_version) {
            self.bans_version = bans.version;
            let do_fit = self.control.set_bans(&bans.v4, &bans.v6);
            if std::mem::replace(&mut self.do_bans_fit, do_fit) && !do_fit {
                warn!(
                    "more bans than the XDP program can hold, apart from IPv4 networks of a /24 and \
                     more: the sockets answer connects"
                );
            }
        }
        self.control.apply_blocks();
        let has_new_rules = self.apply_rules(slices.has_previous_key);
        if has_new_rules || self.steps.is_multiple_of(REFRESH_STEPS) {
            self.control.refresh().iter().for_each(|change| info!("{change}"));
        }
        self.steps = self.steps.wrapping_add(1);
        self.count();
    }

    /// Applies the rules if they have changed, and returns whether they have.
    fn apply_rules(&mut self, has_previous_key: bool) -> bool {
        let mut rules = self.shared_rules.get();
        // The program knows one key. While a cluster's secret changes, the workers verify ids.
        rules.verifies &= !has_previous_key;
        if self.rules.as_ref() == Some(&rules) {
            return false;
        }
        let has_rate = rules.rate.is_some() && rules.answers;
        self.rules = Some(rules.clone());
        if !self.control.set_rules(rules) && has_rate {
            warn!(
                "limits.exempt has more networks than the XDP program can hold: the sockets answer \
                 connects while limits.connects_per_s is on"
            );
        }
        true
    }

    fn count(&mut self) {
        let counts = self.control.take_counts();
        for ((family, metrics), counts) in self.metrics.iter_mut().zip(counts) {
            add(metrics, *family, &counts);
            metrics.publish();
        }
        let status = XdpStatus::new(self.control.interfaces());
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Adds what the program has done to a listener's counters. What it passed or steered, a worker counts.
fn add(metrics: &mut WorkerMetrics, family: Family, counts: &ListenerCounts) {
    let counters = &mut metrics.counters;
    let (family, connect) = (family.index(), RequestKind::Connect.index());
    counters.requests[family][connect] += counts.connects + counts.over_rate;
    counters.responses[family][connect] += counts.connects;
    for (reason, count) in [
        (DropReason::Banned, counts.banned),
        (DropReason::ConnectRate, counts.over_rate),
        (DropReason::BadConnectionId, counts.bad_connection_ids),
        (DropReason::WrongMagic, counts.wrong_magic),
        (DropReason::TooShort, counts.too_short),
    ] {
        counters.drops[reason.index()] += count;
    }
    // A connect and its reply are as long as the head of a request.
    let answered = counts.connects * u64::from(PROTOCOL_NUMBERS.head_len);
    counters.bytes_in += answered + counts.dropped_bytes;
    counters.bytes_out += answered;
}
