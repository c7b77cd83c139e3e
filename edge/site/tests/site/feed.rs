//! The feed, which needs no database: cursors, restarts, rules of keys, hybrid torrents, other nodes.

use std::sync::Arc;

use harness::wait_until;
use tidegate_site::SiteConfig;
use tidegate_site::batch::{Batch, Record};
use tracker::{KeyId, SiteKeyRule};
use types::{Event, InfoHash};

use crate::fixture::{Client, Site, now_s, pause, text};

fn config() -> SiteConfig {
    SiteConfig { flush_s: 1, ..SiteConfig::default() }
}

fn start() -> Site {
    let site = Site::start(config());
    site.wait("counting", |status| status.counting && status.ready);
    site
}

fn sharing() -> SiteConfig {
    SiteConfig { is_node: true, ..config() }
}

/// Starts a node of a cluster.
fn start_sharing() -> Site {
    let site = Site::start(sharing());
    site.wait("counting", |status| status.counting && status.ready);
    site
}

/// Waits for sessions that a node sends to others.
fn next_sent(site: &Site) -> Vec<u8> {
    let mut sent = None;
    wait_until("sessions", || {
        sent = site.subsystem.take_shared();
        sent.is_some()
    });
    sent.unwrap()
}

/// Returns the key by which a client of the fixture announces.
fn key(user: u32) -> KeyId {
    KeyId(KeyId::SITE_FIRST + user)
}

/// Waits for the batch after `cursor`.
fn next(site: &Site, cursor: u64) -> Arc<Batch> {
    let mut batch = None;
    wait_until("a batch", || {
        batch = site.subsystem.feed().after(cursor).unwrap();
        batch.is_some()
    });
    batch.unwrap()
}

#[test]
fn a_reader_gets_each_record_once_through_restarts() {
    let site = start();
    let client = Client::new(1, 1, 1);
    site.announce(&client);
    site.announce(&Client { uploaded: 10, downloaded: 90, left: 10, at_s: 60, ..client });
    let first = next(&site, 0);
    let [record] = &first.records[..] else { panic!("expected one record: {first:?}") };
    let Record { user, uploaded, downloaded, leechers, .. } = record;
    assert_eq!((KeyId(*user), *uploaded, *downloaded, *leechers), (key(1), 10, 90, 1));
    let feed = site.subsystem.feed();
    assert_eq!(feed.info_hash(record.torrent), Some(InfoHash([1; 20])));
    feed.confirm(first.sequence).unwrap();
    // The end of the process writes what no batch has yet.
    site.announce(&Client { uploaded: 25, downloaded: 90, left: 10, at_s: 90, ..client });
    let folder = site.stop();
    let site = Site::start_in(config(), folder, now_s());
    site.wait("sessions", |status| status.counting);
    let feed = site.subsystem.feed();
    assert_eq!(feed.confirmed(), first.sequence);
    let second = next(&site, first.sequence);
    assert_eq!(second.records[0].uploaded, 15);
    assert_eq!(second.records[0].torrent, record.torrent);
    assert_eq!(feed.info_hash(record.torrent), Some(InfoHash([1; 20])));
    assert_eq!(site.subsystem.status().spool_batches, 1);
    site.announce(&Client { uploaded: 26, downloaded: 90, at_s: 120, ..client });
    let third = next(&site, second.sequence);
    assert_eq!(third.records[0].uploaded, 1);
    pause();
    assert_eq!(feed.after(third.sequence).unwrap(), None, "no batch without announces");
    site.stop();
}

#[test]
fn rules_of_keys_decide() {
    let site = start();
    site.subsystem.site().set_key_rule(key(2), SiteKeyRule { download_slots: 1 });
    assert_eq!(text(&site.announce(&Client::new(2, 1, 2))).0, "");
    let over = site.announce(&Client::new(2, 2, 2));
    assert_eq!(text(&over).0, "Download slot limit reached");
    site.subsystem.site().set_key_rule(key(2), SiteKeyRule::default());
    assert_eq!(text(&site.announce(&Client::new(2, 2, 2))).0, "");
    site.stop();
}

#[test]
fn both_hashes_of_a_hybrid_torrent_are_one_account() {
    let site = start();
    let hybrid = (InfoHash([1; 20]), InfoHash([2; 20]));
    site.subsystem.set_hybrids([hybrid].into_iter());
    // A client announces both hashes with the same counters.
    for (at_s, bytes) in [(0, 0), (60, 1_000)] {
        for hash in [1, 2] {
            let client = Client { uploaded: bytes, at_s, ..Client::new(1, hash, 1) };
            assert_eq!(text(&site.announce(&client)).0, "");
        }
    }
    let batch = next(&site, 0);
    let uploaded: u64 = batch.records.iter().map(|record| record.uploaded).sum();
    assert_eq!((batch.records.len(), uploaded), (1, 1_000), "counted once");
    assert_eq!(site.subsystem.feed().info_hash(batch.records[0].torrent), Some(hybrid.0));
    site.stop();
}

#[test]
fn sessions_of_another_node_are_taken_over() {
    let [here, there] = [start_sharing(), start_sharing()];
    let client = Client { event: Event::Started, ..Client::new(1, 1, 1) };
    there.announce(&client);
    there.announce(&Client { uploaded: 700, at_s: 10, ..client });
    let sent = next_sent(&there);
    // Each node has numbers of its own: here another torrent comes first.
    here.announce(&Client::new(2, 9, 2));
    assert!(here.subsystem.learn(&sent) && !here.subsystem.learn(b"what"));
    // A session that another node counts is not sent again, and is in a batch for the next start.
    let third = start_sharing();
    assert!(third.subsystem.learn(&next_sent(&here)));
    assert_eq!(third.subsystem.status().sessions, 1);
    third.stop();
    let mut learned = false;
    let mut at = 0;
    wait_until("the session in a batch", || {
        if let Some(batch) = here.subsystem.feed().after(at).unwrap() {
            at = batch.sequence;
            learned |= batch.records.iter().any(Record::is_learned);
        }
        learned
    });
    // A state that is not younger changes nothing.
    assert!(here.subsystem.learn(&sent));
    let folder = here.stop();
    let here = Site::start_in(sharing(), folder, now_s());
    here.wait("counting", |status| status.counting && status.ready);
    // The process before may have ended before it sent its last batches.
    next_sent(&here);
    here.announce(&Client { uploaded: 1_000, at_s: 20, ..client });
    let uploaded = |batch: &Batch| batch.records.iter().map(|it| it.uploaded).sum::<u64>();
    let mut sum = 0;
    let mut cursor = 0;
    wait_until("the announce in a batch", || {
        if let Some(batch) = here.subsystem.feed().after(cursor).unwrap() {
            cursor = batch.sequence;
            sum += uploaded(&batch);
        }
        sum == 300
    });
    assert_eq!(sum, 300);
    here.stop();
    there.stop();
}
