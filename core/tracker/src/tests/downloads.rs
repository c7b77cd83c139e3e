//! Durable counts of downloads.

use super::*;

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
    tracker.downloads().add([(torrent, 41)].into_iter());
    tracker.downloads().enable();
    assert_eq!(downloads(day, Event::Completed), 42);
    assert_eq!(downloads(day, Event::Completed), 42, "once for each peer");
    forget(2 * day);
    assert_eq!(downloads(2 * day, Event::Started), 42);
    let mut changed = Vec::new();
    tracker.downloads().take_changed(|change| changed.push(change));
    assert_eq!(changed, [DownloadsChange::Added(torrent, 1)]);
}
