//! The XDP program before the UDP sockets: sets it up, keeps it up to date, and counts what it does.
//!
//! It is opened where sockets are bound, because it needs the same rights. A thread of its own writes, four
//! times a second, which connection ids are valid, what is banned and blocked, and at which addresses it
//! serves. The program's counts become those of the listeners, so that metrics are complete.

mod check;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use front::Clock;
use net::process::lower_priority;
use net::{Engine, UdpSocket, UdpWorker};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};
use tracker::counters::{DropReason, Listener, Protocol, WorkerMetrics};
use tracker::{RequestKind, Tracker};
use types::{Family, limits};
use wire::udp;
use xdp::{
    ConnectRate, Control, HandOver, IdSlices, InheritedXdp, ListenerCounts, ProtocolNumbers, Rules,
    SetupError, TakeOver, WorkerQueues, Xdp, XdpOptions, XdpStatus, is_link_name,
};

use super::listeners::{BoundListener, BoundListeners};
use super::module::{Findings, Module, Opening, Running};
use super::upgrade::Upgrader;
use config::{Config, worker_count};

const PERIOD: Duration = Duration::from_millis(250);
/// In how many steps addresses and interfaces are looked at once: once a second.
const REFRESH_STEPS: u32 = 4;
/// The time that workers may take to leave their AF_XDP sockets. They wake up four times a second.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The numbers that the program needs to answer connects before the sockets.
const PROTOCOL_NUMBERS: ProtocolNumbers = ProtocolNumbers {
    connect_magic: udp::MAGIC,
    connect_action: udp::action::CONNECT,
    connect_reply_action: udp::action::CONNECT,
    head_len: udp::HEAD_LEN as u16,
};

#[derive(Default)]
pub(super) struct XdpModule {
    program: Option<OpenXdp>,
    /// Exchanges the program for that of the old process, in an upgrade.
    take_over: TakeOver,
    /// Leaves the AF_XDP sockets to a new process.
    hand_over: Option<HandOver>,
    rules: Option<watch::Sender<Rules>>,
}

impl Module for XdpModule {
    fn check(&self, config: &Config, is_running: bool, findings: &mut Findings) {
        check::check(config, is_running, findings);
    }

    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        let inherited = InheritedXdp::from_inherited(opening.inherited);
        if !opening.config.engine.has_program() || opening.bound.udp.is_empty() {
            return Ok(());
        }
        let bound = opening.bound;
        // Each worker has a socket of every listener, or of none.
        let sockets = bound.udp.iter().map(|listener| listener.sockets.len());
        let workers = sockets.max().unwrap_or(0).min(worker_count(opening.config.udp_workers));
        match Xdp::open(&options(opening.config, workers)?, listeners(bound), inherited) {
            Ok(mut xdp) => {
                self.take_over = std::mem::take(&mut xdp.take_over);
                let program = OpenXdp::new(xdp, bound);
                opening.engine.text = Some(program.engine_text(opening.config));
                self.program = Some(program);
            }
            Err(error) => opening.engine.fallback = Some(fall_back(opening.config, &error)?),
        }
        Ok(())
    }

    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        running.upgrader.descriptors.extend(program.xdp.descriptors()?);
        self.hand_over = Some(program.xdp.hand_over());
        self.rules = Some(watch::Sender::new(rules(running.config)));
        Ok(())
    }

    fn equip(&mut self, number: usize, worker: &mut UdpWorker) -> Option<WorkerQueues> {
        let program = self.program.as_mut()?;
        worker.blocks = Some(program.xdp.control.blocks());
        program.xdp.queues.get_mut(number).map(std::mem::take)
    }

    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        let (Some(program), Some(rules)) = (self.program.take(), &self.rules) else {
            return Ok(());
        };
        let mut updater = program.updater(rules.subscribe(), running);
        updater.step();
        let stop = running.workers.stop_flag();
        let steps = running.workers.heartbeat("xdp");
        running.workers.start("xdp", lower_priority, move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(PERIOD);
                updater.step();
                steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn take_over(&mut self, upgrader: &mut Upgrader) {
        let take_over = std::mem::take(&mut self.take_over);
        let failures = take_over.complete(|link, program| upgrader.exchange_program(link, program));
        failures.iter().for_each(|failure| error!("{failure}"));
        if !failures.is_empty() {
            // Copies of links would keep the old program attached, with ids that nothing renews.
            upgrader.descriptors.retain(|(name, _)| !is_link_name(name));
        }
    }

    fn configure(&mut self, config: &Config) {
        if let Some(shared) = &self.rules {
            shared.send_replace(rules(config));
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let has_left = self.hand_over.as_ref().is_none_or(|it| it.begin(HAND_OVER_TIMEOUT));
        ensure!(has_left, "a UDP worker did not leave its AF_XDP sockets");
        Ok(())
    }
}

struct OpenXdp {
    xdp: Xdp,
    /// The listeners that it knows, in its order.
    listeners: Vec<Listener>,
}

/// Sets the engine of the sockets in `config`, because there is no program. Returns the reason, for users.
fn fall_back(config: &mut Config, error: &SetupError) -> Result<String> {
    let engine = config.engine.label();
    if !error.verifier_log.is_empty() {
        debug!(log = error.verifier_log, "the kernel's verifier refused the XDP program");
    }
    ensure!(!config.xdp.required, "xdp.required: engine {engine} is not available: {error}");
    config.engine = config.engine.of_sockets();
    warn!("engine {engine} is not available, serving with {}: {error}", config.engine.label());
    Ok(format!("engine {engine} is not available: {error}"))
}

fn options(config: &Config, workers: usize) -> Result<XdpOptions> {
    let mut secret = [0; 3];
    for word in &mut secret {
        *word = getrandom::u64().context("cannot get random numbers from the system")?;
    }
    let xdp = &config.xdp;
    Ok(XdpOptions {
        interfaces: xdp.interfaces.clone(),
        mode: xdp.mode,
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

fn listeners(bound: &BoundListeners) -> Vec<xdp::Listener> {
    let listener = |bound: &BoundListener<UdpSocket>| {
        let address = listener(bound)?.address;
        Some(xdp::Listener { address, is_direct: bound.group.simple_proxies.is_none() })
    };
    bound.udp.iter().filter_map(listener).collect()
}

/// Returns the rules of the program, which a reload changes.
fn rules(config: &Config) -> Rules {
    let limits = &config.limits;
    let rate = limits.connects;
    let rate = ConnectRate {
        per_s: rate.per_s,
        burst: rate.burst.max(rate.per_s),
        prefix_v6: limits.prefix_v6,
    };
    Rules {
        answers: config.xdp.answer_connects,
        verifies: true,
        rate: Some(rate).filter(|rate| rate.per_s > 0),
        exempt: limits.exempt.prefixes(),
        reply_mac: config.xdp.reply_mac,
    }
}

impl OpenXdp {
    fn new(xdp: Xdp, bound: &BoundListeners) -> Self {
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
        Self { xdp, listeners }
    }

    fn engine_text(&self, config: &Config) -> String {
        let interfaces = self.xdp.control.interfaces();
        let texts = interfaces.iter().map(|it| format!("{} on {}", it.mode.label(), it.name));
        format!("{}: {}", config.engine.resolve().label(), texts.collect::<Vec<_>>().join(", "))
    }

    fn updater(self, rules: watch::Receiver<Rules>, running: &Running<'_>) -> Updater {
        let sources = running.workers.metric_sources();
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
            tracker: Arc::clone(&running.shared.tracker),
            clock: running.shared.clock,
            status,
        }
    }
}

struct Updater {
    control: Control,
    metrics: Vec<(Family, WorkerMetrics)>,
    shared_rules: watch::Receiver<Rules>,
    rules: Option<Rules>,
    bans_version: u64,
    do_bans_fit: bool,
    steps: u32,
    tracker: Arc<Tracker>,
    clock: Clock,
    status: Arc<Mutex<XdpStatus>>,
}

impl Updater {
    /// Tells the program what has changed, and counts what it has done. Call it every [`PERIOD`].
    fn step(&mut self) {
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

    fn apply_rules(&mut self, has_previous_key: bool) -> bool {
        let mut rules = self.shared_rules.borrow().clone();
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
