//! Judges announces by what the site knows, and counts them: the tracker's [`Site`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tracker::{
    KeyId, OwnPeers, Site, SiteAnnounce, SiteKeyRule, SiteOutcome, SiteProtocol, SiteVerdict,
};
use types::{Announce, Event, InfoHash, Notice, Role, Tick, UserKey};

use crate::batch::agent_of;
use crate::config::{SiteConfig, SiteKind};
use crate::gazelle::tokens::{TokenCalls, UsedToken};
use crate::keys::Keys;
use crate::ledger::{Counted, Ledger, LedgerLimits, NotCounted, Report, Terms};
use crate::lists::Lists;
use crate::model::{Generosity, Model, User};
use crate::names::Names;
use crate::probes::Probes;
use crate::rates::Rates;
use crate::torrents::Moderation;

/// Seconds after which a refused client may announce again.
const REFUSED_S: u16 = 5_400;
/// The same while moderators look at the torrent, so that it is seeded soon after.
const MODERATED_S: u16 = 30;
/// Announces that are kept while sessions are restored.
const EARLY_MAX: usize = 200_000;
/// Announces that wait for other nodes. More are counted at once.
const LATE_MAX: usize = 200_000;
/// Time that other nodes may take to tell of a client, beyond two flushes.
const EXCHANGE_SPARE_S: u32 = 5;

/// The texts that users see.
struct Notices {
    unknown_torrent: Notice,
    deleted: Notice,
    pending: Notice,
    rejected: Notice,
    postponed: Notice,
    unknown_user: Notice,
    unknown_group: Notice,
    no_download: Notice,
    client: Notice,
    clients: Notice,
    slots: Notice,
    unknown_stop: Notice,
    full: Notice,
    lists: Notice,
    unconnectable: Notice,
}

pub(crate) struct Answers {
    pub(crate) kind: SiteKind,
    pub(crate) model: RwLock<Model>,
    /// Torrents that the user of a key may download at a time, by the number of the key. Others have no limit.
    download_slots: RwLock<hashbrown::HashMap<u32, u32>>,
    pub(crate) ledger: Ledger,
    pub(crate) names: Names,
    pub(crate) keys: Keys,
    pub(crate) rates: Mutex<Rates>,
    pub(crate) announces: AtomicU64,
    pub(crate) last_announce_s: AtomicU32,
    /// Lists of peers that users did not get, because they had too many.
    pub(crate) lists_withheld: AtomicU64,
    lists: Option<Lists>,
    pub(crate) probes: Option<Arc<Probes>>,
    pub(crate) token_calls: Option<Arc<TokenCalls>>,
    generosity: Generosity,
    clients: u16,
    notices: Notices,
    /// Reasons that moderators gave for deleted torrents.
    reasons: RwLock<hashbrown::HashMap<InfoHash, Notice>>,
    /// The v1 hash of each hybrid torrent, by its v2 hash: the feed has it under the first.
    hybrids: RwLock<hashbrown::HashMap<InfoHash, InfoHash>>,
    /// Unix seconds at tick 0.
    epoch_s: OnceLock<u32>,
    /// True while the database is read: what calls changed meanwhile would be lost, so they wait.
    pub(crate) loading: AtomicBool,
    /// False until sessions are restored.
    counting: AtomicBool,
    early: Mutex<Vec<Early>>,
    /// Announces that wait for what other nodes tell of their clients; `None` if there are no other nodes.
    late: Option<Mutex<Vec<Early>>>,
    /// Seconds within which other nodes tell of a client.
    exchange_s: u32,
}

/// An announce that came before its session was known.
struct Early {
    torrent: JudgedTorrent,
    /// Has the torrent's number only if announces were counted already.
    report: Report,
    terms: Terms,
    /// True if other nodes count the client, so that it waits for them.
    waits: bool,
}

/// The torrent of an announce.
#[derive(Clone, Copy)]
enum JudgedTorrent {
    /// One of the site.
    Numbered(u32),
    /// One of the feed, whose numbers are known when sessions are restored.
    Named(InfoHash),
}

struct Judged {
    torrent: JudgedTorrent,
    terms: Terms,
    /// The answer, if it is not served as any other.
    instead: Option<SiteOutcome>,
}

impl Answers {
    pub(crate) fn new(config: &SiteConfig) -> Self {
        let is_unit3d = config.kind == SiteKind::Unit3d;
        let probes = is_unit3d.then(|| Probes::new(&config.probes)).flatten();
        let lists = || Lists::new(config.seed_lists.clone(), config.leech_lists.clone());
        Self {
            kind: config.kind,
            model: RwLock::default(),
            download_slots: RwLock::default(),
            ledger: Ledger::new(LedgerLimits::default()),
            names: Names::default(),
            keys: Keys::default(),
            rates: Mutex::default(),
            announces: AtomicU64::default(),
            last_announce_s: AtomicU32::default(),
            lists_withheld: AtomicU64::default(),
            lists: is_unit3d.then(lists),
            probes: probes.map(Arc::new),
            token_calls: config.url.clone().map(TokenCalls::new).map(Arc::new),
            generosity: Generosity {
                everybody: config.factors,
                donor: config.donor,
                lifetime: config.lifetime_donor,
            },
            clients: config.clients_per_torrent,
            notices: Notices::of(config),
            reasons: RwLock::default(),
            hybrids: RwLock::default(),
            epoch_s: OnceLock::new(),
            loading: AtomicBool::default(),
            counting: AtomicBool::default(),
            early: Mutex::default(),
            late: config.is_node.then(Mutex::default),
            exchange_s: config.flush_s.saturating_mul(2).saturating_add(EXCHANGE_SPARE_S),
        }
    }

    /// Sets the unix seconds at tick 0. Call before announces are served.
    pub(crate) fn set_epoch(&self, epoch_s: u32) {
        let _ = self.epoch_s.set(epoch_s);
    }

    /// Returns whether announces are counted at once.
    pub(crate) fn is_counting(&self) -> bool {
        self.counting.load(Ordering::Acquire)
    }

    /// Counts the announces that came before sessions were restored, and from now on all at once.
    pub(crate) fn begin_counting(&self) {
        loop {
            let mut early = self.early.lock();
            if early.is_empty() {
                self.counting.store(true, Ordering::Release);
                return;
            }
            let taken = std::mem::take(&mut *early);
            drop(early);
            for one in taken {
                let Some(torrent) = self.number(one.torrent) else { continue };
                let report = Report { torrent, ..one.report };
                // The ledger has the changes; the answer was sent.
                let _ = self.ledger.announce(&report, &one.terms);
            }
        }
    }

    /// Returns the number of a torrent, or `None` if there are too many. Those of the feed have none before sessions are
    /// restored.
    fn number(&self, torrent: JudgedTorrent) -> Option<u32> {
        match torrent {
            JudgedTorrent::Numbered(number) => Some(number),
            JudgedTorrent::Named(info_hash) => self.names.number(info_hash),
        }
    }

    /// Replaces the hybrid torrents: the v1 hash of each, by its v2 hash.
    pub(crate) fn set_hybrids(&self, hybrids: hashbrown::HashMap<InfoHash, InfoHash>) {
        let old = std::mem::replace(&mut *self.hybrids.write(), hybrids);
        // May take long: not under the lock.
        drop(old);
    }

    /// Counts announces that waited for what other nodes tell of their clients.
    pub(crate) fn count_late(&self, now_s: u32) {
        let Some(late) = &self.late else { return };
        late.lock().retain(|one| {
            let report = one.report;
            let is_told = now_s.saturating_sub(report.now_s) >= self.exchange_s;
            match self.ledger.updated_s(&report) {
                // No node knows the client of a stop.
                None => return !is_told,
                // Another node has counted a later one.
                Some(updated_s) if updated_s > report.now_s => return false,
                Some(_) if one.waits && !is_told => return true,
                Some(_) => {}
            }
            if self.ledger.announce(&report, &one.terms).is_ok_and(|counted| counted.completed) {
                self.complete(report.user, report.torrent);
            }
            false
        });
    }

    /// Keeps an announce for [`Self::count_late`]. It `waits` until other nodes have told what they counted; otherwise
    /// until its client is known. Returns false if there is no room.
    fn keep_late(&self, late: Early, waits: bool) -> bool {
        let Some(all) = &self.late else { return false };
        let mut all = all.lock();
        let has_room = all.len() < LATE_MAX;
        if has_room {
            all.push(Early { waits, ..late });
        }
        has_room
    }

    /// Remembers why a torrent was deleted.
    pub(crate) fn set_reason(&self, info_hash: InfoHash, reason: Option<&str>) {
        let mut reasons = self.reasons.write();
        match reason {
            Some(reason) if reasons.len() < 1 << 20 => {
                let text = format!("Unregistered torrent: {reason}");
                reasons.insert(info_hash, Notice::new(&text));
            }
            _ => {
                reasons.remove(&info_hash);
            }
        }
    }

    /// Inserts or replaces a user, and its key.
    pub(crate) fn put_user(&self, id: u32, user: User) -> bool {
        let Ok(key) = UserKey::parse(user.passkey) else { return false };
        if !self.keys.put(id, key) {
            return false;
        }
        self.model.write().users.insert(id, user);
        true
    }

    pub(crate) fn remove_user(&self, id: u32) {
        self.keys.remove(id);
        self.model.write().users.remove(id);
    }

    /// Replaces everything that is known of the site.
    pub(crate) fn replace_model(&self, mut model: Model) {
        let old: Vec<u32> = self.model.read().users.iter().map(|(id, _)| id).collect();
        for id in old.into_iter().filter(|id| model.users.get(*id).is_none()) {
            self.keys.remove(id);
        }
        let mut bad = Vec::new();
        for (id, user) in model.users.iter() {
            let key = UserKey::parse(user.passkey);
            if !key.is_ok_and(|key| self.keys.put(id, key)) {
                bad.push(id);
            }
        }
        for id in bad {
            model.users.remove(id);
            model.bad_passkeys += 1;
        }
        let old = std::mem::replace(&mut *self.model.write(), model);
        // Takes long with a million users: not under the lock.
        drop(old);
    }

    fn judge(&self, user_id: u32, announce: &Announce) -> Result<Judged, SiteOutcome> {
        let notices = &self.notices;
        let refuse = |notice| Err(SiteOutcome::Refuse { notice, interval_s: REFUSED_S });
        let wait = |notice| Err(SiteOutcome::Quiet { notice, interval_s: MODERATED_S });
        let model = self.model.read();
        if !model.is_served(&announce.peer_id) {
            return refuse(notices.client);
        }
        let Some((torrent_id, torrent)) = model.torrents.find(&announce.info_hash) else {
            self.ledger.note_unregistered(user_id, announce.info_hash);
            let reason = self.reasons.read().get(&announce.info_hash).copied();
            return refuse(reason.unwrap_or(notices.unknown_torrent));
        };
        if torrent.is_deleted {
            self.ledger.note_unregistered(user_id, announce.info_hash);
            return refuse(notices.deleted);
        }
        match torrent.moderation {
            Moderation::Approved => {}
            Moderation::Pending => return wait(notices.pending),
            Moderation::Rejected => return wait(notices.rejected),
            Moderation::Postponed => return wait(notices.postponed),
        }
        let Some(user) = model.users.get(user_id) else { return refuse(notices.unknown_user) };
        let downloads = announce.left != Some(0);
        let may_not = downloads && !user.can_download;
        // Gazelle counts those who may not download, and refuses them.
        if may_not && self.kind == SiteKind::Unit3d {
            return refuse(notices.no_download);
        }
        let Some(group) = model.groups.get(&user.group) else {
            return refuse(notices.unknown_group);
        };
        if matches!(group.slug.as_str(), "banned" | "validating" | "disabled") {
            let text = format!("Your account is not enabled. (Current: {}).", group.slug);
            return refuse(Notice::new(&text));
        }
        let gifts = model.gifts(user_id, torrent_id);
        let no_download =
            SiteOutcome::Refuse { notice: notices.no_download, interval_s: REFUSED_S };
        Ok(Judged {
            torrent: JudgedTorrent::Numbered(torrent_id),
            terms: Terms {
                factors: self.generosity.factors(user, group, torrent, gifts),
                uses_token: gifts.token,
                immune: group.is_immune,
                slots: group.slots,
                clients: self.clients,
                visible: !may_not,
                hides_address: user.is_protected,
            },
            instead: may_not.then_some(no_download),
        })
    }

    /// Judges an announce of a key by the rules of the API.
    fn judge_feed(&self, key: u32, announce: &Announce) -> Judged {
        let info_hash = announce.info_hash;
        let info_hash = self.hybrids.read().get(&info_hash).copied().unwrap_or(info_hash);
        let terms = Terms {
            factors: self.generosity.everybody,
            uses_token: false,
            immune: false,
            slots: self.download_slots.read().get(&key).copied(),
            clients: u16::MAX,
            visible: true,
            hides_address: false,
        };
        Judged { torrent: JudgedTorrent::Named(info_hash), terms, instead: None }
    }

    /// Asks for a probe of the client. Hides it if clients must accept connections, and it is known not to.
    fn probe(
        &self,
        probes: &Probes,
        now: Tick,
        announce: &SiteAnnounce<'_>,
        mut judged: Judged,
    ) -> Judged {
        probes.ask(now, announce);
        let it = announce.announce;
        if probes.are_required()
            && it.event != Event::Stopped
            && probes.is_open(announce.from.to_canonical(), it.port) == Some(false)
        {
            judged.terms.visible = false;
            let hidden = SiteOutcome::Hide(self.notices.unconnectable);
            judged.instead.get_or_insert(hidden);
        }
        judged
    }

    /// Counts a judged announce, and returns the answer.
    fn count(
        &self,
        user: u32,
        announce: &SiteAnnounce<'_>,
        judged: &Judged,
        now_s: u32,
    ) -> SiteVerdict {
        let notices = &self.notices;
        let early =
            |report| Early { torrent: judged.torrent, report, terms: judged.terms, waits: false };
        let report = report(user, announce, now_s);
        // It has no number yet, and gets it when it is counted.
        if !self.is_counting() && self.keep_early(early(report)) {
            return SiteVerdict::new(judged.instead.unwrap_or(SiteOutcome::Serve));
        }
        let Some(torrent) = self.number(judged.torrent) else {
            let notice = notices.full;
            return SiteVerdict::new(SiteOutcome::Refuse { notice, interval_s: REFUSED_S });
        };
        let report = Report { torrent, ..report };
        let keep = |waits| self.keep_late(early(report), waits);
        let late = self.late.as_ref().and_then(|_| self.ledger.counted_late(&report));
        let counted = match late.filter(|_| keep(true)) {
            Some(counted) => Ok(counted),
            None => self.ledger.announce(&report, &judged.terms),
        };
        match counted {
            Ok(Counted { visible, own, completed }) => {
                if completed {
                    self.complete(user, torrent);
                }
                let stops = report.event == Event::Stopped;
                let outcome = match judged.instead {
                    Some(instead) => instead,
                    None if !visible && !stops => SiteOutcome::Hide(notices.slots),
                    None => SiteOutcome::Serve,
                };
                let own = if visible { own } else { OwnPeers::new() };
                SiteVerdict { outcome, own }
            }
            Err(NotCounted::UnknownStop) => {
                keep(false);
                SiteVerdict::new(SiteOutcome::Hide(notices.unknown_stop))
            }
            Err(NotCounted::TooManyClients) => SiteVerdict::new(SiteOutcome::Refuse {
                notice: notices.clients,
                interval_s: REFUSED_S,
            }),
            Err(NotCounted::Full) => SiteVerdict::new(SiteOutcome::Serve),
        }
    }

    /// Keeps an announce until sessions are restored. Returns false if they are.
    fn keep_early(&self, announce: Early) -> bool {
        let mut early = self.early.lock();
        if self.is_counting() {
            return false;
        }
        if early.len() < EARLY_MAX {
            early.push(announce);
        }
        true
    }

    /// Counts a download that was completed here, and tells the site of the token that it used up.
    fn complete(&self, user: u32, torrent: u32) {
        let has_ended = self.note_completed(user, torrent, 1);
        if let Some(calls) = self.token_calls.as_ref().filter(|_| has_ended) {
            calls.report(UsedToken { user, torrent });
        }
    }

    /// Counts completed downloads of a user. Gazelle's tokens are for one: returns true if one was used up.
    pub(crate) fn note_completed(&self, user: u32, torrent_id: u32, downloads: u32) -> bool {
        let model = self.model.read();
        if let Some(torrent) = model.torrents.get(torrent_id) {
            torrent.completed.fetch_add(downloads, Ordering::Relaxed);
        }
        let key = (user, torrent_id);
        let ends_token = self.kind == SiteKind::Gazelle && model.tokens.contains(&key);
        drop(model);
        ends_token && self.model.write().tokens.remove(&key)
    }
}

impl Site for Answers {
    fn announce(&self, now: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict {
        let now_s = self.epoch_s.get().copied().unwrap_or_default().saturating_add(now.0);
        self.announces.fetch_add(1, Ordering::Relaxed);
        self.last_announce_s.store(now_s, Ordering::Relaxed);
        let (user, judged) = match self.kind {
            SiteKind::Feed => {
                let key = announce.key.0;
                (key, Ok(self.judge_feed(key, announce.announce)))
            }
            SiteKind::Unit3d | SiteKind::Gazelle => match user_of(announce.key) {
                Some(user) => (user, self.judge(user, announce.announce)),
                // A key that the site does not know: the operator's own.
                None => return SiteVerdict::new(SiteOutcome::Serve),
            },
        };
        match judged {
            Ok(judged) => {
                let judged = match &self.probes {
                    Some(probes) => self.probe(probes, now, announce, judged),
                    None => judged,
                };
                self.count(user, announce, &judged, now_s)
            }
            Err(outcome) => SiteVerdict::new(outcome),
        }
    }

    fn count_list(&self, now: Tick, key: KeyId, role: Role) -> Option<Notice> {
        let (lists, user) = (self.lists.as_ref()?, user_of(key)?);
        if lists.take(now, user, role) {
            return None;
        }
        self.lists_withheld.fetch_add(1, Ordering::Relaxed);
        Some(self.notices.lists)
    }

    fn set_key_rule(&self, key: KeyId, rule: SiteKeyRule) {
        // Other sites know it themselves.
        if self.kind != SiteKind::Feed {
            return;
        }
        let mut download_slots = self.download_slots.write();
        match rule.download_slots {
            0 => download_slots.remove(&key.0),
            slots => download_slots.insert(key.0, slots),
        };
    }
}

/// Returns the user whose key this is, if it is one of the site.
fn user_of(key: KeyId) -> Option<u32> {
    let is_site = (KeyId::SITE_FIRST..KeyId::FILE_FIRST).contains(&key.0);
    is_site.then(|| key.0 - KeyId::SITE_FIRST)
}

/// Returns the announce as the ledger needs it, without the number of its torrent.
fn report(user: u32, announce: &SiteAnnounce<'_>, now_s: u32) -> Report {
    let it = announce.announce;
    let is_named = !announce.agent.is_empty();
    Report {
        user,
        torrent: 0,
        peer_id: it.peer_id,
        ip: announce.from.to_canonical(),
        // The port of a WebTorrent client means nothing.
        port: if announce.protocol == SiteProtocol::WebTorrent { 0 } else { it.port },
        event: it.event,
        uploaded: it.uploaded,
        downloaded: it.downloaded,
        left: it.left,
        // The header of HTTP, or the beginning of the peer id.
        agent: agent_of(if is_named { announce.agent } else { it.peer_id.0.split_at(8).0 }),
        now_s,
    }
}

impl Notices {
    /// Returns the texts as clients of the site know them.
    fn of(config: &SiteConfig) -> Self {
        let is_gazelle = config.kind == SiteKind::Gazelle;
        let by_kind = |unit3d, gazelle| Notice::new(if is_gazelle { gazelle } else { unit3d });
        let clients = config.clients_per_torrent;
        let clients = format!("You already have {clients} peers on this torrent. Ignoring.");
        Self {
            unknown_torrent: by_kind("InfoHash not found.", "Unregistered torrent"),
            deleted: by_kind("Torrent has been deleted.", "Unregistered torrent"),
            pending: Notice::new("Torrent is pending moderation."),
            rejected: Notice::new("Torrent has been rejected."),
            postponed: Notice::new("Torrent has been postponed."),
            unknown_user: Notice::new("User does not exist. Please re-download the .torrent file."),
            unknown_group: Notice::new("Group not found."),
            no_download: by_kind(
                "Your downloading privileges have been disabled.",
                "Access denied, leeching forbidden",
            ),
            client: by_kind(
                "Client is not acceptable. Please check our blacklist.",
                "Your client is not on the whitelist",
            ),
            clients: Notice::new(&clients),
            slots: Notice::new("Download slot limit reached"),
            unknown_stop: Notice::new("Stopped peer doesn't exist."),
            full: Notice::new("The tracker is full. Please announce later."),
            lists: Notice::new("Rate limit exceeded. Please wait."),
            unconnectable: Notice::new(
                "Connectivity issue detected. Enable port-forwarding to resolve.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::PeerId;

    use super::*;
    use crate::batch::{Batch, Counting, Session, TorrentName};

    const USER: u32 = 7;
    const STOP_S: u32 = 1_000;

    /// A process gets announces before it can read which numbers the torrents have.
    #[test]
    fn early_announces_are_counted_for_their_torrents() {
        let answers = Answers::new(&SiteConfig::default());
        answers.set_epoch(0);
        let [known, new] = [1, 2].map(|byte| InfoHash([byte; 20]));
        let announce = |info_hash, uploaded| {
            let left = Some(1);
            let peer_id = PeerId([9; 20]);
            let announce = Announce { left, uploaded, ..Announce::new(info_hash, peer_id, 6881) };
            let announce = SiteAnnounce {
                key: KeyId(USER),
                announce: &announce,
                from: [10, 0, 0, 1].into(),
                client_ip: [10, 0, 0, 1].into(),
                agent: b"",
                protocol: SiteProtocol::Udp,
            };
            assert_eq!(answers.announce(Tick(1), &announce).outcome, SiteOutcome::Serve);
        };
        announce(new, 0);
        answers.names.learn(TorrentName { torrent: 0, info_hash: known });
        answers.begin_counting();
        announce(known, 0);
        announce(new, 500);
        let batch = answers.ledger.cut_into(Batch::default(), 2, None);
        let mut sums: Vec<_> = batch
            .records
            .iter()
            .map(|record| (answers.names.info_hash(record.torrent), record.uploaded))
            .collect();
        sums.sort_by_key(|(_, uploaded)| *uploaded);
        assert_eq!(sums, [(Some(known), 0), (Some(new), 500)]);
    }

    /// Returns a node that has answered the stop of a client that it does not know.
    fn node_after_a_stop() -> Answers {
        let answers = Answers::new(&SiteConfig { is_node: true, ..SiteConfig::default() });
        answers.set_epoch(0);
        answers.begin_counting();
        let announce = Announce {
            event: Event::Stopped,
            left: Some(0),
            uploaded: 300,
            ..Announce::new(InfoHash([1; 20]), PeerId([9; 20]), 6881)
        };
        let verdict = answers.announce(
            Tick(STOP_S),
            &SiteAnnounce {
                key: KeyId(USER),
                announce: &announce,
                from: [10, 0, 0, 1].into(),
                client_ip: [10, 0, 0, 1].into(),
                agent: b"",
                protocol: SiteProtocol::Udp,
            },
        );
        assert!(matches!(verdict.outcome, SiteOutcome::Hide(_)));
        answers
    }

    /// Has another node tell of the client, and returns what the next batch counts of it.
    fn counted(answers: &Answers, updated_s: u32) -> (u64, bool) {
        let session = Session {
            peer_id: PeerId([9; 20]),
            ip: [10, 0, 0, 1].into(),
            port: 6881,
            uploaded: 100,
            downloaded: 0,
            left: 0,
            created_s: updated_s,
            updated_s,
            active: true,
            seeder: true,
            visible: true,
            counting: Counting::Here,
        };
        answers.ledger.learn(USER, 0, &session);
        answers.count_late(STOP_S + 1);
        let batch = answers.ledger.cut_into(Batch::default(), STOP_S + 1, None);
        let uploaded = batch.records.iter().map(|record| record.uploaded).sum();
        (uploaded, answers.ledger.sessions_of(0)[0].1.active)
    }

    #[test]
    fn a_stop_waits_until_another_node_tells_of_its_client() {
        let answers = node_after_a_stop();
        answers.count_late(STOP_S + answers.exchange_s - 1);
        assert_eq!(counted(&answers, STOP_S - 5), (200, false));
        // The client has started again since then.
        assert_eq!(counted(&node_after_a_stop(), STOP_S + 1), (0, true));
        // No node has told of it in time.
        let answers = node_after_a_stop();
        answers.count_late(STOP_S + answers.exchange_s);
        assert_eq!(counted(&answers, STOP_S - 5), (0, true));
    }
}
