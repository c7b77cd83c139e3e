//! Lists of peers that users get.

use harness::Directory;
use tidegate_site::{ListWindow, SiteConfig, SiteKind, SiteSubsystem};
use tracker::KeyId;
use types::{Role, Tick};

use crate::fixture::KEY;

/// Opens a site with a window of two lists with seeders, and one of leechers. It needs no database.
fn open(kind: SiteKind) -> SiteSubsystem {
    let window = |lists| [ListWindow { seconds: 60, lists }].into_iter().collect();
    let config = SiteConfig {
        kind,
        database: Some("mysql://a:b@127.0.0.1:1/site".to_owned()),
        tracker_key: Some(KEY.to_owned()),
        seed_lists: window(2),
        leech_lists: window(1),
        ..SiteConfig::default()
    };
    let folder = Directory::new().unwrap();
    SiteSubsystem::with_listener(config, &folder.path("site"), None).unwrap()
}

#[test]
fn users_of_unit3d_get_as_many_lists_as_windows_permit() {
    let subsystem = open(SiteKind::Unit3d);
    let site = subsystem.site();
    let list = |at_s, user, role| {
        let notice = site.count_list(Tick(at_s), KeyId(KeyId::SITE_FIRST + user), role);
        notice.map_or("", |notice| notice.text())
    };
    let warning = "Rate limit exceeded. Please wait.";
    for expected in ["", "", warning] {
        assert_eq!(list(0, 1, Role::Leecher), expected);
    }
    for expected in ["", warning] {
        assert_eq!(list(0, 1, Role::Seeder), expected);
    }
    assert_eq!((list(0, 2, Role::Leecher), list(30, 1, Role::Leecher)), ("", ""));
    assert_eq!(subsystem.status().lists_withheld, 2);
    // A key of the operator's own is none of the site's users.
    for _ in 0..9 {
        assert_eq!(site.count_list(Tick(0), KeyId(7), Role::Leecher), None);
    }
    let feed = open(SiteKind::Feed);
    for _ in 0..9 {
        assert_eq!(feed.site().count_list(Tick(0), KeyId(KeyId::SITE_FIRST), Role::Leecher), None);
    }
}
