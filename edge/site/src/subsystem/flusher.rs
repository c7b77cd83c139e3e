//! Cuts batches into the spool.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Shared, sharing};
use crate::batch::Batch;
use crate::config::SiteKind;
use crate::spool::{Restored, Spool, SpoolError};
use crate::status::{SiteProblem, SiteStatus};

/// Time between attempts at a spool that another process has.
const LOCKED_RETRY: Duration = Duration::from_millis(50);
/// Time between attempts at a spool that cannot be opened.
const BROKEN_RETRY: Duration = Duration::from_secs(5);
/// Longest time for which a node of a cluster waits for sessions in the database that other nodes have counted.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(10);

fn place(status: &mut SiteStatus) -> &mut Option<SiteProblem> {
    &mut status.spool
}

pub(super) fn run(shared: &Shared) {
    let Some(spool) = open(shared) else { return };
    let is_node = shared.config.is_node;
    if is_node {
        sharing::queue_again(shared, &spool);
    }
    let is_fresh = spool.last_sequence() == 0;
    let takes_over = (is_fresh || is_node) && shared.config.kind != SiteKind::Feed;
    shared.progress.lock().takes_over = takes_over;
    let opened = Instant::now();
    *shared.spool.lock() = Some(spool);
    if !takes_over {
        shared.answers.begin_counting();
    }
    shared.changed.notify_all();
    let mut held = None;
    let mut last = Instant::now();
    let mut cut_time = Duration::ZERO;
    loop {
        wait_for_flush(shared, last + period(shared, cut_time));
        if shared.is_stopping() {
            break;
        }
        if !is_fresh && opened.elapsed() >= TAKE_OVER_PATIENCE {
            // The database is away. Clients that were at other nodes meanwhile may be counted twice.
            shared.answers.begin_counting();
        }
        let elapsed_s = last.elapsed().as_secs_f64();
        last = Instant::now();
        let announces = shared.answers.announces.load(Ordering::Relaxed);
        shared.answers.rates.lock().update(announces, elapsed_s);
        shared.progress.lock().update_rate(elapsed_s);
        flush(shared, &mut held, false);
        cut_time = last.elapsed();
    }
    if !is_fresh {
        shared.answers.begin_counting();
    }
    flush(shared, &mut held, true);
    shared.changed.notify_all();
}

/// Returns the time between two batches. Its end is early enough that the oldest announce of a batch is in the database
/// after `flush_s`, if that takes as long as with the last batch. At least half of it: shorter ones would
/// merge fewer announces, and take longer together.
fn period(shared: &Shared, cut_time: Duration) -> Duration {
    let most = Duration::from_secs(shared.config.flush_s.into());
    let write_time = shared.progress.lock().write_time;
    most.saturating_sub(cut_time + write_time).max(most / 2)
}

fn wait_for_flush(shared: &Shared, until: Instant) {
    while !shared.is_stopping() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        shared.wait(left);
    }
}

/// Opens the spool and restores sessions. Returns `None` if the site stops before.
fn open(shared: &Shared) -> Option<Spool> {
    let id = RandomState::new().hash_one(shared.clock.now_s());
    let answers = &shared.answers;
    let mut restore = |restored: Restored<'_>| match restored {
        Restored::Batch(batch) => {
            batch.names.iter().for_each(|name| answers.names.learn(*name));
            answers.ledger.learn_batch(batch);
        }
        Restored::Session { user, torrent, session } => {
            answers.ledger.learn(user, torrent, &session);
        }
        Restored::Name(name) => answers.names.learn(name),
    };
    let mut has_waited = false;
    while !shared.is_stopping() {
        match Spool::open(&shared.folder, id, shared.config.spool_mib, &mut restore) {
            Ok(spool) => {
                if has_waited {
                    // Calls came to the other process, too: the database has all of them.
                    shared.reload.store(true, Ordering::Release);
                }
                shared.clear(place, "the spool is open");
                return Some(spool);
            }
            Err(SpoolError::Locked(_)) => {
                has_waited = true;
                let remedy =
                    "wait until the process before this one has ended; announces wait in memory";
                shared.note(place, "another process has the spool", remedy);
                shared.wait(LOCKED_RETRY);
            }
            Err(error) => {
                let remedy = "announces wait in memory, and are lost at the end";
                shared.note(place, &error.to_string(), remedy);
                shared.wait(BROKEN_RETRY);
            }
        }
    }
    None
}

/// Cuts a batch and appends it to the spool. `held` is a batch that could not be appended.
fn flush(shared: &Shared, held: &mut Option<Batch>, is_last: bool) {
    // The first batch follows the sessions that are taken over.
    if !shared.answers.is_counting() {
        return;
    }
    let mut guard = shared.spool.lock();
    let Some(spool) = guard.as_mut() else { return };
    let result = try_flush(shared, spool, held, is_last);
    if shared.config.kind == SiteKind::Feed
        && let Err(error) = spool.expire_feed(shared.clock.now_s())
    {
        shared.note(place, &error.to_string(), "batches of the feed are kept for longer");
    }
    drop(guard);
    match result {
        Ok(()) => shared.clear(place, "the spool is written again"),
        Err(error) => {
            let remedy = "see that the consumer takes batches, raise site.spool_mib, or make room on the disk";
            shared.note(place, &error.to_string(), remedy);
        }
    }
    shared.changed.notify_all();
}

fn try_flush(
    shared: &Shared,
    spool: &mut Spool,
    held: &mut Option<Batch>,
    is_last: bool,
) -> Result<(), SpoolError> {
    append_held(shared, spool, held)?;
    sharing::learn_early(shared);
    let answers = &shared.answers;
    let now_s = shared.clock.now_s();
    answers.count_late(if is_last { u32::MAX } else { now_s });
    spool.check_room()?;
    // Names and sessions of the snapshot are those with this batch.
    let wants_snapshot = is_last || spool.wants_snapshot();
    let mut snapshot = match wants_snapshot {
        true => Some(spool.begin_snapshot(now_s)?),
        false => None,
    };
    let mut batch = answers.ledger.cut_into(spool.recycle(), now_s, snapshot.as_mut());
    batch.names = answers.names.take_new();
    if let Some(snapshot) = &mut snapshot {
        snapshot.names(answers.names.all().into_iter());
    }
    if batch.is_empty() && snapshot.is_none() {
        return Ok(());
    }
    *held = Some(batch);
    append_held(shared, spool, held)?;
    match snapshot {
        Some(snapshot) => spool.finish_snapshot(snapshot),
        None => Ok(()),
    }
}

/// Appends the batch that waits, if there is one. It waits on if it cannot be written.
fn append_held(
    shared: &Shared,
    spool: &mut Spool,
    held: &mut Option<Batch>,
) -> Result<(), SpoolError> {
    let Some(batch) = held else { return Ok(()) };
    spool.append(batch)?;
    *held = None;
    if shared.config.is_node
        && let Ok(Some(appended)) = spool.after(spool.last_sequence() - 1)
    {
        sharing::queue(shared, &appended);
    }
    Ok(())
}
