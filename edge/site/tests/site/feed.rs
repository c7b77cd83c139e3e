//! The feed, which needs no database: rules of keys, and what nodes tell each other.

use harness::wait_until;
use tidegate_site::SiteConfig;
use tracker::{KeyId, SiteKeyRule};

use crate::fixture::{Client, Site, now_s, text};

fn config() -> SiteConfig {
    SiteConfig { flush_s: 1, is_node: true, ..SiteConfig::default() }
}

fn counting(site: Site) -> Site {
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

#[test]
fn rules_of_keys_decide() {
    let site = counting(Site::start(config()));
    let key = KeyId(KeyId::SITE_FIRST + 2);
    site.subsystem.site().set_key_rule(key, SiteKeyRule { download_slots: 1 });
    assert_eq!(text(&site.announce(&Client::new(2, 1, 2))).0, "");
    let over = site.announce(&Client::new(2, 2, 2));
    assert_eq!(text(&over).0, "Download slot limit reached");
    site.subsystem.site().set_key_rule(key, SiteKeyRule::default());
    assert_eq!(text(&site.announce(&Client::new(2, 2, 2))).0, "");
    site.stop();
}

/// The process before may have ended before it sent its last batches.
#[test]
fn sessions_are_sent_once_more_by_the_next_process() {
    let here = counting(Site::start(config()));
    here.announce(&Client::new(1, 1, 1));
    next_sent(&here);
    let folder = here.stop();
    let here = counting(Site::start_in(config(), folder, now_s()));
    let there = counting(Site::start(config()));
    assert!(there.subsystem.learn(&next_sent(&here)) && !there.subsystem.learn(b"what"));
    assert_eq!(there.subsystem.status().sessions, 1);
    here.stop();
    there.stop();
}
