//! Replicated rows: changes made here are published once, changes of other nodes are merged, and rows that differ are
//! fetched from another node. NATS stores none of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};
use tracing::{info, warn};

use super::inputs::Report;
use super::link::Link;
use super::options::NatsOptions;
use super::repair::{self, Neighbour, Repaired};
use super::status::Status;
use crate::heartbeat::Heartbeat;
use crate::host::{Rows, RowsError};
use crate::node::DropReason;
use crate::status::ClusterRecords;

/// Changes on their way are merged within this time, unless a node is overloaded.
const PAUSE: Duration = Duration::from_secs(1);
/// Bodies that wait to be merged: at most 16 MiB.
const QUEUE: usize = 64;
/// The longest body of changes.
const BODY_MAX: usize = 256 << 10;
/// Longest time of connecting before serving.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time of waiting for heartbeats of other nodes before serving: each node sends one a second.
const HEARTBEATS: Duration = Duration::from_millis(1200);
/// Longest time of fetching before serving, connecting included. Kinds that decide which clients are served come first.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A repair that the node has decided on.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) node: u8,
    pub(super) kinds: Vec<u8>,
}

/// State that the tasks of rows share.
#[derive(Clone)]
pub(super) struct RowTasks {
    pub(super) link: Link,
    pub(super) rows: Arc<dyn Rows>,
    pub(super) status: Arc<Status>,
    pub(super) reports: mpsc::UnboundedSender<Report>,
}

impl RowTasks {
    /// Publishes changes of this node. Other nodes find those that are lost by digests.
    pub(super) async fn publish(self) {
        loop {
            let body = self.rows.next_changes().await;
            let subject = self.link.subjects.rows();
            let is_sent = !self.status.is_mute()
                && self.link.publish(subject, None, body.into()).await.is_ok();
            self.count(|counts| if is_sent { &mut counts.sent } else { &mut counts.unsent });
        }
    }

    /// Merges changes of other nodes.
    pub(super) async fn merge(self, messages: Subscriber) {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        // The client would let more bytes wait.
        let receiving = self.receive(messages, sender);
        let merging = async {
            while let Some((from, body)) = queue.recv().await {
                if let Err(error) = self.rows.merge(from, body).await {
                    warn!(node = from, %error, "cannot merge changes: they are fetched later");
                    continue;
                }
                self.count(|counts| &mut counts.received);
            }
        };
        tokio::join!(receiving, merging);
    }

    async fn receive(&self, mut messages: Subscriber, queue: mpsc::Sender<(u8, Vec<u8>)>) {
        while let Some(message) = messages.next().await {
            match self.link.origin("r", &message) {
                Ok(from) if self.status.is_ignored(from) => self.drop(DropReason::Ignored),
                Ok(_) if message.payload.len() > BODY_MAX => self.drop(DropReason::Damaged),
                Ok(from) => {
                    if queue.try_send((from, message.payload.into())).is_err() {
                        self.drop(DropReason::Rate);
                    }
                }
                Err(reason) => self.drop(reason),
            }
        }
    }

    /// Answers the questions of other nodes' repairs.
    pub(super) async fn answer(self, mut questions: Subscriber) {
        while let Some(question) = questions.next().await {
            let Some(reply) = question.reply.clone() else { continue };
            match self.link.origin("q", &question) {
                // Anywhere else, the answer would be a message of this node that another one has asked for.
                Ok(from) if !reply.starts_with(&self.link.subjects.answers_to(from)) => {
                    self.drop(DropReason::Origin);
                }
                Ok(from) if self.status.is_ignored(from) => self.drop(DropReason::Ignored),
                Ok(from) => {
                    let answer = repair::answer(&*self.rows, &question.payload).await;
                    let answer = answer.unwrap_or_else(|error| {
                        info!(node = from, %error, "cannot send rows to another node");
                        repair::refusal()
                    });
                    // If it is lost, the other node asks again.
                    let _ = self.link.publish(reply, None, answer.into()).await;
                }
                Err(reason) => self.drop(reason),
            }
        }
    }

    /// Repairs what the node decides on, one repair at a time.
    pub(super) async fn repair(self, mut repairs: mpsc::UnboundedReceiver<Wanted>) {
        while let Some(Wanted { node, kinds }) = repairs.recv().await {
            let neighbour = Neighbour { link: &self.link, node, pause: PAUSE };
            match repair::repair(&*self.rows, &kinds, &neighbour).await {
                // Changes were on their way.
                Ok(Repaired { ranges: 0, .. }) => {}
                Ok(Repaired { ranges, bytes }) => {
                    info!(node, ranges, bytes, "fetched rows that differed from another node's");
                    self.count(|counts| &mut counts.repairs);
                }
                Err(error) => {
                    warn!(node, %error, "cannot fetch rows that differ from another node's");
                    self.count(|counts| &mut counts.failed_repairs);
                }
            }
            // Fails only while the thread ends.
            let _ = self.reports.send(Report::Repaired);
        }
    }

    /// Adds one to a count.
    fn count(&self, count: impl FnOnce(&mut ClusterRecords) -> &mut u64) {
        self.status.change(|overview| *count(&mut overview.status.records) += 1);
    }

    fn drop(&self, reason: DropReason) {
        // Fails only while the thread ends.
        let _ = self.reports.send(Report::Dropped(reason));
    }
}

/// Fetches the rows that differ from those of the first node that answers, before this one serves. Takes a few seconds
/// at most. Nodes that `status` ignores are not asked.
///
/// Returns the node that was asked; `None` if no other node is there.
///
/// # Errors
///
/// If NATS is away, or the nodes that are there fail to answer.
pub fn fetch_rows(
    options: &NatsOptions,
    status: &Status,
    rows: &dyn Rows,
) -> Result<Option<u8>, RowsError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fetched = runtime.block_on(async {
        let fetching = timeout(FETCH_TIMEOUT, fetch(options, status, rows)).await;
        fetching.map_err(|_| "the rest is fetched later")?
    });
    runtime.shutdown_background();
    fetched
}

async fn fetch(
    options: &NatsOptions,
    status: &Status,
    rows: &dyn Rows,
) -> Result<Option<u8>, RowsError> {
    // Events say nothing that errors do not.
    let (events, _) = mpsc::unbounded_channel();
    let connected = timeout(CONNECT_TIMEOUT, Link::connect_once(options, events)).await;
    let link = connected.map_err(|_| "cannot connect to NATS in time")??;
    let mut heartbeats =
        link.subscribe(link.subjects.all("h")).await.map_err(|_| "NATS is away")?;
    let deadline = tokio::time::Instant::from_std(Instant::now() + HEARTBEATS);
    let mut failure = None;
    while let Ok(Some(message)) = timeout_at(deadline, heartbeats.next()).await {
        let Ok(node) = link.origin("h", &message) else { continue };
        let Some(heartbeat) = Heartbeat::read(&message.payload) else { continue };
        if node == link.subjects.node() || status.is_ignored(node) || heartbeat.is_leaving {
            continue;
        }
        let own = rows.digests();
        let both = (0..).zip(own.iter().zip(&heartbeat.rows));
        let kinds: Vec<u8> =
            both.filter(|(_, (own, theirs))| own != theirs).map(|it| it.0).collect();
        let neighbour = Neighbour { link: &link, node, pause: Duration::ZERO };
        match repair::repair(rows, &kinds, &neighbour).await {
            Ok(_) => return Ok(Some(node)),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), Err)
}
