//! The driver: NATS behind [`crate::Node`].
//!
//! ```text
//!  store ─▶ encoder ─▶ Node ─▶ Link ─▶ NATS         live, log, acknowledgements, heartbeats, letters
//!  store ◀─ applier ◀─ Node ◀─ Link ◀─ NATS
//! ```
//!
//! [`run`] is the thread `cluster`: it owns the connection, cuts blocks and lets the node decide. Blocks are
//! applied by a second thread. Nothing that serves clients waits for either: while NATS is away, the tracker
//! serves what it knows.

mod apply;
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
mod records;
mod rights;
mod snapshots;
mod status;
mod streams;

use std::io;
use std::sync::Arc;
use std::thread;

use replication::{Feed, Reservation};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

pub use check::{Finding, check};
pub use operator::make_streams;
pub use options::NatsOptions;
pub use rights::Rights;
pub use snapshots::fetch_records;
pub use status::{LetterFigures, Order, Overview, RecordFigures, Status};
pub use streams::StreamInfo;

use crate::host::{Host, Letters, RecordLog};
use crate::node;
use crate::node::DropReason;
use driver::{Driver, Shared};
use inputs::{Inputs, Subscriptions};
use link::{Link, NotSent};

/// Everything that a node runs with.
pub struct Setup {
    /// How it reaches the others.
    pub options: NatsOptions,
    /// What it is.
    pub node: node::Options,
    /// The tracker's memory.
    pub host: Arc<dyn Host>,
    /// Distributes the changes of the host's store.
    pub feed: Arc<Feed>,
    /// The node's place in it: it publishes what has changed since it was made.
    pub reservation: Reservation,
    /// WebTorrent letters, unless there are none.
    pub letters: Option<Arc<dyn Letters>>,
    /// Durable records, unless they stay local.
    pub records: Option<Arc<dyn RecordLog>>,
    /// What it shows.
    pub status: Arc<Status>,
    /// Orders that [`Status`] takes.
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// Lowers the priority of the calling thread.
    pub lower_priority: fn(),
}

/// Whether a node continues.
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
/// If a thread cannot be started, or a URL or the nkey is none.
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
    let Setup { options, node, host, feed, reservation, letters, records, status, orders, .. } =
        setup;
    let (events, event_receiver) = mpsc::unbounded_channel();
    let link = Link::start(&options, events).await.map_err(io::Error::other)?;
    let (dropped, drops) = mpsc::unbounded_channel();
    let (lookups, lookup_receiver) = mpsc::channel(1);
    let stream = watch::Sender::new(None);
    // Of this process only, and unknown to other nodes: an acknowledgement must be the server's.
    let inbox = link.client.new_inbox();
    let resync = Arc::<Notify>::default();
    let tasks = Tasks {
        link: &link,
        status: &status,
        dropped,
        resync: &resync,
        stream: stream.subscribe(),
    };
    let _tasks = tasks.start(&options, letters, records, &inbox).await?;
    let mut inputs = Inputs {
        events: event_receiver,
        subscriptions: Subscriptions::start(&link, &inbox).await?,
        lookups: lookup_receiver,
        drops,
        orders,
        stop,
        flush: inputs::every(options.flush),
        tick: Inputs::tick(),
    };
    let encoder = replication::Encoder::at(&feed, host.store(), node.boot, reservation);
    let encoder = encoder.with_refreshes().of_node(node.node.into());
    let shared = Shared { status, host: Arc::clone(&host), work, lookups, records: stream, resync };
    Driver::new(link, options, inbox, node, encoder, shared).run(&mut inputs).await;
    Ok(())
}

/// What tasks beside the driver need.
struct Tasks<'a> {
    link: &'a Link,
    status: &'a Arc<Status>,
    dropped: mpsc::UnboundedSender<DropReason>,
    resync: &'a Arc<Notify>,
    stream: watch::Receiver<Option<streams::StreamState>>,
}

impl Tasks<'_> {
    /// Starts the tasks. They end when the result is dropped.
    async fn start(
        self,
        options: &NatsOptions,
        letters: Option<Arc<dyn Letters>>,
        records: Option<Arc<dyn RecordLog>>,
        inbox: &str,
    ) -> Result<JoinSet<()>, NotSent> {
        let mut set = JoinSet::new();
        let (link, status) = (self.link, self.status);
        set.spawn(doors::watch(options.clone(), Arc::clone(status)));
        if let Some(letters) = letters {
            let messages = link.subscribe(link.subjects.to_this("w")).await?;
            let dropped = self.dropped.clone();
            // Fails only while the thread ends.
            let drop = move |reason| {
                let _ = dropped.send(reason);
            };
            set.spawn(letters::send(link.clone(), Arc::clone(&letters), Arc::clone(status)));
            set.spawn(letters::receive(link.clone(), messages, letters, Arc::clone(status), drop));
        }
        if let Some(records) = records {
            let inbox = format!("{inbox}.r");
            let acknowledgements = link.subscribe(format!("{inbox}.*")).await?;
            let questions = link.subscribe(link.subjects.to_this("q")).await?;
            let tasks = records::RecordTasks {
                link: link.clone(),
                records,
                status: Arc::clone(status),
                stream: self.stream,
                dropped: self.dropped,
                resync: Arc::clone(self.resync),
                resynced: Arc::default(),
            };
            set.spawn(tasks.clone().publish(acknowledgements, inbox));
            set.spawn(tasks.clone().apply());
            set.spawn(tasks.clone().answer(questions));
            set.spawn(tasks.resync());
        }
        Ok(set)
    }
}

impl From<NotSent> for io::Error {
    fn from(_: NotSent) -> Self {
        Self::other("the connection to NATS has ended for good")
    }
}
