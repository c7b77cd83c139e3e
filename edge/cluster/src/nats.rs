//! The driver: NATS behind [`crate::Node`].
//!
//! ```text
//!  store ─▶ encoder ─▶ Node ─▶ Link ─▶ NATS         live, log, acknowledgements, heartbeats, letters, rows
//!  store ◀─ applier ◀─ Node ◀─ Link ◀─ NATS
//! ```
//!
//! [`run`] is the thread `cluster`: it owns the connection, cuts blocks and lets the node decide. Blocks are
//! applied by a second thread. Nothing that serves clients waits for either: while NATS is away, the tracker
//! serves what it knows.

mod apply;
mod batches;
mod check;
mod doors;
mod driver;
mod inputs;
mod letters;
mod link;
mod log;
mod operator;
mod options;
mod reader;
mod repair;
mod rights;
mod rows;
mod status;
mod streams;

use std::io;
use std::sync::Arc;
use std::thread;

use swarm::{Feed, Reservation};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use check::check;
pub use operator::{Made, make_stream, update_account};
pub use options::{NatsOptions, NatsUser, SecretIds};
pub use rights::Rights;
pub use rows::fetch_rows;
pub use status::{Order, Overview, Status};
pub use streams::{StreamChanges, StreamSettings};

use crate::host::{Host, Letters, Rows};
use crate::node;
use driver::{Driver, Shared};
use inputs::{Inputs, Report, Subscriptions};
use link::{Link, NotSent};
use rows::{RowTasks, Wanted};

/// Everything that a node runs with.
pub struct Setup {
    /// Options for reaching the other nodes.
    pub options: NatsOptions,
    /// Identity, limits and initial state of the node.
    pub node: node::Options,
    /// The tracker's memory.
    pub host: Arc<dyn Host>,
    /// Distributes the changes of the host's store.
    pub feed: Arc<Feed>,
    /// The node's place in it: it publishes what has changed since it was made.
    pub reservation: Reservation,
    /// WebTorrent letters, unless there are none.
    pub letters: Option<Arc<dyn Letters>>,
    /// Replicated rows.
    pub rows: Arc<dyn Rows>,
    /// Status that the node shows.
    pub status: Arc<Status>,
    /// Orders that [`Status`] takes.
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// Lowers the priority of the calling thread.
    pub lower_priority: fn(),
}

/// Command to a node to continue, to hand over or to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It continues.
    #[default]
    No,
    /// Another process serves instead: the node says so to the others, and still publishes what changes.
    HandedOver,
    /// Nothing changes any more: the node publishes the rest, for a limited time, and ends.
    Now,
}

/// Runs a node until `stop` says [`Stop::Now`].
///
/// # Errors
///
/// If a thread cannot be started, or a URL or the user's key is malformed.
pub fn run(setup: Setup, stop: watch::Receiver<Stop>) -> io::Result<()> {
    let lower_priority = setup.lower_priority;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // These look up host names and read certificates.
        .thread_name("cluster-io")
        .max_blocking_threads(2)
        .on_thread_start(lower_priority)
        .build()?;
    let (work, queue) = mpsc::channel(apply::QUEUE);
    let (host, status) = (Arc::clone(&setup.host), Arc::clone(&setup.status));
    let applier = thread::Builder::new().name("cluster-apply".into()).spawn(move || {
        lower_priority();
        apply::run(&host, queue, &status.applied, lower_priority)
    })?;
    let ran = runtime.block_on(run_with(setup, work, stop));
    // Look-ups of hosts cannot be interrupted.
    runtime.shutdown_background();
    match applier.join() {
        Ok(applied) => ran.and(applied),
        Err(_) => {
            Err(io::Error::other("a thread that applies blocks panicked (see the message above)"))
        }
    }
}

async fn run_with(
    setup: Setup,
    work: mpsc::Sender<apply::Work>,
    stop: watch::Receiver<Stop>,
) -> io::Result<()> {
    let Setup { options, node, host, feed, reservation, letters, rows, status, orders, .. } = setup;
    let (events, event_receiver) = mpsc::unbounded_channel();
    let link = Link::start(&options, events).await.map_err(io::Error::other)?;
    let (reports, report_receiver) = mpsc::unbounded_channel();
    let (repairs, repair_receiver) = mpsc::unbounded_channel();
    // Of this process only, and unknown to other nodes: an acknowledgement must be the server's.
    let inbox = link.client.new_inbox();
    let mut tasks = Tasks {
        link: &link,
        status: &status,
        reports: reports.clone(),
        // They end when the set is dropped.
        set: JoinSet::new(),
    };
    tasks.set.spawn(doors::watch(options.clone(), Arc::clone(&status)));
    if let Some(accounts) = host.accounts() {
        tasks.set.spawn(batches::send(link.clone(), Arc::clone(accounts), Arc::clone(&status)));
    }
    if let Some(letters) = letters {
        tasks.start_letters(letters).await?;
    }
    tasks.start_rows(&rows, repair_receiver).await?;
    let _tasks = tasks.set;
    let mut inputs = Inputs {
        events: event_receiver,
        subscriptions: Subscriptions::start(&link, &inbox).await?,
        reports: report_receiver,
        orders,
        stop,
        flush: inputs::every(options.flush),
        tick: inputs::every(inputs::TICK),
    };
    let encoder = swarm::Encoder::at(&feed, host.store(), node.boot, reservation);
    let encoder = encoder.with_refreshes().of_node(node.node.into());
    let shared = Shared { status, host: Arc::clone(&host), work, reports, rows, repairs };
    Driver::new(link, options, inbox, node, encoder, shared).run(&mut inputs).await;
    Ok(())
}

/// Tasks beside the driver.
struct Tasks<'a> {
    link: &'a Link,
    status: &'a Arc<Status>,
    reports: mpsc::UnboundedSender<Report>,
    set: JoinSet<()>,
}

impl Tasks<'_> {
    async fn start_letters(&mut self, letters: Arc<dyn Letters>) -> Result<(), NotSent> {
        let link = self.link;
        let messages = link.subscribe(link.subjects.to_this("w")).await?;
        let reports = self.reports.clone();
        // Fails only while the thread ends.
        let drop = move |reason| {
            let _ = reports.send(Report::Dropped(reason));
        };
        let status = Arc::clone(self.status);
        self.set.spawn(letters::send(link.clone(), Arc::clone(&letters), status));
        let status = Arc::clone(self.status);
        self.set.spawn(letters::receive(link.clone(), messages, letters, status, drop));
        Ok(())
    }

    async fn start_rows(
        &mut self,
        rows: &Arc<dyn Rows>,
        repairs: mpsc::UnboundedReceiver<Wanted>,
    ) -> Result<(), NotSent> {
        let link = self.link;
        let messages = link.subscribe(link.subjects.all("r")).await?;
        let questions = link.subscribe(link.subjects.to_this("q")).await?;
        let tasks = RowTasks {
            link: link.clone(),
            rows: Arc::clone(rows),
            status: Arc::clone(self.status),
            reports: self.reports.clone(),
        };
        self.set.spawn(tasks.clone().publish());
        self.set.spawn(tasks.clone().merge(messages));
        self.set.spawn(tasks.clone().answer(questions));
        self.set.spawn(tasks.repair(repairs));
        Ok(())
    }
}

impl From<NotSent> for io::Error {
    fn from(_: NotSent) -> Self {
        Self::other("the connection to NATS has ended for good")
    }
}
