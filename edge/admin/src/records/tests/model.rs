//! Several records joined by a stream in memory, in orders that a seed chooses. In the end all rows are equal
//! everywhere, and so is the memory; totals are exact.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use super::super::tables::bans::{self, BanRow};
use super::super::tables::cluster;
use super::super::tables::keys::{KeyRow, KeyUpdate, Rules};
use super::super::tables::settings;
use super::super::tables::webhooks::{self, WebhookRow};
use super::super::{ChangeSource, RecordOp, StreamPosition, replica, snapshot};
use super::*;

/// Runs the model with these seeds.
const SEEDS: u64 = 8;
const STEPS: usize = 250;
/// The time, unix ms: the tests do not depend on it.
static NOW: AtomicU64 = AtomicU64::new(1_700_000_000_000);

/// Random numbers by a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// What the memory of a node holds: changed only by effects.
#[derive(Clone, Default, PartialEq, Debug)]
struct Memory {
    lists: BTreeSet<(String, InfoHash)>,
    keys: BTreeMap<u32, String>,
    bans: BTreeMap<String, String>,
    tokens: BTreeSet<(i64, u8)>,
    webhooks: BTreeMap<i64, String>,
    settings: BTreeMap<String, String>,
}

#[derive(Default)]
struct ModelLive {
    memory: Memory,
    pending: PendingCounts,
}

fn rules_text(row: &KeyRow) -> String {
    format!("{} {} {:?}", row.key, row.name, row.rules)
}

impl LiveState for ModelLive {
    fn collect(&mut self, pending: &mut PendingCounts) {
        *pending = std::mem::take(&mut self.pending);
    }

    fn apply(&mut self, change: RecordOp, source: ChangeSource<'_>) {
        let memory = &mut self.memory;
        match change {
            RecordOp::ListAdded { list, hashes } => {
                memory.lists.extend(hashes.into_iter().map(|hash| (format!("{list:?}"), hash)));
            }
            RecordOp::ListRemoved { list, hashes } => {
                let list = format!("{list:?}");
                memory.lists.retain(|(of, hash)| *of != list || !hashes.contains(hash));
            }
            RecordOp::KeyPut(row) => {
                // As the tracker: a key has one id.
                memory.keys.retain(|_, text| !text.starts_with(&row.key));
                memory.keys.insert(row.id, rules_text(&row));
            }
            RecordOp::KeyRemoved { id } => drop(memory.keys.remove(&id)),
            RecordOp::BansPut(rows) => {
                memory.bans.extend(rows.into_iter().map(|row| (row.network, row.reason)));
            }
            RecordOp::BanRemoved { network } => drop(memory.bans.remove(&network)),
            RecordOp::TokenPut(row) => {
                memory.tokens.retain(|(_, digest)| *digest != row.digest[0]);
                memory.tokens.insert((row.id, row.digest[0]));
            }
            RecordOp::TokenRemoved { id } => memory.tokens.retain(|(of, _)| *of != id),
            RecordOp::WebhookPut(row) => drop(memory.webhooks.insert(row.id, row.url)),
            RecordOp::WebhookRemoved { id } => drop(memory.webhooks.remove(&id)),
            RecordOp::SettingsPut(values) => match source {
                ChangeSource::Cluster(db) => {
                    memory.settings = settings::texts(db).unwrap().into_iter().collect();
                }
                ChangeSource::Here => {
                    for (name, value) in values {
                        memory.settings.remove(&name);
                        memory.settings.extend(value.map(|value| (name, value)));
                    }
                }
            },
            _ => {}
        }
    }
}

/// All rows of a node as text.
fn rows(db: &Connection) -> Vec<String> {
    let tables = [
        "allowed",
        "denied",
        "frozen",
        "keys",
        "bans",
        "tokens",
        "webhooks",
        "settings",
        "ignored_nodes",
    ];
    let mut all = Vec::new();
    for table in tables {
        let mut select = db.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns = select.column_count();
        let mut found = select.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<_> =
                (0..columns).map(|column| format!("{:?}", row.get_ref(column).unwrap())).collect();
            all.push(format!("{table}: {}", values.join(" ")));
        }
    }
    all
}

/// What the memory must hold for these rows.
fn memory_of(db: &Connection) -> Memory {
    let mut memory = Memory::default();
    for list in [List::Allow, List::Deny, List::Frozen] {
        let hashes = lists::page(db, list, None, 1000).unwrap();
        memory.lists.extend(hashes.into_iter().map(|hash| (format!("{list:?}"), hash)));
    }
    let keys = keys::page(db, 0, 1000).unwrap();
    memory.keys = keys.iter().map(|row| (row.id, rules_text(row))).collect();
    let bans = bans::page(db, 0, "", 1000).unwrap();
    memory.bans = bans.into_iter().map(|row| (row.network, row.reason)).collect();
    memory.tokens = tokens::all(db).unwrap().iter().map(|row| (row.id, row.digest[0])).collect();
    memory.webhooks = webhooks::all(db).unwrap().into_iter().map(|row| (row.id, row.url)).collect();
    memory.settings = settings::texts(db).unwrap().into_iter().collect();
    memory
}

struct Node {
    number: u8,
    folder: Rc<Directory>,
    open: Option<(Records, Writer)>,
    live: ModelLive,
}

impl Node {
    fn new(number: u8) -> Self {
        let folder = Rc::new(Directory::new().unwrap());
        let mut node = Self { number, folder, open: None, live: ModelLive::default() };
        node.start();
        node
    }

    /// Opens the records, as a process that starts.
    fn start(&mut self) {
        self.open = None;
        let (records, mut writer) = Records::open(Some(self.folder.root())).unwrap();
        writer.replicate(self.number, || NOW.load(Relaxed)).unwrap();
        self.live = ModelLive { memory: memory_of(writer.connection()), ..ModelLive::default() };
        self.open = Some((records, writer));
    }

    fn db(&self) -> &Connection {
        self.open.as_ref().unwrap().1.connection()
    }

    /// Runs an operation of the records and the writer by turns.
    fn wait<'a, T: 'a>(
        &'a mut self,
        operation: impl AsyncFnOnce(&'a Records) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
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
        let (_, writer) = self.open.as_mut().unwrap();
        writer.flush(&mut self.live, &mut PendingCounts::default());
    }

    fn outgoing(&self) -> Option<(u64, Vec<u8>)> {
        let epoch = cluster::identity(self.db()).unwrap().unwrap().epoch;
        let (number, at, ops) = cluster::next(self.db(), 0, true).unwrap()?;
        Some((number, replica::entry_text(epoch, number, at, &ops).into_bytes()))
    }

    fn merge(&mut self, parts: &[Vec<u8>]) {
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let merged = self.wait(async |records| records.merge_snapshot(part, is_last).await);
            merged.unwrap();
        }
    }
}

/// Nodes, and the stream between them.
struct World {
    nodes: Vec<Node>,
    /// When the stream was made.
    stream: u64,
    messages: Vec<(u8, Vec<u8>)>,
    random: Random,
    /// What was counted by key.
    totals: BTreeMap<u32, u64>,
    /// Keys that are never removed.
    stable: Vec<u32>,
    counter: Cell<u64>,
}

impl World {
    fn new(seed: u64, nodes: u8) -> Self {
        let mut world = Self {
            nodes: (1..=nodes).map(Node::new).collect(),
            stream: 1,
            messages: Vec::new(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            totals: BTreeMap::new(),
            stable: Vec::new(),
            counter: Cell::new(0),
        };
        for node in &mut world.nodes {
            node.wait(async |records| records.join_alone().await).unwrap();
        }
        for node in 0..world.nodes.len() {
            world.nodes[node].change(key_put(0, format!("stable-{node}-{}", "x".repeat(16)), "s"));
            let rows = keys::page(world.nodes[node].db(), 0, 9).unwrap();
            world.stable.push(rows[0].id);
        }
        world.settle();
        world
    }

    fn next(&self) -> u64 {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    fn publish(&mut self, node: usize, is_acknowledged: bool) -> bool {
        let Some((number, body)) = self.nodes[node].outgoing() else { return false };
        self.messages.push((self.nodes[node].number, body));
        if is_acknowledged {
            let marked = self.nodes[node].wait(async |records| records.mark_stored(number).await);
            marked.unwrap();
        }
        true
    }

    fn read(&mut self, node: usize) -> bool {
        let stream = self.stream;
        let node = &mut self.nodes[node];
        let position = node.open.as_ref().unwrap().0.position();
        let read = if position.stream == stream { position.sequence } else { 0 };
        let Some((from, body)) = self.messages.get(read as usize) else { return false };
        let position = StreamPosition { stream, sequence: read + 1 };
        let applied = node.wait(async |records| records.apply_remote(position, *from, body).await);
        applied.unwrap();
        true
    }

    /// Publishes and reads until nothing is left.
    fn settle(&mut self) {
        for _ in 0..3 {
            for node in 0..self.nodes.len() {
                while self.publish(node, true) {}
                self.nodes[node].flush(PendingCounts::default());
            }
        }
        for node in 0..self.nodes.len() {
            while self.read(node) {}
        }
    }

    fn delete_stream(&mut self) {
        self.stream += 1;
        self.messages.clear();
        for node in &mut self.nodes {
            node.wait(async |records| records.publish_again().await).unwrap();
        }
    }

    fn resync(&mut self, node: usize, from: usize) {
        while self.publish(from, true) {}
        while self.read(from) {}
        assert!(cluster::has_settled(self.nodes[from].db()).unwrap());
        let parts = snapshot::all_parts(self.nodes[from].db()).unwrap();
        self.nodes[node].merge(&parts);
    }

    fn step(&mut self) {
        let node = self.random.below(self.nodes.len());
        match self.random.below(20) {
            0..6 => self.change(node),
            6..8 => self.count(node),
            8..12 => drop(self.publish(node, true)),
            12 => drop(self.publish(node, false)),
            13..19 => drop(self.read(node)),
            _ => self.nodes[node].start(),
        }
    }

    fn change(&mut self, node: usize) {
        let hash = InfoHash([self.random.below(4) as u8; 20]);
        let list = [List::Allow, List::Deny, List::Frozen][self.random.below(3)];
        let network = format!("10.0.{}.0/24", self.random.below(3));
        let name = format!("n{}", self.next());
        let key = format!("{}-{}", self.random.below(3), "k".repeat(16));
        let existing = keys::page(self.nodes[node].db(), 0, 100).unwrap();
        let existing: Vec<_> =
            existing.iter().map(|row| row.id).filter(|id| !self.stable.contains(id)).collect();
        let pick = |ids: &[u32], random: &mut Random| match ids.len() {
            0 => 1,
            len => ids[random.below(len)],
        };
        let op = match self.random.below(12) {
            0 | 1 => RecordOp::list(list, &[hash], true).remove(0),
            2 => RecordOp::list(list, &[hash], false).remove(0),
            3 => key_put(0, key, &name),
            4 => RecordOp::KeyChanged(KeyUpdate {
                id: pick(&existing, &mut self.random),
                name: Some(name),
                torrents: Some(self.random.below(9) as u32),
                ..KeyUpdate::default()
            }),
            5 => RecordOp::KeyRemoved { id: pick(&existing, &mut self.random) },
            6 => RecordOp::BansPut(vec![ban(network, name, false)]),
            7 => RecordOp::BanRemoved { network },
            8 => RecordOp::TokenPut(TokenRow { name, ..token(self.next() as u8) }),
            9 => {
                let tokens = tokens::all(self.nodes[node].db()).unwrap();
                let ids: Vec<_> = tokens.iter().map(|row| row.id as u32).collect();
                RecordOp::TokenRemoved { id: pick(&ids, &mut self.random).into() }
            }
            10 => RecordOp::WebhookPut(WebhookRow {
                id: 0,
                url: name,
                events: String::new(),
                secret: String::new(),
                created: 1,
                token: Some([self.next() as u8; 32]),
            }),
            _ => {
                let value = (self.random.below(3) > 0).then(|| self.next().to_string());
                RecordOp::SettingsPut(vec![(format!("s{}", self.random.below(3)), value)])
            }
        };
        self.nodes[node].change(op);
    }

    fn count(&mut self, node: usize) {
        let mut pending = PendingCounts::default();
        let existing = keys::page(self.nodes[node].db(), 0, 100).unwrap();
        for row in existing {
            let uploaded = 1 + self.random.below(100) as u64;
            pending.add(row.id, Totals { uploaded, ..Totals::default() });
            pending.first_uses.push((row.id, 1000 - self.random.below(500) as i64));
            *self.totals.entry(row.id).or_default() += uploaded;
        }
        if self.random.below(3) == 0 {
            let network = format!("10.0.{}.0/24", self.random.below(3));
            pending.bans.push(ban(network, format!("a{}", self.next()), true));
        }
        self.nodes[node].flush(pending);
    }

    fn check(&self, seed: u64) {
        let first = rows(self.nodes[0].db());
        for node in &self.nodes {
            let found = rows(node.db());
            let differs = found.iter().zip(&first).find(|(one, other)| one != other);
            assert!(found == first, "seed {seed}: node {}: {differs:?}", node.number);
            let mut memory = node.live.memory.clone();
            // The tracker itself has automatic bans before they are recorded.
            let expected = memory_of(node.db());
            memory.bans.clone_from(&expected.bans);
            assert_eq!(memory, expected, "seed {seed}: memory of node {}", node.number);
        }
        for id in &self.stable {
            let row = keys::get(self.nodes[0].db(), *id).unwrap().unwrap();
            let expected = self.totals.get(id).copied().unwrap_or(0);
            assert_eq!(row.totals.uploaded, expected, "seed {seed}: totals of key {id}");
        }
    }
}

fn key_put(id: u32, key: String, name: &str) -> RecordOp {
    let (name, rules, totals) = (name.into(), Rules::default(), Totals::default());
    RecordOp::KeyPut(KeyRow { id, key, name, created: 1, rules, totals, first_used: None })
}

fn ban(network: String, reason: String, automatic: bool) -> BanRow {
    BanRow { network, reason, automatic, created: 1, expires: None }
}

#[test]
fn nodes_end_with_equal_rows_and_exact_totals() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, 2 + (seed % 2) as u8);
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        world.check(seed);
    }
}

#[test]
fn a_snapshot_repairs_what_a_deleted_stream_has_lost() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, 3);
        for _ in 0..3 {
            (0..STEPS / 4).for_each(|_| world.step());
            world.delete_stream();
        }
        world.settle();
        // In part before further changes have come, in part after.
        (0..STEPS / 4).for_each(|_| world.step());
        world.resync(1, 0);
        (0..STEPS / 4).for_each(|_| world.step());
        world.resync(2, 0);
        (0..STEPS / 4).for_each(|_| world.step());
        world.settle();
        world.check(seed);
    }
}

#[test]
fn records_from_before_the_cluster_are_united() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, 2);
        (0..STEPS / 4).for_each(|_| world.step());
        // A tracker that was alone, with the same ids and some of the same keys.
        let folder = Directory::new().unwrap();
        let (records, writer) = Records::open(Some(folder.root())).unwrap();
        let mut alone = Node {
            number: 7,
            folder: Rc::new(folder),
            open: Some((records, writer)),
            live: ModelLive::default(),
        };
        for number in 0..3 {
            assert!(alone.change(key_put(0, format!("{number}-{}", "k".repeat(16)), "alone")));
            assert!(alone.change(key_put(0, format!("own-{number}-{}", "k".repeat(16)), "own")));
            alone.change(RecordOp::TokenPut(token(200 + number)));
        }
        alone.change(RecordOp::list(List::Deny, &[InfoHash([99; 20])], true).remove(0));
        let mut pending = PendingCounts::default();
        (1..=6).for_each(|id| pending.add(id, Totals { uploaded: 1000, ..Totals::default() }));
        alone.flush(pending);
        alone.start();
        let parts = snapshot::all_parts(world.nodes[0].db()).unwrap();
        alone.merge(&parts);
        assert!(alone.open.as_ref().unwrap().0.has_joined());
        world.nodes.push(alone);
        (0..STEPS / 4).for_each(|_| world.step());
        world.settle();
        world.check(seed);
        let keys = keys::page(world.nodes[0].db(), 0, 1000).unwrap();
        for number in 0..3 {
            let own = format!("own-{number}-{}", "k".repeat(16));
            if let Some(row) = keys.iter().find(|row| row.key == own) {
                let counted = world.totals.get(&row.id).copied().unwrap_or(0);
                assert_eq!(row.totals.uploaded, 1000 + counted, "seed {seed}: {own}");
            }
        }
        let denied = lists::page(world.nodes[0].db(), List::Deny, None, 1000).unwrap();
        assert!(denied.contains(&InfoHash([99; 20])), "seed {seed}");
    }
}
