//! Answers as a site wants them, in the form of each protocol.

use std::sync::{Arc, Mutex};

use tracker::{
    Access, KeyId, KeyRules, OwnPeers, Site, SiteAnnounce, SiteKeyRule, SiteOutcome, SiteVerdict,
};
use types::{Notice, Refusal, Tick, UserKey};

use crate::testing::*;

const KEY: &str = "user-key-012345678";

/// A site that says what the test wants, and keeps the agents of the clients that ask.
struct TestSite {
    outcome: Mutex<SiteOutcome>,
    agents: Mutex<Vec<String>>,
}

impl Site for TestSite {
    fn announce(&self, _: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict {
        let agent = String::from_utf8_lossy(announce.agent).into_owned();
        self.agents.lock().unwrap().push(agent);
        SiteVerdict { outcome: *self.outcome.lock().unwrap(), own: OwnPeers::new() }
    }

    fn set_key_rule(&self, _: KeyId, _: SiteKeyRule) {}
}

fn site(tracker: &tracker::Tracker) -> Arc<TestSite> {
    set_access(tracker, Access::Private);
    tracker.passkeys().put(KeyId(1), UserKey::parse(KEY).unwrap(), KeyRules::default());
    let (outcome, agents) = (Mutex::new(SiteOutcome::Serve), Mutex::default());
    let site = Arc::new(TestSite { outcome, agents });
    assert!(tracker.set_site(site.clone()));
    site
}

impl TestSite {
    fn decide(&self, outcome: SiteOutcome) {
        *self.outcome.lock().unwrap() = outcome;
    }
}

#[test]
fn http_names_the_client_and_has_the_answer_of_the_site() {
    let server = HttpServer::start();
    let site = site(&server.tracker);
    let mut client = server.client();
    let target = announce(1, "").replace("/announce", &format!("/{KEY}/announce"));
    let request = get(&target, "User-Agent: qBittorrent/5.1.0\r\n");
    let notice = Notice::new("you are over your download slots");
    site.decide(SiteOutcome::Hide(notice));
    let response = client.request(&request);
    assert!(response.has("5:peers0:15:warning message32:you are over your download slotse"));
    site.decide(SiteOutcome::Refuse { notice, interval_s: 5400 });
    let response = client.request(&request);
    let failure = "d14:failure reason32:you are over your download slots\
                   8:intervali5400e12:min intervali5400e8:retry ini90ee";
    assert!(response.has(failure), "{}", response.text());
    assert_eq!(*site.agents.lock().unwrap(), ["qBittorrent/5.1.0"; 2]);
    let counters = server.finish(tracker::counters::Protocol::Http);
    let refusal = Refusal::Site { notice, interval_s: 0 };
    assert_eq!(counters.refusals[refusal.index()], 1);
}
