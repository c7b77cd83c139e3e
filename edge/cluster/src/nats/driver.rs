//! The loop of the thread `cluster`: what happens goes to the node, and what the node decides is done.

mod cutting;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::{Event, Message, StatusCode, Subject};
use bytes::Bytes;
use serde::Deserialize;
use swarm::Encoder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::Stop;
use super::apply::{Blocks, Settling, Work};
use super::inputs::{Happened, Inputs, Lookup, Report};
use super::link::Link;
use super::log::Log;
use super::options::NatsOptions;
use super::reader::{Reading, StoredMessage};
use super::rows::Wanted;
use super::status::{Order, Status};
use super::streams::{self, StreamState};
use crate::host::{Host, PeerTimes, Rows};
use crate::node::{self, DropReason, Input, Node, Output, Time};

/// Period of look-ups of the stream while all is well.
const LOOKUP_PERIOD: Duration = Duration::from_secs(5);
/// The pause before they are looked up again after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Longest time for a stream to answer a look-up; doubled with repeated failures, up to eight times. A stream without
/// a leader gets one within some seconds, and does not answer requests from before.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(1);
/// Failures until it may take twice as long. A leader is elected within some 9 s: the question that finds it is not
/// to wait behind a long one.
const FAILURES_PER_DOUBLING: u32 = 4;
/// Period of sending sessions, following the policy and reading figures.
const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// Removals are remembered for one to two of these.
const REMOVALS_PERIOD: Duration = Duration::from_secs(swarm::REMOVALS_KEPT_S as u64);
/// Changes of WebTorrent peers that wait to be cut.
const WEB_CHANGES_MAX: usize = 1 << 18;
/// Reasons why connecting fails that the log says until it succeeds.
const FAILURES_MAX: usize = 4;
/// Longest time that the end waits for cut blocks to be stored.
const END_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longest time that the end waits for published messages to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// State that the driver shares with other tasks and threads.
pub(super) struct Shared {
    pub(super) status: Arc<Status>,
    pub(super) host: Arc<dyn Host>,
    /// Blocks to apply.
    pub(super) work: mpsc::Sender<Work>,
    /// Where other tasks and threads report.
    pub(super) reports: mpsc::UnboundedSender<Report>,
    /// Replicated rows, and where repairs are ordered.
    pub(super) rows: Arc<dyn Rows>,
    pub(super) repairs: mpsc::UnboundedSender<Wanted>,
}

pub(super) struct Driver<'a> {
    link: Link,
    options: NatsOptions,
    /// Where acknowledgements go.
    inbox: String,
    node: Node,
    encoder: Encoder<'a>,
    shared: Shared,
    outputs: VecDeque<(Output, Option<Came>)>,
    published: LogMessage,
    log: Log,
    /// The lifetimes that the store and the log follow.
    peer_times: Option<PeerTimes>,
    slow_at: Instant,
    forgot_at: Instant,
    lookup_at: Option<Instant>,
    looking_up: Option<JoinHandle<()>>,
    /// Why reading the log ended, until something is read again.
    read_failure: String,
    /// Look-ups that failed since the last one that did not.
    failed_lookups: u32,
    has_connected: bool,
    /// Why connecting failed, as far as the log says it.
    failures: Vec<String>,
    /// The failure that the log said last, so that it says it once.
    complaint: Option<String>,
    ending: Option<Instant>,
}

/// The message that an input came with, and its place among those to be applied.
#[derive(Debug)]
struct Came {
    message: Bytes,
    permit: Option<mpsc::OwnedPermit<Work>>,
}

/// The message that is published to the log until it is stored.
#[derive(Debug, Default)]
struct LogMessage {
    ticket: u64,
    /// Random, so that no other node uses it first.
    id: String,
}

/// An acknowledgement of JetStream.
#[derive(Deserialize)]
pub(super) struct PubAck {
    #[serde(default)]
    seq: u64,
}

impl PubAck {
    /// Returns the sequence that a message was stored at, if it was stored.
    pub(super) fn sequence(answer: &Message) -> Option<u64> {
        let ack = serde_json::from_slice::<Self>(&answer.payload).ok()?;
        (ack.seq > 0).then_some(ack.seq)
    }
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        link: Link,
        options: NatsOptions,
        inbox: String,
        node: node::Options,
        encoder: Encoder<'a>,
        shared: Shared,
    ) -> Self {
        Self {
            link,
            options,
            inbox,
            node: Node::new(node),
            encoder,
            shared,
            outputs: VecDeque::new(),
            published: LogMessage::default(),
            log: Log::default(),
            peer_times: None,
            slow_at: Instant::now(),
            forgot_at: Instant::now(),
            lookup_at: None,
            looking_up: None,
            read_failure: String::new(),
            failed_lookups: 0,
            has_connected: false,
            failures: Vec::new(),
            complaint: None,
            ending: None,
        }
    }

    /// Runs until it is stopped.
    pub(super) async fn run(&mut self, inputs: &mut Inputs) {
        self.follow_policy();
        self.shared.host.store().keep_web_changes(WEB_CHANGES_MAX);
        self.shared.host.store().remember_removals(true);
        loop {
            let mut readings = self.log.readings.take();
            let happened = inputs.next(&mut readings, &self.shared.work).await;
            self.log.readings = readings;
            self.handle(happened);
            self.act().await;
            if self.is_at_end() {
                return self.leave().await;
            }
        }
    }

    fn handle(&mut self, happened: Happened) {
        match happened {
            Happened::Event(event) => self.handle_event(event),
            Happened::Acknowledged(message) => self.handle_acknowledgement(&message),
            Happened::Live(message) => self.handle_live(message),
            Happened::Heartbeat(message) => match self.link.origin("h", &message) {
                Ok(from) => {
                    self.note_rows();
                    self.input(Input::Heartbeat { from, body: &message.payload }, None);
                }
                Err(reason) => self.drop_heartbeat(&message, reason),
            },
            Happened::Reading(Reading::Message(message), permit) => {
                self.handle_logged(message, permit);
            }
            Happened::Reading(Reading::Ended(why), _) => self.handle_log_end(&why),
            Happened::Reported(Report::LookedUp(lookup)) => self.handle_lookup(lookup),
            Happened::Reported(Report::Dropped(reason)) => {
                self.input(Input::Dropped(reason), None);
            }
            Happened::Reported(Report::Repaired) => self.input(Input::Repaired, None),
            Happened::Reported(Report::Settled) => {
                self.input(Input::Settled, None);
                // From when the node is warm it keeps refreshes: a walk that begins now may have passed the peer.
                self.follow_policy();
            }
            Happened::Order(Order { node, is_ignored }) => {
                self.input(Input::Ignore { node, is_ignored }, None);
            }
            Happened::Flush => self.flush(),
            Happened::Tick => self.tick(),
            Happened::Stop(Stop::No) => {}
            Happened::Stop(Stop::HandedOver) => {
                self.flush();
                self.input(Input::Leave, None);
            }
            Happened::Stop(Stop::Now) => {
                self.flush();
                self.ending = Some(Instant::now() + END_TIMEOUT);
            }
        }
    }

    /// Passes an input to the node, and queues the node's outputs.
    fn input(&mut self, input: Input<'_>, came: Option<Came>) {
        let mut outputs = Vec::new();
        self.node.handle(now(), input, &mut outputs);
        let mut came = came;
        for output in outputs {
            let came = if matches!(output, Output::Apply { .. }) { came.take() } else { None };
            self.outputs.push_back((output, came));
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Connected => {
                let info = self.link.client.server_info();
                let server = format!("{} ({})", info.server_name, info.version);
                self.shared.status.set_server(Some(server), self.has_connected);
                (self.has_connected, self.complaint) = (true, None);
                self.failures.clear();
                self.log.is_new = true;
                self.input(Input::Connected, None);
                self.look_up(Duration::ZERO);
            }
            Event::Disconnected => {
                self.shared.status.set_server(None, false);
                self.log.stop();
                // Its answers will not come.
                self.looking_up.take().iter().for_each(JoinHandle::abort);
                self.input(Input::Disconnected, None);
            }
            Event::SlowConsumer(_) => self.shared.status.change(|overview| overview.slow += 1),
            Event::ServerError(error) => self.complain(&format!("NATS refused: {error}")),
            Event::ClientError(error) if !self.link.is_connected() => {
                self.warn_of_failure(&error.to_string());
            }
            Event::ClientError(_) | Event::LameDuckMode | Event::Draining | Event::Closed => {}
        }
    }

    /// Writes to the log why connecting fails: each reason once.
    fn warn_of_failure(&mut self, error: &str) {
        let error = error.strip_prefix("nats: ").unwrap_or(error);
        if self.failures.len() < FAILURES_MAX && !self.failures.iter().any(|it| it == error) {
            warn!("cannot connect to NATS: {error}; serving what this node knows");
            self.failures.push(error.to_owned());
        }
    }

    /// Writes a failure to the log, once until something else fails.
    fn complain(&mut self, text: &str) {
        if self.complaint.as_deref() != Some(text) {
            error!("{text}");
            self.complaint = Some(text.to_owned());
        }
    }

    fn handle_acknowledgement(&mut self, message: &Message) {
        let ticket = message.subject.rsplit('.').next().and_then(|ticket| ticket.parse().ok());
        let Some(ticket) = ticket else { return };
        if let Some(sequence) = PubAck::sequence(message) {
            self.input(Input::Stored { ticket, sequence }, None);
        } else if message.status == Some(StatusCode::NO_RESPONDERS) {
            // Perhaps there is no stream.
            self.look_up(RETRY_PAUSE);
        }
    }

    fn drop_heartbeat(&mut self, message: &Message, reason: DropReason) {
        match self.link.subjects.origin("h", &message.subject) {
            Some(node) if reason == DropReason::Access => self.input(Input::Refused { node }, None),
            _ => self.input(Input::Dropped(reason), None),
        }
    }

    fn handle_live(&mut self, message: Message) {
        match self.link.origin("l", &message) {
            Ok(from) => {
                let message = message.payload;
                let came = Came { message: message.clone(), permit: None };
                self.input(Input::Live { from, message: &message }, Some(came));
            }
            Err(reason) => self.input(Input::Dropped(reason), None),
        }
    }

    fn handle_logged(&mut self, stored: StoredMessage, permit: mpsc::OwnedPermit<Work>) {
        let StoredMessage { sequence, stored_ms, message } = stored;
        self.log.note(sequence);
        self.read_failure.clear();
        match self.link.origin("d", &message) {
            Ok(from) => {
                let message = message.payload;
                let came = Came { message: message.clone(), permit: Some(permit) };
                let logged = Input::Logged { sequence, stored_ms, from, message: &message };
                self.input(logged, Some(came));
            }
            Err(reason) => self.input(Input::Dropped(reason), None),
        }
    }

    fn handle_log_end(&mut self, why: &str) {
        self.log.stop();
        if self.link.is_connected() && self.ending.is_none() {
            // A server that starts says the same twice a second.
            if self.read_failure != why {
                info!(why, "reading the log again");
                why.clone_into(&mut self.read_failure);
            }
            self.look_up(RETRY_PAUSE);
        }
    }

    /// Looks the stream up after `pause`, unless that is under way.
    fn look_up(&mut self, pause: Duration) {
        if self.looking_up.is_some() {
            return;
        }
        let (link, options) = (self.link.clone(), self.options.clone());
        let reports = self.shared.reports.clone();
        let patience =
            LOOKUP_PATIENCE * (1 << (self.failed_lookups / FAILURES_PER_DOUBLING).min(3));
        self.looking_up = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let asked_ms = now().steady_ms;
            let wanted = streams::data_config(&link, &options);
            let found = streams::find(&link.jetstream, &wanted, patience).await;
            // Fails only while the thread ends.
            let _ = reports.send(Report::LookedUp(Lookup { asked_ms, found }));
        }));
    }

    fn handle_lookup(&mut self, lookup: Lookup) {
        self.looking_up = None;
        self.lookup_at = Some(Instant::now() + LOOKUP_PERIOD);
        if !self.link.is_connected() {
            return;
        }
        let found = match lookup.found {
            Ok(found) => found,
            Err(text) => {
                self.failed_lookups += 1;
                self.complain(&text);
                self.shared.status.change(|overview| overview.status.streams_failure = Some(text));
                return self.look_up(RETRY_PAUSE);
            }
        };
        self.failed_lookups = 0;
        match &found.doubt {
            Some(text) => self.complain(text),
            None => self.complaint = None,
        }
        let status = &self.shared.status;
        status.change(|overview| overview.status.streams_failure.clone_from(&found.doubt));
        status.set_streams(vec![found.info.clone()]);
        let (asked_ms, server_ms) = (lookup.asked_ms, found.server_ms);
        self.input(Input::Clock { asked_ms, server_ms }, None);
        if self.log.look_at(&found, self.node.position().sequence) {
            let StreamState { created_ns: stream, first, last, last_ms, .. } = found;
            self.input(Input::Log { stream, first, last, last_ms }, None);
        }
    }

    fn tick(&mut self) {
        self.note_rows();
        self.input(Input::Tick, None);
        if self.slow_at.elapsed() >= SLOW_PERIOD {
            self.slow_at = Instant::now();
            self.flush_sessions();
            self.follow_policy();
            let figures = self.shared.host.figures();
            self.input(Input::Figures(figures), None);
        }
        if self.forgot_at.elapsed() >= REMOVALS_PERIOD {
            self.forgot_at = Instant::now();
            self.shared.host.store().forget_removals();
        }
        if self.lookup_at.is_some_and(|at| Instant::now() >= at) && self.link.is_connected() {
            self.lookup_at = None;
            self.look_up(Duration::ZERO);
        }
        self.shared.status.set_snapshot(self.node.snapshot(now()));
    }

    /// Tells the node the digests of its rows.
    fn note_rows(&mut self) {
        let digests = self.shared.rows.digests();
        self.input(Input::Rows(&digests), None);
    }

    /// Passes the present lifetimes on: to the store, which keeps as many refreshes as they need, and to the look-up of
    /// the stream, which checks that the log keeps messages for long enough.
    fn follow_policy(&mut self) {
        let times = self.shared.host.peer_times();
        // Before the node is warm, the store would contradict what other nodes say with outdated state.
        let is_ready = self.node.is_warm();
        if self.peer_times.filter(|_| is_ready) != Some(times) {
            let PeerTimes { lifetime_s, interval_s } = times;
            let period = replication::refresh_period_units(lifetime_s, interval_s);
            self.shared.host.store().keep_refreshes(if is_ready { period } else { 0 });
            self.options.peer_lifetime_s = lifetime_s;
            self.peer_times = Some(times).filter(|_| is_ready);
        }
    }

    /// Does what the node has decided.
    async fn act(&mut self) {
        while let Some((output, came)) = self.outputs.pop_front() {
            match output {
                Output::PublishLog { ticket, message } => {
                    self.publish_log(ticket, Bytes::from_owner(message)).await;
                }
                Output::PublishLive { block } => {
                    let subject = self.link.subjects.live();
                    // Blocks that are lost on the live path come by the log.
                    let _ = self.link.publish(subject, None, Bytes::from_owner(block)).await;
                }
                Output::PublishHeartbeat { body } => {
                    let subject = self.link.subjects.heartbeat();
                    let _ = self.link.publish(subject, None, body.into()).await;
                }
                Output::Read(start) => self.log.read(&self.link, start),
                Output::Apply { shift_ms, takes_web, takes_sessions } => {
                    let Some(Came { message, permit }) = came else {
                        debug_assert!(false, "the node applies what has come");
                        continue;
                    };
                    self.apply(Blocks { message, shift_ms, takes_web, takes_sessions }, permit);
                }
                Output::Settle => {
                    let settling = Settling(self.shared.reports.clone());
                    // If the queue is gone, so is the settling, which reports.
                    let _ = self.shared.work.send(Work::Settle(settling)).await;
                }
                Output::Repair { node, kinds } => {
                    // Fails only while the thread ends.
                    let _ = self.shared.repairs.send(Wanted { node, kinds });
                }
                Output::Walk { since_s } => {
                    let now = self.shared.host.now().tick;
                    self.encoder.restart_walk_since(now, since_s);
                }
                Output::WalkMore { bytes } => self.walk(bytes),
                Output::Behind(is_behind) => {
                    self.shared.host.store().set_behind(is_behind);
                    if !is_behind {
                        self.shared.host.accounts().inspect(|accounts| accounts.lost());
                    }
                }
                Output::TellWeb => self.tell_web(),
                Output::PurgeWeb { node } => {
                    // The queue is never full for long: the log waits for it.
                    let _ = self.shared.work.send(Work::PurgeWeb(node)).await;
                }
                Output::Report { is_warning: true, text } => warn!("{text}"),
                Output::Report { is_warning: false, text } => info!("{text}"),
            }
        }
    }

    /// Publishes a message to the log. If that fails, the node orders it again.
    async fn publish_log(&mut self, ticket: u64, message: Bytes) {
        if self.published.ticket != ticket {
            let inbox = self.link.client.new_inbox();
            let id = inbox.rsplit('.').next().unwrap_or_default().to_owned();
            self.published = LogMessage { ticket, id };
        }
        let reply = Subject::from(format!("{}.{ticket}", self.inbox));
        let _ = self.link.publish_stored(&self.published.id, reply, message).await;
    }

    fn apply(&self, blocks: Blocks, permit: Option<mpsc::OwnedPermit<Work>>) {
        let work = Work::Blocks(blocks);
        match permit {
            Some(permit) => drop(permit.send(work)),
            // If the queue is full, a live message is dropped: its blocks come by the log.
            None => drop(self.shared.work.try_send(work)),
        }
    }

    fn is_at_end(&self) -> bool {
        let Some(deadline) = self.ending else { return false };
        let waits = || {
            let snapshot = self.node.snapshot(now());
            snapshot.queue.unstored_blocks > 0 && !snapshot.is_mute && self.link.is_connected()
        };
        Instant::now() >= deadline || !waits()
    }

    async fn leave(&mut self) {
        let snapshot = self.node.snapshot(now());
        if snapshot.queue.unstored_blocks > 0 && !snapshot.is_mute {
            warn!(
                blocks = snapshot.queue.unstored_blocks,
                "stopping with changes that no other node may know"
            );
        }
        self.input(Input::Leave, None);
        self.act().await;
        // If it fails, the others hear nothing more, and find out.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.link.client.flush()).await;
    }
}

/// Reads both clocks.
pub(super) fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Time { steady_ms: ms(start.elapsed()), unix_ms: ms(unix) }
}
