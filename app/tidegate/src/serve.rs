//! Builds the tracker, keeps it running, and shuts it down.
//!
//! The main thread takes over inherited sockets, binds the others, drops privileges, gives up the rights
//! it no longer needs, starts the workers, and then waits for events: signals, changed files, commands
//! of the API, and workers that end. A worker that ends unasked takes the process down, because half a
//! tracker would look alive to its supervisor.
//!
//! Subsystems that a build or a configuration may lack are a list in [`mod@modules`]. Each of them implements
//! [`module::Module`]; this file and [`serving`] call its phases.

mod approval;
mod build;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod confine;
#[cfg(feature = "geo")]
mod geo;
mod handoff;
#[cfg(feature = "jwt")]
mod jwt;
mod listeners;
mod lists;
mod load;
mod log;
pub(crate) mod module;
mod modules;
mod outbound;
mod overrides;
mod places;
mod program;
mod reload;
mod secret;
mod serving;
mod sources;
mod startup;
mod state;
mod supervisor;
#[cfg(feature = "journal")]
mod swarms;
pub(crate) mod time;
mod tokens;
mod transfer;
mod upgrade;
#[cfg_attr(not(feature = "webhooks"), path = "without/webhooks.rs")]
mod webhooks;
pub(crate) mod workers;
#[cfg_attr(not(all(target_os = "linux", feature = "xdp")), path = "without/xdp.rs")]
mod xdp;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use admin::records::Writer;
use admin::{Api, Records, Service};
use anyhow::{Context, Result};
use net::process::{self, InheritedSockets, Launcher};
use net::tls::TlsConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use tracing::warn;

use crate::ConfigSource;
use crate::permissions::{STATE_DIRECTORY, create_state_directory};
use build::{check_leftover, new_tracker};
pub(crate) use check::check;
use config::{Config, Settings};
use handoff::HandoffState;
use listeners::{BoundListeners, bind};
use log::Log;
pub(crate) use module::Findings;
use module::{EngineStatus, Loaded, Loading, Membership, Opening, Shared};
use modules::{Modules, modules};
use reload::Reloader;
use serving::{Event, Serving, Start};
use sources::metric_sources;
use startup::LocalHosts;
use supervisor::Supervisor;
use time::unix_ms;
use transfer::{SwarmSource, SwarmTarget};
use upgrade::{OldProcess, Upgrader};
use workers::{ThreadExit, Workers};

/// Serves until a signal stops the process. `source` is where `settings` came from, for reloads.
pub(crate) fn serve(source: ConfigSource, settings: Settings, config: Config) -> Result<()> {
    let log = Log::start(&config);
    places::check(&config, source.file.as_deref())?;
    // Before anything else is opened: inherited sockets are known only by their numbers.
    let mut inherited = InheritedSockets::from_environment(listeners::SOCKET_NAMES)?;
    let mut origin = Origin::new(&mut inherited)?;
    let mut modules = modules();
    let membership = join(&mut modules, &config)?;
    origin.set_keys(&config, membership.as_ref())?;
    config.warnings().iter().for_each(|warning| warn!("{warning}"));
    let shared_secrets = membership.as_ref().map(|membership| membership.shared);
    let tracker = Arc::new(new_tracker(&config, &origin.handoff, shared_secrets)?);
    let reloader = Reloader::new(source, settings, config, log, tracker)?;
    let bound = bind(&reloader.config, &mut inherited)?;
    let node = membership.map(|membership| membership.node);
    Opened::open(origin, node, modules, reloader, bound, inherited)?.serve()
}

struct Origin {
    launcher: io::Result<Launcher>,
    supervisor: Supervisor,
    old_process: Option<OldProcess>,
    handoff: HandoffState,
    signals: Signals,
}

impl Origin {
    /// Receives the state of the old process, if there is one. Call before there are threads or fewer rights.
    fn new(inherited: &mut InheritedSockets) -> Result<Self> {
        if let Err(error) = process::raise_descriptor_limit() {
            warn!(%error, "cannot raise the open-file limit");
        }
        let launcher = Launcher::spawn(::xdp::exchange_program);
        let supervisor = Supervisor::from_environment();
        let mut old_process = OldProcess::from_inherited(inherited);
        let handoff = old_process.as_mut().map_or_else(HandoffState::fresh, OldProcess::handoff)?;
        // These may arrive early, and must not end the process. SIGTERM and SIGINT may, until it serves.
        let signals = Signals::new([SIGHUP, SIGUSR2]).context("cannot listen to signals")?;
        Ok(Self { launcher, supervisor, old_process, handoff, signals })
    }

    /// Replaces the keys that other processes need, too.
    fn set_keys(&mut self, config: &Config, membership: Option<&Membership>) -> Result<()> {
        if let Some(Membership { shared, session_key, .. }) = membership {
            self.handoff.connection_ids = shared.connection_ids;
            self.handoff.sessions = *session_key;
        } else {
            self.handoff.sessions = secret::session_key(config, self.handoff.sessions)?;
        }
        Ok(())
    }
}

fn join(modules: &mut Modules, config: &Config) -> Result<Option<Membership>> {
    let mut membership = None;
    for module in modules {
        membership = module.join(config)?.or(membership);
    }
    Ok(membership)
}

/// A process that has everything open, and has not entered the sandbox.
struct Opened {
    origin: Origin,
    node: Option<u8>,
    modules: Modules,
    reloader: Reloader,
    bound: BoundListeners,
    records: Arc<Records>,
    writer: Writer,
    engine: EngineStatus,
    loaded: Loaded,
}

impl Opened {
    /// Opens what needs the rights of the start, switches to the configured user, and reads the rest.
    fn open(
        mut origin: Origin,
        node: Option<u8>,
        mut modules: Modules,
        mut reloader: Reloader,
        bound: BoundListeners,
        mut inherited: InheritedSockets,
    ) -> Result<Self> {
        let is_upgrade = origin.old_process.is_some();
        create_state_directory(&reloader.config)?;
        let mut opening = Opening {
            config: &mut reloader.config,
            bound: &bound,
            inherited: &mut inherited,
            tracker: &reloader.tracker,
            node,
            engine: EngineStatus::default(),
            accounts: None,
        };
        for module in &mut modules {
            module.open(&mut opening)?;
        }
        let engine = opening.engine;
        check_leftover(inherited, is_upgrade)?;
        confine::become_user(&reloader.config)?;
        let (records, mut writer) = state::open(&reloader.config)?;
        reloader.override_settings(writer.settings().context(STATE_DIRECTORY)?)?;
        let mut loading = Loading {
            config: &reloader.config,
            certificates: &reloader.certificates,
            handoff: &mut origin.handoff,
            writer: &mut writer,
            is_upgrade,
            loaded: Loaded::default(),
        };
        for module in &mut modules {
            module.load(&mut loading)?;
        }
        let loaded = loading.loaded;
        Ok(Self { origin, node, modules, reloader, bound, records, writer, engine, loaded })
    }

    /// Enters the sandbox, starts threads, and serves until a signal stops the process.
    fn serve(mut self) -> Result<()> {
        // Before the sandbox, which may not ask for the machine's addresses.
        let hosts = LocalHosts::of_machine(&self.reloader.config, &self.reloader.certificates);
        let urls = self.bound.announce_urls(&hosts);
        let engine = self.engine_text();
        self.enter_sandbox();
        let shared = self.restore()?;
        let is_upgrade = self.origin.old_process.is_some();
        let Self { origin, mut bound, reloader, .. } = self;
        let Origin { mut old_process, handoff, launcher, .. } = origin;
        let (events, event_receiver) = channel();
        listen_to_signals(origin.signals, events.clone())?;
        let sockets = bound.descriptors()?;
        let sources = metric_sources(&shared, &reloader.access.folders);
        sources::show_engine(&sources, engine.clone(), self.engine.fallback);
        sources::count_losses(&sources, &bound.udp);
        let mut workers = Workers::new(sources, shared.clock, report_exits(events.clone()));
        let (api, first_token) =
            state::start(&mut workers, &reloader.config, &shared, self.writer, &urls, &events)?;
        let startup_text = bound.startup_text(&reloader.config, &engine, &urls, &first_token);
        // Before it is served, which takes samples.
        if let Some(dashboard) = old_process.as_mut().and_then(OldProcess::take_dashboard) {
            api.take_over(&dashboard);
        }
        let admin_listeners = std::mem::take(&mut bound.admin);
        workers.start_admin(admin_listeners, service(&workers, &reloader, &api))?;
        state::annotate_start(&api, is_upgrade);
        let swarms = SwarmSource::new(&shared.tracker, &shared.feed, shared.clock);
        let serving = Serving {
            shared,
            node: self.node,
            modules: self.modules,
            workers,
            reloader,
            upgrader: Upgrader::new(launcher, sockets, handoff, swarms, Arc::clone(&api)),
            supervisor: origin.supervisor,
            api,
            events,
        };
        serving.run(Start { bound, startup_text, old_process }, &event_receiver)
    }

    fn engine_text(&self) -> String {
        let of_sockets = || self.reloader.config.engine.resolve().label().to_owned();
        self.engine.text.clone().unwrap_or_else(of_sockets)
    }

    fn enter_sandbox(&mut self) {
        let reloader = &mut self.reloader;
        let file = reloader.source.file.as_deref();
        let sandbox = confine::confine(&reloader.config, file, &self.loaded.ports);
        reloader.sandbox = sandbox.map(Arc::new);
    }

    /// Fills the tracker with what is recorded, and with the swarms of the old process.
    fn restore(&mut self) -> Result<Shared> {
        let began_ms = unix_ms();
        let Reloader { config, tracker, certificates, .. } = &self.reloader;
        let Origin { handoff, old_process, .. } = &mut self.origin;
        if self.node.is_some() {
            handoff.align_clock(began_ms);
        }
        let clock = handoff.clock();
        state::fill(config, tracker, &self.writer, clock)?;
        let target = SwarmTarget::new(tracker, clock, config.swarms.is_some());
        let upgrade_stats = Arc::clone(&target.stats);
        let reception = Arc::clone(&target.reception);
        let has_swarms = match old_process {
            Some(old) => old.receive_swarms(target, handoff.swarms)?,
            None => false,
        };
        Ok(Shared {
            tracker: Arc::clone(tracker),
            certificates: Arc::clone(certificates),
            clock,
            records: Arc::clone(&self.records),
            feed: Arc::default(),
            upgrade_stats,
            reception,
            // Without the swarms of the old process, a node of a cluster reads all of the log.
            restored_ms: has_swarms.then_some(began_ms).or(self.loaded.restored_ms),
        })
    }
}

/// Passes signals to the main thread. A second signal to stop ends the process at once.
fn listen_to_signals(mut signals: Signals, events: Sender<Event>) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        signals.add_signal(signal).context("cannot listen to signals")?;
    }
    let thread = std::thread::Builder::new().name("signals".into());
    let forward = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let stops = signal == SIGTERM || signal == SIGINT;
            if stops && std::mem::replace(&mut stopping, true) {
                std::process::exit(1);
            }
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread.spawn(forward).context("cannot start a thread")?;
    Ok(())
}

fn report_exits(events: Sender<Event>) -> impl Fn(ThreadExit) + Send + Sync {
    move |ended| {
        let _ = events.send(Event::ThreadExit(ended));
    }
}

fn service(workers: &Workers, reloader: &Reloader, api: &Arc<Api>) -> Service {
    let config = &reloader.config;
    let tls = || TlsConfig::new(&reloader.certificates).server_config();
    Service {
        sources: Arc::clone(workers.metric_sources()),
        api: Some(Arc::clone(api)),
        hosts: config.admin_hosts.clone(),
        metrics_token: config.metrics_token,
        tls: config.admin_tls.then(tls),
        lower_priority: workers::give_way,
    }
}
