//! Durable counts of downloads.

use super::*;

#[test]
fn downloads_at_other_nodes_count() {
    let tracker = tracker(Policy::default());
    let [listed, other] = [1, 2].map(|hash| InfoHash([hash; 20]));
    let lists = AccessLists {
        mode: Mode::Allow,
        allow: Arc::new([listed].into_iter().collect()),
        ..AccessLists::default()
    };
    let listening = ListenerPolicy { lists, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[ListenerPolicy::default(), listening]);
    let from = |host| [203, 0, 113, host].into();
    tracker.count_replicated_download(&listed, from(1));
    assert_eq!(tracker.downloads().of(&listed), 0, "off");
    tracker.downloads().enable();
    for _ in 0..3 {
        tracker.count_replicated_download(&listed, from(1));
        tracker.count_replicated_download(&other, from(1));
    }
    assert_eq!([listed, other].map(|hash| tracker.downloads().of(&hash)), [3, 0]);
}

#[test]
fn announces_do_not_count_downloads_that_are_replicated() {
    let tracker = tracker(Policy::default());
    let torrent = InfoHash([1; 20]);
    let allow = Arc::new([torrent].into_iter().collect());
    set_lists(&tracker, AccessLists { allow, ..AccessLists::default() });
    tracker.downloads().enable();
    let complete = |peer| {
        for event in [Event::Started, Event::Completed] {
            let mut request = request(1, peer);
            request.announce.event = event;
            announce(&tracker, &[request]);
        }
        tracker.downloads().of(&torrent)
    };
    assert_eq!(complete(1), 1);
    tracker.downloads().replicate();
    assert_eq!(complete(2), 1);
    tracker.count_replicated_download(&torrent, [203, 0, 113, 2].into());
    assert_eq!(tracker.downloads().of(&torrent), 2);
}

#[test]
fn durable_download_counts_outlive_torrents() {
    let tracker = tracker(Policy { peer_lifetime_s: 100, ..Policy::default() });
    let torrent = InfoHash([1; 20]);
    let downloads = |now, event| {
        let mut request = request(1, 1);
        request.announce.event = event;
        let seen = announce_by(&tracker.view(Tick(now)), &mut Random::new(1), &[request]);
        let mut counts = [SwarmCounts::default()];
        scrape(&tracker, 0, &[torrent], &mut counts).unwrap();
        let [SwarmCounts { downloads, .. }] = counts;
        assert_eq!(seen.answers[0].1.unwrap().counts.downloads, downloads);
        downloads
    };
    let forget = |now| {
        (0..20).for_each(|_| tracker.sweep(Tick(now), 1));
        assert_eq!(tracker.totals().torrents, 0);
    };
    assert_eq!(downloads(0, Event::Completed), 1);
    let day = 24 * 3600;
    forget(day);
    assert_eq!(downloads(day, Event::Started), 0, "forgotten with the torrent");
    tracker.downloads().load([(torrent, 41)].into_iter());
    tracker.downloads().enable();
    assert_eq!(downloads(day, Event::Completed), 42);
    assert_eq!(downloads(day, Event::Completed), 42, "once for each peer");
    forget(2 * day);
    assert_eq!(downloads(2 * day, Event::Started), 42);
    let mut changed = Vec::new();
    tracker.downloads().take_changed(&mut changed);
    assert_eq!(changed, [(torrent, 42)]);
}
