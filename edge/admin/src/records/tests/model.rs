//! Several nodes, each with records of its own, and everything that can go wrong between them, in an order that a seed
//! chooses: bodies are lost, repeated, reordered or delivered weeks late, nodes restart, fall back to an older copy of
//! their file, and have wrong clocks. Then nodes compare digests and read from each other what differs, in any order,
//! until all digests are equal: all rows are equal then, the memory is what the rows say, and counts are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use primitives::Random;

use super::super::replication::PartReader;
use super::super::rows::Kind;
use super::super::tables::bans::{self, BanFilter, BanRow};
use super::super::tables::ids;
use super::super::tables::ignored_nodes;
use super::super::tables::keys::{KeyFilter, KeyRow, KeyUpdate};
use super::super::tables::settings;
use super::super::tables::torrent_reasons::{self, ReasonRow};
use super::super::tables::webhooks::{self, WebhookRow};
use super::super::{ChangeSource, RecordOp};
use super::*;
use crate::json::json_text;

/// Runs the model with these seeds.
const SEEDS: u64 = 3;
const STEPS: usize = 200;
/// The time at the beginning, unix ms: later than that of the machine, which trackers without a cluster use.
const START_MS: u64 = 4_000_000_000_000;
const HOUR_MS: u64 = 3_600_000;

/// Memory of a node, which only effects change.
#[derive(Clone, Default, PartialEq, Debug)]
struct Memory {
    lists: BTreeSet<(String, InfoHash)>,
    keys: BTreeMap<u32, String>,
    bans: BTreeMap<String, String>,
    tokens: BTreeSet<(i64, u8)>,
    webhooks: BTreeMap<i64, String>,
    settings: BTreeMap<String, String>,
    nodes: BTreeSet<u8>,
    downloads: BTreeMap<InfoHash, u32>,
    reasons: BTreeMap<InfoHash, String>,
}

#[derive(Default)]
struct ModelLive {
    memory: Memory,
    pending: PendingCounts,
}

fn rules_text(row: &KeyRow) -> String {
    json_text(row)
}

impl LiveState for ModelLive {
    fn collect(&mut self, pending: &mut PendingCounts) {
        *pending = std::mem::take(&mut self.pending);
        for (torrent, added) in &pending.downloads {
            *self.memory.downloads.entry(*torrent).or_default() += added;
        }
    }

    fn apply(&mut self, change: RecordOp, _: ChangeSource<'_>) {
        let memory = &mut self.memory;
        match change {
            RecordOp::ListAdded { list, hashes } => {
                memory.lists.extend(hashes.into_iter().map(|hash| (format!("{list:?}"), hash)));
            }
            RecordOp::ListRemoved { list, hashes } => {
                let list = format!("{list:?}");
                memory.lists.retain(|(of, hash)| *of != list || !hashes.contains(hash));
            }
            RecordOp::ReasonsPut(rows) => {
                memory.reasons.extend(rows.into_iter().map(|row| (row.info_hash, row.reason)));
            }
            RecordOp::ReasonsRemoved { hashes } => {
                memory.reasons.retain(|hash, _| !hashes.contains(hash));
            }
            RecordOp::KeyPut(row) => drop(memory.keys.insert(row.id, rules_text(&row))),
            RecordOp::KeyRemoved { id } => drop(memory.keys.remove(&id)),
            RecordOp::BansPut(rows) => {
                memory.bans.extend(rows.into_iter().map(|row| (row.network, row.reason)));
            }
            RecordOp::BanRemoved { network } => drop(memory.bans.remove(&network)),
            RecordOp::TokenPut(row) => drop(memory.tokens.insert((row.id, row.digest[0]))),
            RecordOp::TokenRemoved { id } => memory.tokens.retain(|(of, _)| *of != id),
            RecordOp::WebhookPut(row) => drop(memory.webhooks.insert(row.id, row.url)),
            RecordOp::WebhookRemoved { id } => drop(memory.webhooks.remove(&id)),
            RecordOp::SettingsPut(values) => {
                for (name, value) in values {
                    memory.settings.remove(&name);
                    memory.settings.extend(value.map(|value| (name, value)));
                }
            }
            RecordOp::NodeIgnored { node, is_ignored: true } => drop(memory.nodes.insert(node)),
            RecordOp::NodeIgnored { node, .. } => drop(memory.nodes.remove(&node)),
            RecordOp::DownloadsAdded(added) => {
                for (torrent, added) in added {
                    *memory.downloads.entry(torrent).or_default() += added;
                }
            }
            _ => {}
        }
    }
}

/// All rows of a node as text, and what it knows of removed ones.
fn rows(db: &Connection) -> Vec<String> {
    let tables = [
        "stamps",
        "ranges WHERE digest <> 0",
        "keys",
        "key_totals",
        "downloads",
        "bans",
        "tokens",
        "webhooks",
        "settings",
        "ignored_nodes",
        "torrent_reasons",
    ];
    let mut all = Vec::new();
    for table in tables {
        // When totals have changed, each node knows for itself.
        let columns = match table {
            "key_totals" => "id, node, uploaded, downloaded, seeding_s, announces, first_used",
            _ => "*",
        };
        let mut select = db.prepare(&format!("SELECT {columns} FROM {table}")).unwrap();
        let columns = select.column_count();
        let mut found = select.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<_> =
                (0..columns).map(|column| format!("{:?}", row.get_ref(column).unwrap())).collect();
            all.push(format!("{table}: {}", values.join(" ")));
        }
    }
    all.sort();
    all
}

/// Returns the memory that a node with these rows must have.
fn memory_of(db: &Connection) -> Memory {
    let mut memory = Memory::default();
    for list in [List::Allow, List::Deny, List::Frozen] {
        let hashes = lists::page(db, list, None, 1000).unwrap();
        memory.lists.extend(hashes.into_iter().map(|hash| (format!("{list:?}"), hash)));
    }
    let keys = all_keys(db).unwrap();
    memory.keys = keys.iter().map(|row| (row.id, rules_text(row))).collect();
    let bans = bans::page(db, &BanFilter { now: i64::MIN, text: String::new() }, "", 1000).unwrap();
    memory.bans = bans.into_iter().map(|row| (row.network, row.reason)).collect();
    memory.tokens = tokens::all(db).unwrap().iter().map(|row| (row.id, row.digest[0])).collect();
    memory.webhooks = webhooks::all(db).unwrap().into_iter().map(|row| (row.id, row.url)).collect();
    memory.settings = settings::texts(db).unwrap().into_iter().collect();
    memory.nodes = ignored_nodes::all(db).unwrap().into_iter().collect();
    memory.downloads = downloads(db).unwrap().into_iter().collect();
    let reasons = torrent_reasons::page(db, None, 1000).unwrap();
    memory.reasons = reasons.into_iter().map(|row| (row.info_hash, row.reason)).collect();
    memory
}

struct Node {
    number: u8,
    folder: Rc<Directory>,
    open: Option<(Records, Writer)>,
    live: ModelLive,
    /// The node's clock, unix ms.
    clock: Arc<AtomicU64>,
}

impl Node {
    /// Opens new records; `number` 0: outside a cluster.
    fn new(number: u8) -> Self {
        let mut node = Self {
            number,
            folder: Rc::new(Directory::new().unwrap()),
            open: None,
            live: ModelLive::default(),
            clock: Arc::new(AtomicU64::new(START_MS)),
        };
        node.start();
        node
    }

    /// Opens the records, as a process that starts.
    fn start(&mut self) {
        self.open = None;
        let (records, mut writer) = Records::open(Some(self.folder.root())).unwrap();
        if self.number > 0 {
            let clock = Arc::clone(&self.clock);
            writer.replicate(self.number, move || clock.load(Relaxed)).unwrap();
        }
        self.live = ModelLive { memory: memory_of(writer.connection()), ..ModelLive::default() };
        self.open = Some((records, writer));
    }

    fn records(&self) -> &Records {
        &self.open.as_ref().unwrap().0
    }

    fn db(&self) -> &Connection {
        self.open.as_ref().unwrap().1.connection()
    }

    /// Writes the next transaction without a sync: the model does not crash the machine.
    fn spare_disk(&self) {
        self.db().execute_batch("PRAGMA synchronous = OFF").unwrap();
    }

    fn back_up(&mut self) {
        let copy = self.folder.path("backup");
        let _ = fs::remove_file(&copy);
        self.db().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    }

    /// Falls back to the last backup.
    fn roll_back(&mut self) {
        self.open = None;
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(self.folder.path(&format!("{FILE}{suffix}")));
        }
        fs::copy(self.folder.path("backup"), self.folder.path(FILE)).unwrap();
        self.start();
    }

    /// Runs an operation of the records and the writer by turns.
    fn wait<'a, T: 'a>(
        &'a mut self,
        operation: impl AsyncFnOnce(&'a Records) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
        self.spare_disk();
        let (records, writer) = self.open.as_mut().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut future = pin!(operation(records));
        for _ in 0..9 {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result;
            }
            writer.serve_queued(&mut self.live);
        }
        panic!("an operation never ends");
    }

    fn change(&mut self, op: RecordOp) -> bool {
        let changed = self.wait(async |records| records.change(op).await.map(drop));
        assert!(matches!(changed, Ok(()) | Err(RecordsError::Conflict)), "{changed:?}");
        changed.is_ok()
    }

    fn flush(&mut self, pending: PendingCounts) {
        self.live.pending = pending;
        self.spare_disk();
        let (_, writer) = self.open.as_mut().unwrap();
        writer.flush(&mut self.live, &mut PendingCounts::default());
    }

    fn clean_up(&mut self) {
        self.open.as_mut().unwrap().1.clean_up();
    }

    fn merge(&mut self, from: u8, body: Vec<u8>) {
        self.wait(async |records| records.merge(from, body).await).unwrap();
    }

    /// Reads from `other` what differs. Returns true if something did.
    fn pull(&mut self, other: &Self) -> bool {
        let theirs = other.records().digests();
        let own = self.records().digests();
        for kind in (0..).zip(&theirs).zip(&own).filter(|((_, one), own)| one != own) {
            let kind: u8 = kind.0.0;
            let theirs = other.records().range_digests(kind);
            let own = self.records().range_digests(kind);
            let ranges = (0..).zip(theirs.iter().zip(&own)).filter(|(_, (one, own))| one != own);
            let ranges: Vec<u16> = ranges.map(|(range, _)| range).collect();
            let mut cursor = Some(Vec::new());
            while let Some(from) = cursor {
                let kind = Kind::ALL[usize::from(kind)];
                let part = PartReader::read(other.db(), kind, &ranges, from).unwrap();
                assert!(part.body.len() <= 512 * 1024);
                self.merge(other.number, part.body);
                cursor = part.next;
            }
        }
        theirs != own
    }
}

/// Faults that may happen to nodes.
#[derive(Clone, Copy, Default)]
struct Faults {
    rolls_back: bool,
    has_wrong_clocks: bool,
}

/// Nodes, and what was sent between them.
struct World {
    nodes: Vec<Node>,
    faults: Faults,
    /// The right time, unix ms.
    now_ms: u64,
    /// Bodies that were sent: the sender and the receiver, by index.
    mail: Vec<(usize, usize, Vec<u8>)>,
    random: Random,
    /// Totals that were counted, by key.
    totals: BTreeMap<u32, u64>,
    downloads: BTreeMap<InfoHash, u32>,
    /// Keys that are never removed.
    stable: Vec<u32>,
    counter: u64,
}

impl World {
    fn new(seed: u64, nodes: u8, faults: Faults) -> Self {
        let mut world = Self {
            nodes: (1..=nodes).map(Node::new).collect(),
            faults,
            now_ms: START_MS,
            mail: Vec::new(),
            random: Random::new(seed),
            totals: BTreeMap::new(),
            downloads: BTreeMap::new(),
            stable: Vec::new(),
            counter: 0,
        };
        for node in 0..world.nodes.len() {
            world.nodes[node].change(key_put(format!("stable-{node}-{}", "x".repeat(16)), "s"));
            let rows = all_keys(world.nodes[node].db()).unwrap();
            world.stable.push(rows[0].id);
        }
        world.settle(seed);
        world.nodes.iter_mut().for_each(Node::back_up);
        world
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u32) as usize
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Sends what a node has changed. Some of it is lost, some is repeated.
    fn send(&mut self, node: usize) {
        while let Some(body) = self.nodes[node].records().replication().take_changes() {
            for to in (0..self.nodes.len()).filter(|to| *to != node) {
                let copies = [0, 1, 1, 2][self.below(4)];
                (0..copies).for_each(|_| self.mail.push((node, to, body.clone())));
            }
        }
    }

    /// Delivers any body, which may have waited for long.
    fn deliver(&mut self) {
        if self.mail.is_empty() {
            return;
        }
        let at = self.below(self.mail.len());
        let (from, to, body) = self.mail.swap_remove(at);
        let from = self.nodes[from].number;
        self.nodes[to].merge(from, body);
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for node in &self.nodes {
            node.clock.fetch_add(ms, Relaxed);
        }
    }

    /// Sets a node's clock wrong: by minutes, hours or days, or right.
    fn set_clock(&mut self, node: usize) {
        let range = [0, HOUR_MS / 2, 5 * HOUR_MS, 72 * HOUR_MS][self.below(4)];
        let offset = u64::from(self.random.below(range as u32 + 1));
        let is_behind = self.below(2) == 0;
        let time = if is_behind { self.now_ms - offset } else { self.now_ms + offset };
        self.nodes[node].clock.store(time, Relaxed);
    }

    fn step(&mut self) {
        let node = self.below(self.nodes.len());
        match self.below(24) {
            0..8 => self.change(node),
            8..11 => self.count(node),
            11..14 => self.send(node),
            14..18 => self.deliver(),
            18 => {
                let ms = [10, 5000, 60_000, 1_200_000][self.below(4)];
                self.pass(ms);
            }
            19 => self.nodes[node].clean_up(),
            20 => self.nodes[node].start(),
            21 if self.faults.has_wrong_clocks => self.set_clock(node),
            22 => self.nodes[node].back_up(),
            23 if self.faults.rolls_back => self.nodes[node].roll_back(),
            _ => {
                let from = self.below(self.nodes.len());
                self.pull(node, from);
            }
        }
    }

    fn pull(&mut self, node: usize, from: usize) -> bool {
        if node == from {
            return false;
        }
        let [node, from] = self.nodes.get_disjoint_mut([node, from]).unwrap();
        node.pull(from)
    }

    /// Sets clocks right, lets an older future pass, and lets nodes read from each other until all are equal.
    fn settle(&mut self, seed: u64) {
        for node in &self.nodes {
            node.clock.store(self.now_ms, Relaxed);
        }
        self.pass(100 * HOUR_MS);
        self.nodes.iter_mut().for_each(Node::clean_up);
        // Each of these brings all of one node to another, so a few for each pair are enough.
        let rounds_max = 20 * self.nodes.len() * self.nodes.len();
        for _ in 0..rounds_max {
            let node = self.below(self.nodes.len());
            let from = self.below(self.nodes.len());
            if self.pull(node, from) {
                continue;
            }
            let digests: BTreeSet<_> =
                self.nodes.iter().map(|node| node.records().digests()).collect();
            if digests.len() == 1 {
                return;
            }
        }
        let first: BTreeSet<_> = rows(self.nodes[0].db()).into_iter().collect();
        for node in &self.nodes {
            let other: BTreeSet<_> = rows(node.db()).into_iter().collect();
            let differing: Vec<_> = first.symmetric_difference(&other).take(9).collect();
            println!("node {}: {differing:#?}", node.number);
        }
        panic!("seed {seed}: nodes differ after {rounds_max} rounds");
    }

    fn change(&mut self, node: usize) {
        let hash = InfoHash([self.below(4) as u8 * 60; 20]);
        let list = [List::Allow, List::Deny, List::Frozen][self.below(3)];
        let network = format!("10.0.{}.0/24", self.below(3));
        let name = format!("n{}", self.next());
        let key = format!("{}-{}", self.below(3), "k".repeat(16));
        let existing = all_keys(self.nodes[node].db()).unwrap();
        let existing: Vec<_> =
            existing.iter().map(|row| row.id).filter(|id| !self.stable.contains(id)).collect();
        let pick = |ids: &[u32], random: &mut Random| match ids.len() as u32 {
            0 => 1,
            len => ids[random.below(len) as usize],
        };
        let op = match self.below(16) {
            0 | 1 => RecordOp::list(list, &[hash], true).remove(0),
            2 => RecordOp::list(list, &[hash], false).remove(0),
            3 | 4 => key_put(key, &name),
            5 => {
                let id = pick(&existing, &mut self.random);
                let is_replaced = self.below(2) == 0 && !ids::is_early(id.into());
                let update = KeyUpdate {
                    key: is_replaced.then_some(key),
                    name: Some(name),
                    torrents: Some(self.below(9) as u32),
                    ..KeyUpdate::default()
                };
                RecordOp::KeyChanged { id, update }
            }
            6 => RecordOp::KeyRemoved { id: pick(&existing, &mut self.random) },
            7 => {
                let now_s = (self.now_ms / 1000) as i64;
                let expires = (self.below(2) == 0).then(|| now_s + self.below(5000) as i64);
                RecordOp::BansPut(vec![BanRow { expires, ..ban(network, name, false) }])
            }
            8 => RecordOp::BanRemoved { network },
            9 => RecordOp::TokenPut(TokenRow { name, ..token(self.below(4) as u8) }),
            10 => {
                let tokens = tokens::all(self.nodes[node].db()).unwrap();
                let ids: Vec<_> = tokens.iter().map(|row| row.id as u32).collect();
                RecordOp::TokenRemoved { id: pick(&ids, &mut self.random).into() }
            }
            11 => RecordOp::WebhookPut(WebhookRow {
                id: 0,
                url: name,
                events: String::new(),
                secret: String::new(),
                created: 1,
                token: Some([self.next() as u8; 32]),
            }),
            12 => {
                let is_ignored = self.below(2) == 0;
                RecordOp::NodeIgnored { node: 200 + self.below(2) as u8, is_ignored }
            }
            13 => RecordOp::ReasonsPut(vec![ReasonRow { info_hash: hash, reason: name }]),
            14 => RecordOp::ReasonsRemoved { hashes: vec![hash] },
            _ => {
                let value = (self.below(3) > 0).then(|| self.next().to_string());
                RecordOp::SettingsPut(vec![(format!("s{}", self.below(3)), value)])
            }
        };
        self.nodes[node].change(op);
    }

    fn count(&mut self, node: usize) {
        let mut pending = PendingCounts::default();
        let existing = all_keys(self.nodes[node].db()).unwrap();
        for row in existing {
            let uploaded = 1 + self.below(100) as u64;
            pending.add(row.id, Totals { uploaded, ..Totals::default() });
            pending.first_uses.insert(row.id, 1000 - self.below(500) as i64);
            *self.totals.entry(row.id).or_default() += uploaded;
        }
        for _ in 0..self.below(4) {
            let torrent = InfoHash([self.below(5) as u8 * 50; 20]);
            pending.add_downloads(torrent, 1);
            *self.downloads.entry(torrent).or_default() += 1;
        }
        if self.below(3) == 0 {
            let network = format!("10.0.{}.0/24", self.below(3));
            pending.bans.push(ban(network, format!("a{}", self.next()), true));
        }
        self.nodes[node].flush(pending);
    }

    /// A change of what is known holds in the end, even if the clock of its node is behind.
    fn check_last_change(&mut self, seed: u64) {
        let node = self.below(self.nodes.len());
        let other = (node + 1) % self.nodes.len();
        self.nodes[node].clock.store(self.now_ms - HOUR_MS / 2, Relaxed);
        let value = format!("\"last {}\"", self.next());
        let setting = |value: &str| RecordOp::SettingsPut(vec![("s0".into(), Some(value.into()))]);
        self.nodes[other].change(setting("1"));
        self.pull(node, other);
        self.nodes[node].change(setting(&value));
        self.settle(seed);
        self.check(seed);
        let last = settings::get(self.nodes[other].db(), "s0").unwrap();
        assert_eq!(last, Some(value), "seed {seed}");
    }

    fn check(&self, seed: u64) {
        let first = rows(self.nodes[0].db());
        for node in &self.nodes {
            let found = rows(node.db());
            let differs = found.iter().zip(&first).find(|(one, other)| one != other);
            assert!(found == first, "seed {seed}: node {}: {differs:?}", node.number);
            let mut memory = node.live.memory.clone();
            // The tracker itself has automatic bans before they are recorded, and knows when they expire.
            let expected = memory_of(node.db());
            memory.bans.clone_from(&expected.bans);
            assert_eq!(memory, expected, "seed {seed}: memory of node {}", node.number);
        }
        let is_exact = |found: u64, counted: u64| match self.faults.rolls_back {
            true => found <= counted,
            false => found == counted,
        };
        for id in &self.stable {
            let row = keys::get(self.nodes[0].db(), *id).unwrap().unwrap();
            let counted = self.totals.get(id).copied().unwrap_or(0);
            let found = row.totals.uploaded;
            assert!(is_exact(found, counted), "seed {seed}: key {id}: {found}, not {counted}");
        }
        let found: BTreeMap<_, _> = downloads(self.nodes[0].db()).unwrap().into_iter().collect();
        for (torrent, counted) in &self.downloads {
            let found = found.get(torrent).copied().unwrap_or_default();
            assert!(
                is_exact(found.into(), (*counted).into()),
                "seed {seed}: {torrent}: {found} downloads, not {counted}"
            );
        }
    }
}

fn all_keys(db: &Connection) -> Result<Vec<KeyRow>, rusqlite::Error> {
    keys::page(db, &KeyFilter::default(), 0, 1000)
}

fn key_put(key: String, name: &str) -> RecordOp {
    RecordOp::KeyPut(KeyRow { key, name: name.into(), created: 1, ..KeyRow::default() })
}

fn ban(network: String, reason: String, automatic: bool) -> BanRow {
    BanRow { network, reason, automatic, created: 1, expires: None }
}

fn play(faults: Faults) {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, 3 + (seed % 3) as u8, faults);
        for _ in 0..2 {
            (0..STEPS).for_each(|_| world.step());
            world.settle(seed);
            world.check(seed);
            world.check_last_change(seed);
            // Messages that are delivered now are weeks late, and change nothing.
            world.pass(600 * HOUR_MS);
        }
        while !world.mail.is_empty() {
            world.deliver();
        }
        world.settle(seed);
        world.check(seed);
    }
}

#[test]
fn nodes_end_with_equal_rows_and_exact_counts() {
    play(Faults::default());
}

#[test]
fn wrong_clocks_keep_nodes_equal() {
    play(Faults { has_wrong_clocks: true, ..Faults::default() });
}

#[test]
fn nodes_that_fall_back_to_backups_become_equal_again() {
    play(Faults { has_wrong_clocks: true, rolls_back: true });
}

#[test]
fn records_from_before_the_cluster_are_united() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, 2, Faults::default());
        // Trackers that were alone, with the same ids and some of the same keys.
        let mut early = [7, 8].map(|number| {
            let mut node = Node::new(0);
            for key in 0..3 {
                assert!(node.change(key_put(format!("{key}-{}", "k".repeat(16)), "alone")));
                let own = format!("own-{number}-{key}-{}", "k".repeat(16));
                assert!(node.change(key_put(own, "own")));
                node.change(RecordOp::TokenPut(token(20 * number + key)));
            }
            let denied = InfoHash([99 + number; 20]);
            node.change(RecordOp::list(List::Deny, &[denied], true).remove(0));
            let mut pending = PendingCounts::default();
            (1..=6).for_each(|id| pending.add(id, Totals { uploaded: 1000, ..Totals::default() }));
            node.flush(pending);
            node.number = number;
            node.clock.store(world.now_ms, Relaxed);
            node.start();
            node
        });
        // A node reads from another before it serves.
        early.iter_mut().for_each(|node| assert!(node.pull(&world.nodes[0])));
        let [first, mut second] = early;
        world.nodes.push(first);
        world.settle(seed);
        second.clock.store(world.now_ms, Relaxed);
        second.pull(&world.nodes[2]);
        world.nodes.push(second);
        world.settle(seed);
        let db = world.nodes[0].db();
        let (keys, tokens) = (all_keys(db).unwrap(), tokens::all(db).unwrap());
        let denied = lists::page(db, List::Deny, None, 1000).unwrap();
        for number in [7, 8] {
            for key in 0..3 {
                let own = format!("own-{number}-{key}-{}", "k".repeat(16));
                let row = keys.iter().find(|row| row.key == own);
                let uploaded = row.map(|row| row.totals.uploaded);
                assert_eq!(uploaded, Some(1000), "seed {seed}: {own}");
                let digest = [20 * number + key; 32];
                assert!(tokens.iter().any(|token| token.digest == digest), "seed {seed}");
            }
            assert!(denied.contains(&InfoHash([99 + number; 20])), "seed {seed}");
        }
        (0..STEPS / 4).for_each(|_| world.step());
        world.settle(seed);
        world.check(seed);
    }
}
