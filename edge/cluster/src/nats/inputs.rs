//! Everything that can happen to a node, in one place: the driver waits for the next event.

use std::time::Duration;

use async_nats::{Event, Message, Subscriber};
use futures_util::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Stop;
use super::apply::Work;
use super::link::{Link, NotSent};
use super::reader::Reading;
use super::status::Order;
use super::streams::StreamState;
use crate::node::DropReason;

/// Period of ticks, which tell the node that time has passed.
pub(super) const TICK: Duration = Duration::from_millis(100);

pub(super) enum Happened {
    Event(Event),
    Acknowledged(Message),
    Live(Message),
    Heartbeat(Message),
    /// Of the log, and the place of its block among those to be applied.
    Reading(Reading, mpsc::OwnedPermit<Work>),
    Reported(Report),
    Order(Order),
    /// Changes are to be cut.
    Flush,
    Tick,
    Stop(Stop),
}

/// The result of a look-up of the stream.
#[derive(Debug)]
pub(super) struct Lookup {
    /// When it began, by the steady clock.
    pub(super) asked_ms: u64,
    /// The stream, or why there is none, as a sentence.
    pub(super) found: Result<StreamState, String>,
}

/// Report to the driver from other tasks and threads.
#[derive(Debug)]
pub(super) enum Report {
    LookedUp(Lookup),
    Dropped(DropReason),
    /// A repair of rows has ended.
    Repaired,
    /// All blocks that waited are applied.
    Settled,
}

/// Where what happens comes from.
pub(super) struct Inputs {
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    pub(super) subscriptions: Subscriptions,
    pub(super) reports: mpsc::UnboundedReceiver<Report>,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    pub(super) stop: watch::Receiver<Stop>,
    pub(super) flush: Interval,
    pub(super) tick: Interval,
}

/// The driver's own subscriptions on core NATS.
pub(super) struct Subscriptions {
    acknowledgements: Subscriber,
    live: Subscriber,
    heartbeats: Subscriber,
}

impl Subscriptions {
    /// Subscribes. Acknowledgements are answers to subjects that begin with `inbox`.
    pub(super) async fn start(link: &Link, inbox: &str) -> Result<Self, NotSent> {
        Ok(Self {
            acknowledgements: link.subscribe(format!("{inbox}.*")).await?,
            live: link.subscribe(link.subjects.all("l")).await?,
            heartbeats: link.subscribe(link.subjects.all("h")).await?,
        })
    }
}

/// Returns what ticks with this period, and does not catch up.
pub(super) fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

impl Inputs {
    /// Waits for the next thing. The log is read only when there is room in `work`.
    pub(super) async fn next(
        &mut self,
        readings: &mut Option<mpsc::Receiver<Reading>>,
        work: &mpsc::Sender<Work>,
    ) -> Happened {
        let Subscriptions { acknowledgements, live, heartbeats } = &mut self.subscriptions;
        tokio::select! {
            Ok(()) = self.stop.changed() => Happened::Stop(*self.stop.borrow_and_update()),
            Some(event) = self.events.recv() => Happened::Event(event),
            Some(message) = acknowledgements.next() => Happened::Acknowledged(message),
            Some(message) = live.next() => Happened::Live(message),
            Some(message) = heartbeats.next() => Happened::Heartbeat(message),
            Some((reading, permit)) = next_reading(readings, work) => {
                Happened::Reading(reading, permit)
            }
            Some(report) = self.reports.recv() => Happened::Reported(report),
            Some(order) = self.orders.recv() => Happened::Order(order),
            _ = self.flush.tick() => Happened::Flush,
            _ = self.tick.tick() => Happened::Tick,
        }
    }
}

/// Waits until there is a message of the log and room for its block. Never ends if the log is not read.
async fn next_reading(
    readings: &mut Option<mpsc::Receiver<Reading>>,
    work: &mpsc::Sender<Work>,
) -> Option<(Reading, mpsc::OwnedPermit<Work>)> {
    let Some(readings) = readings else { return std::future::pending().await };
    // In this order: a message that was taken must not be lost if something else happens first.
    let permit = work.clone().reserve_owned().await.ok()?;
    Some((readings.recv().await?, permit))
}
