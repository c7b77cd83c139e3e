//! Loads users and torrents from the site's database, and writes batches to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mysql::Conn;

use super::{Place, Shared};
use crate::batch::{Batch, Session};
use crate::config::SiteKind;
use crate::database::{self, BatchOrigin, Tables, Trouble, trouble};
use crate::gazelle::{self, tables::GazelleTables};
use crate::model::Model;
use crate::spool::{SpoolError, replace};
use crate::status::{SiteProblem, SiteStatus};
use crate::unit3d::{self, tables::Unit3dTables};

/// The first and the longest time between two attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Seconds by which clocks may differ.
const CLOCK_DIFFERENCE_S: u32 = 120;
/// Silence after which a node asks whether the database is there, which would take it for gone.
const PING_PERIOD: Duration = Duration::from_secs(15);

fn place(status: &mut SiteStatus) -> &mut Option<SiteProblem> {
    &mut status.database
}

/// Runs until the site stops, and all batches are written or the database is away.
pub(super) fn run(shared: &Shared) {
    use_known_model(shared);
    let mut is_loaded = false;
    let mut wait = RETRY.0;
    loop {
        let connected_at = Instant::now();
        let ended = session(shared, &mut is_loaded);
        match ended {
            Ok(()) => return,
            Err(Trouble { error, remedy }) => shared.note(place, &error, &remedy),
        }
        if shared.is_stopping() {
            return;
        }
        if connected_at.elapsed() > RETRY.1 {
            wait = RETRY.0;
        }
        wait_for(shared, wait);
        wait = (wait * 2).min(RETRY.1);
    }
}

/// Waits for all of `patience`, unless the site stops.
fn wait_for(shared: &Shared, patience: Duration) {
    let until = Instant::now() + patience;
    while !shared.is_stopping() && Instant::now() < until {
        shared.wait(until.saturating_duration_since(Instant::now()));
    }
}

/// Serves with what the last run knew, until the database has been read.
fn use_known_model(shared: &Shared) {
    let bytes = std::fs::read(shared.model_path()).unwrap_or_default();
    if let Some(model) = Model::decode(&bytes) {
        shared.answers.replace_model(model);
        shared.progress.lock().status.ready = true;
    }
}

/// Connects, and works until the site stops.
fn session(shared: &Shared, is_loaded: &mut bool) -> Result<(), Trouble> {
    let is_node = shared.config.is_node;
    let tables: Box<dyn Tables> = match shared.config.kind {
        SiteKind::Gazelle => Box::new(GazelleTables { is_node }),
        SiteKind::Unit3d | SiteKind::Feed => {
            Box::new(Unit3dTables { is_node, probes: shared.answers.probes.clone() })
        }
    };
    let tables = &*tables;
    let options = shared.config.database_options().map_err(|error| Trouble {
        error: error.to_string(),
        remedy: "correct it and restart".to_owned(),
    })?;
    let password = shared.config.database_password.as_deref();
    let mut conn = database::connect(&options, password).map_err(|error| trouble(&error))?;
    database::check_columns(&mut conn, tables.columns())?;
    compare_clocks(shared, &mut conn)?;
    if !*is_loaded {
        load(shared, &mut conn)?;
        *is_loaded = true;
    }
    let Some(writer) = find_position(shared, &mut conn)? else { return Ok(()) };
    if is_node {
        database::prepare_turns(&mut conn).map_err(|error| trouble(&error))?;
    }
    if shared.progress.lock().takes_over {
        take_over(shared, &mut conn)?;
    }
    shared.clear(place, "the database is there again");
    let mut spoken_at = Instant::now();
    loop {
        if shared.reload.swap(false, Ordering::AcqRel) {
            load(shared, &mut conn)?;
            if is_node {
                take_over(shared, &mut conn)?;
            }
        }
        match next(shared).map_err(unreadable)? {
            Some(batch) => {
                let began = Instant::now();
                let written = database::write_batch(&mut conn, tables, &writer, &batch);
                spoken_at = Instant::now();
                let written = written.map_err(|error| trouble(&error))?;
                shared.clear(place, "the database is written again");
                let mut progress = shared.progress.lock();
                progress.write_time = began.elapsed();
                progress.status.rows += written.rows;
                progress.status.rows_skipped += written.skipped;
                drop(progress);
                confirm(shared, batch.sequence).map_err(unreadable)?;
                if written.skipped > 0 {
                    tracing::warn!(
                        target: "site",
                        "the database refused {} records of batch {}: their users or torrents were deleted, or a value \
                         does not fit",
                        written.skipped, batch.sequence
                    );
                }
            }
            None if shared.is_stopping() && is_flushed(shared) => return Ok(()),
            None => {
                if is_node && spoken_at.elapsed() > PING_PERIOD {
                    conn.ping().map_err(|error| trouble(&error))?;
                    spoken_at = Instant::now();
                }
                shared.wait(Duration::from_millis(500));
            }
        }
    }
}

/// Reports clocks that differ: the site compares its own times with those that the tracker writes.
fn compare_clocks(shared: &Shared, conn: &mut Conn) -> Result<(), Trouble> {
    let their_s = database::now_s(conn).map_err(|error| trouble(&error))?;
    let ours_s = shared.clock.now_s();
    let difference_s = ours_s.abs_diff(their_s);
    let place: Place = |status| &mut status.clock;
    if difference_s > CLOCK_DIFFERENCE_S {
        let side = if ours_s > their_s { "ahead of" } else { "behind" };
        let error =
            format!("the clock of this machine is {difference_s} s {side} that of the database");
        let remedy = "synchronize both by NTP, and restart: until then the site sees wrong times of announces";
        shared.note(place, &error, remedy);
    } else {
        shared.clear(place, "the clocks agree");
    }
    Ok(())
}

/// Returns whether no announce waits for a batch.
fn is_flushed(shared: &Shared) -> bool {
    shared.spool.lock().is_none() || shared.answers.ledger.pending() == 0
}

fn unreadable(error: SpoolError) -> Trouble {
    Trouble { error: error.to_string(), remedy: "batches wait in the spool".to_owned() }
}

/// Returns the first batch that the database does not have.
fn next(shared: &Shared) -> Result<Option<Arc<Batch>>, SpoolError> {
    match &*shared.spool.lock() {
        Some(spool) => spool.after(spool.confirmed),
        None => Ok(None),
    }
}

fn confirm(shared: &Shared, sequence: u64) -> Result<(), SpoolError> {
    match &mut *shared.spool.lock() {
        Some(spool) => spool.confirm(sequence),
        None => Ok(()),
    }
}

/// Reads what the database has of this spool. Waits until the spool is open; returns `None` if the site stops before.
fn find_position(shared: &Shared, conn: &mut Conn) -> Result<Option<BatchOrigin>, Trouble> {
    while shared.spool.lock().is_none() {
        if shared.is_stopping() {
            return Ok(None);
        }
        shared.wait(Duration::from_millis(50));
    }
    let mut guard = shared.spool.lock();
    let Some(id) = guard.as_ref().map(|spool| spool.id) else { return Ok(None) };
    drop(guard);
    let node = shared.config.node.clone();
    let writer = BatchOrigin { node, spool: id, takes_turns: shared.config.is_node };
    let sequence = database::read_sequence(conn, &writer)?;
    guard = shared.spool.lock();
    if let Some(spool) = guard.as_mut() {
        spool.advance(sequence);
        spool.confirm(sequence).map_err(unreadable)?;
    }
    Ok(Some(writer))
}

/// Reads users and torrents, and keeps a copy for a start without the database.
fn load(shared: &Shared, conn: &mut Conn) -> Result<(), Trouble> {
    shared.answers.loading.store(true, Ordering::Release);
    shared.sharing.loaded_s.store(shared.clock.now_s(), Ordering::Release);
    let loaded = read_model(shared, conn);
    shared.answers.loading.store(false, Ordering::Release);
    loaded
}

fn read_model(shared: &Shared, conn: &mut Conn) -> Result<(), Trouble> {
    let model = match shared.config.kind {
        SiteKind::Gazelle => gazelle::load::load(conn),
        SiteKind::Unit3d | SiteKind::Feed => unit3d::load::load(conn),
    };
    let model = model.map_err(|error| trouble(&error))?;
    if model.bad_passkeys > 0 {
        tracing::warn!(
            target: "site",
            "{} users have passkeys that do not have 32 letters and digits: they cannot announce until the site gives \
             them others",
            model.bad_passkeys
        );
    }
    if model.duplicate_hashes > 0 {
        tracing::warn!(
            target: "site",
            "{} torrents have the info hash of another one: announces are counted for the one that is served",
            model.duplicate_hashes
        );
    }
    let bytes = model.encode();
    shared.answers.replace_model(model);
    shared.progress.lock().status.ready = true;
    let kept = std::fs::create_dir_all(&shared.folder)
        .map_err(crate::spool::io("create", &shared.folder))
        .and_then(|()| replace(&shared.model_path(), &bytes));
    if let Err(error) = kept {
        tracing::warn!(target: "site", "{error}; a start without the database would know no users");
    }
    Ok(())
}

/// Takes over the sessions that are younger in the database, and begins to count. The tracker before this one wrote them,
/// or other nodes did while this one was away.
fn take_over(shared: &Shared, conn: &mut Conn) -> Result<(), Trouble> {
    let ledger = &shared.answers.ledger;
    let learn = |user, torrent, session: &Session| ledger.learn_younger(user, torrent, session);
    match shared.config.kind {
        SiteKind::Gazelle => gazelle::load::load_peers(conn, learn),
        SiteKind::Unit3d | SiteKind::Feed => unit3d::load::load_peers(conn, learn),
    }
    .map_err(|error| trouble(&error))?;
    if !std::mem::take(&mut shared.progress.lock().takes_over) {
        return Ok(());
    }
    tracing::info!(target: "site", "{} sessions taken over from the database", ledger.sessions.load(Ordering::Relaxed));
    shared.answers.begin_counting();
    // Calls that the process before had no time to send are in the database.
    shared.sharing.queue_reload();
    Ok(())
}
