use replication::block::{Block, Change, Header, Kind, Word, encode_changes, write};
use types::{InfoHash, PeerKey};

use super::*;
use crate::snapshot::{MemberState, OutboundState};

const UNIX_MS: u64 = 1_700_000_000_000;

fn at(steady_ms: u64) -> Time {
    Time { steady_ms, unix_ms: UNIX_MS + steady_ms }
}

fn options(restored_ms: Option<u64>) -> Options {
    Options {
        node: 1,
        boot: 500,
        version: "1.2".to_owned(),
        zone: "here".to_owned(),
        policy: 7,
        queue_bytes: 1 << 20,
        peer_lifetime_s: 2700,
        warm_wait_ms: 30_000,
        restored_ms,
    }
}

/// A node, its time, and by how much its wall clock is ahead.
struct Bed {
    node: Node,
    ms: u64,
    ahead_ms: i64,
}

impl Bed {
    fn new(restored_ms: Option<u64>) -> Self {
        Self { node: Node::new(options(restored_ms)), ms: 0, ahead_ms: 0 }
    }

    fn now(&self) -> Time {
        let Time { steady_ms, unix_ms } = at(self.ms);
        Time { steady_ms, unix_ms: unix_ms.saturating_add_signed(self.ahead_ms) }
    }

    fn input(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.node.handle(self.now(), input, &mut out);
        // Blocks are applied at once.
        if let Some(at) = out.iter().position(|output| *output == Output::Settle) {
            out.remove(at);
            out.extend(self.input(Input::Settled));
        }
        out
    }

    /// Lets time pass, and returns what came out.
    fn wait(&mut self, ms: u64) -> Vec<Output> {
        let until = self.ms + ms;
        let mut out = Vec::new();
        while self.ms < until {
            self.ms += 100;
            out.extend(self.input(Input::Tick));
        }
        out
    }

    /// The same, while the log stores what is published, and the node reads it.
    fn wait_storing(&mut self, ms: u64) -> Vec<Output> {
        let mut all = Vec::new();
        for _ in 0..ms / 100 {
            let out = self.wait(100);
            for output in &out {
                if let Output::PublishLog { ticket, message } = output {
                    let sequence = self.node.position().sequence + 1;
                    all.extend(self.input(Input::Stored { ticket: *ticket, sequence }));
                    all.extend(self.logged(sequence, 1, message));
                }
            }
            all.extend(out);
        }
        all
    }

    /// Connects to a log that has messages 1 to `last`, the last one stored at `last_ms`.
    fn connect(&mut self, last: u64, last_ms: u64) -> Vec<Output> {
        self.input(Input::Connected);
        self.look_up(9, 1, last, last_ms);
        self.wait(1300)
    }

    fn look_up(&mut self, stream: u64, first: u64, last: u64, last_ms: u64) -> Vec<Output> {
        let mut out = self.compare_clocks();
        out.extend(self.input(Input::Log { stream, first, last, last_ms }));
        out
    }

    fn compare_clocks(&mut self) -> Vec<Output> {
        self.input(Input::Clock { asked_ms: self.ms, server_ms: UNIX_MS + self.ms })
    }

    fn logged(&mut self, sequence: u64, from: u8, message: &[u8]) -> Vec<Output> {
        self.input(Input::Logged { sequence, stored_ms: UNIX_MS, from, message })
    }

    fn hear(&mut self, from: u8, heartbeat: &Heartbeat) -> Vec<Output> {
        let at_ms = if heartbeat.at_ms == 0 { UNIX_MS + self.ms } else { heartbeat.at_ms };
        let body = Heartbeat { node: from, at_ms, ..heartbeat.clone() }.write();
        self.input(Input::Heartbeat { from, body: &body })
    }

    /// A peer of this node goes.
    fn remove_peer(&mut self) {
        let peer = PeerKey::V4([10, 0, 0, 1, 1, 1]);
        let gone =
            Change { info_hash: InfoHash([7; 20]), peer, word: Word::gone(), is_refresh: false };
        let (mut body, mut block) = (Vec::new(), Vec::new());
        encode_changes(&[gone], &[], &mut body);
        let cut_ms = UNIX_MS + self.ms;
        let header =
            Header { kind: Kind::CHANGES, has_ids: false, node: 1, boot: 500, number: 1, cut_ms };
        write(&header, &body, &mut block);
        self.input(Input::Block(&block));
    }

    fn snapshot(&self) -> Snapshot {
        self.node.snapshot(self.now())
    }
}

fn starts(out: &[Output]) -> Vec<Start> {
    let start = |output: &Output| match output {
        Output::Read(start) => Some(*start),
        _ => None,
    };
    out.iter().filter_map(start).collect()
}

fn is_applied(out: &[Output]) -> bool {
    out.iter().any(|output| matches!(output, Output::Apply { .. }))
}

fn block(kind: Kind, node: u16, boot: u64, number: u64, cut_ms: u64) -> Vec<u8> {
    let header = Header { kind, has_ids: false, node, boot, number, cut_ms };
    let mut bytes = Vec::new();
    write(&header, &[], &mut bytes);
    bytes
}

fn changes(node: u16, boot: u64, number: u64) -> Vec<u8> {
    block(Kind::CHANGES, node, boot, number, UNIX_MS)
}

#[test]
fn heartbeats_are_collected_before_the_log_is_read() {
    let mut bed = Bed::new(None);
    bed.input(Input::Connected);
    bed.look_up(9, 1, 2, UNIX_MS);
    assert_eq!(bed.wait(1100), []);
    let out = bed.wait(200);
    assert_eq!(starts(&out), [Start::First]);
    assert!(out.iter().any(|output| matches!(output, Output::PublishHeartbeat { .. })));
    assert!(!bed.node.is_warm());
    bed.logged(1, 2, &changes(2, 5, 1));
    assert!(!bed.node.is_warm());
    bed.logged(2, 2, &changes(2, 5, 2));
    assert!(bed.node.is_warm());
    assert_eq!(bed.node.position(), Position { stream: 9, sequence: 2 });
}

#[test]
fn a_node_is_warm_when_the_last_block_is_applied() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    let (block, mut out) = (changes(2, 5, 1), Vec::new());
    let logged = Input::Logged { sequence: 1, stored_ms: UNIX_MS, from: 2, message: &block };
    bed.node.handle(at(bed.ms), logged, &mut out);
    // A thread applies it.
    assert!(matches!(out[..], [Output::Apply { .. }, Output::Settle]), "{out:?}");
    assert!(!bed.node.is_warm());
    bed.input(Input::Settled);
    assert!(bed.node.is_warm());
}

#[test]
fn a_node_is_warm_in_time_whatever_happens() {
    let mut bed = Bed::new(None);
    bed.wait(29_000);
    assert!(!bed.node.is_warm());
    bed.wait(1200);
    assert!(bed.node.is_warm());
    // An empty log, and one without anything new, need no message.
    for (last, restored_ms) in [(0, None), (50, Some(UNIX_MS))] {
        let mut bed = Bed::new(restored_ms);
        bed.connect(last, UNIX_MS - 600_000);
        assert!(bed.node.is_warm());
    }
}

#[test]
fn reading_continues_where_it_ended() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    bed.logged(1, 2, &changes(2, 5, 1));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(4, UNIX_MS)), [Start::Sequence(1)]);
    // The last one again, which is the same; and perhaps what was under way before.
    assert_eq!(bed.logged(1, 2, &changes(2, 5, 1)), []);
    assert_eq!(bed.logged(1, 2, &changes(2, 5, 1)), []);
    assert_eq!(bed.snapshot().dropped[DropReason::Repeated as usize], 2);
    // A server that was cut off is behind. What it sends then was applied before.
    bed.logged(4, 2, &changes(2, 5, 4));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(3, UNIX_MS - 9)), [Start::Sequence(4)]);
    assert_eq!(bed.logged(2, 2, &changes(2, 5, 2)), []);
    let shorter = Input::Log { stream: 9, first: 1, last: 3, last_ms: UNIX_MS - 9 };
    for _ in 0..5 {
        bed.wait(5000);
        bed.input(shorter);
        assert_eq!(starts(&bed.wait(200)), [Start::Sequence(4)]);
    }
    // So it was.
    bed.logged(5, 2, &changes(2, 5, 5));
    bed.wait(5000);
    bed.input(shorter);
    assert_eq!(starts(&bed.wait(200)), [Start::Sequence(5)]);
    // A log that has lost its end says so for longer, and is read from there on.
    bed.wait(30_000);
    bed.input(shorter);
    assert_eq!(starts(&bed.wait(200)), [Start::Time(UNIX_MS + 1)]);
    assert_eq!(bed.node.position().sequence, 3);
    // Also if so much has followed that its sequence is there again.
    bed.logged(4, 2, &changes(2, 5, 5));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(9, UNIX_MS + 70)), [Start::Sequence(4)]);
    let block = changes(3, 8, 1);
    let other = Input::Logged { sequence: 4, stored_ms: UNIX_MS + 50, from: 3, message: &block };
    assert_eq!(starts(&bed.input(other)), [Start::Time(UNIX_MS + 1)]);
    assert!(is_applied(&bed.input(other)));
}

/// Returns how many seconds a walk goes back, if one begins.
fn walk_since_s(out: &[Output]) -> Option<u32> {
    out.iter().find_map(|output| match output {
        Output::Walk { since_s } => Some(*since_s),
        _ => None,
    })
}

#[test]
fn a_new_log_is_filled_by_the_first_node() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    bed.logged(1, 2, &changes(2, 5, 1));
    bed.look_up(10, 1, 0, 0);
    let out = bed.wait_storing(300);
    assert_eq!((starts(&out), walk_since_s(&out)), (vec![Start::First], Some(2701)));
}

#[test]
fn what_a_lost_end_of_the_log_had_is_told_again() {
    let mut bed = Bed::new(None);
    bed.connect(9, UNIX_MS);
    bed.logged(9, 2, &changes(2, 5, 1));
    let shorter = Input::Log { stream: 9, first: 1, last: 3, last_ms: UNIX_MS - 20_000 };
    bed.input(shorter);
    bed.wait(200);
    bed.wait(30_000);
    bed.input(shorter);
    let out = bed.wait_storing(300);
    assert_eq!(starts(&out), [Start::Time(UNIX_MS + 1)]);
    // 20 s before, 1.5 s until it was connected, and half a minute of doubt.
    assert!(walk_since_s(&out).is_some_and(|it| (50..56).contains(&it)), "{out:?}");
}

/// Returns how many peers the messages to the log report as gone.
fn told_gone(out: &[Output]) -> usize {
    let gone_in = |message: &[u8]| {
        let groups = Block::read(message).unwrap().0.groups().unwrap();
        groups.map(|group| group.v4.filter(|peer| peer.word.is_gone()).count()).sum::<usize>()
    };
    let messages = out.iter().filter_map(|output| match output {
        Output::PublishLog { message, .. } => Some(gone_in(message)),
        _ => None,
    });
    messages.sum()
}

/// A node that starts would bring them back: its journal does not have the removals of other nodes.
#[test]
fn removals_that_a_lost_log_had_are_told_again() {
    let begin = || {
        let mut bed = Bed::new(None);
        bed.connect(9, UNIX_MS);
        bed.logged(9, 2, &changes(2, 5, 1));
        bed.remove_peer();
        // Published again, because it was not acknowledged.
        assert_eq!(told_gone(&bed.wait_storing(2000)), 1);
        bed
    };
    let mut bed = begin();
    bed.look_up(10, 1, 0, 0);
    assert_eq!(told_gone(&bed.wait_storing(300)), 1);
    let mut bed = begin();
    bed.look_up(9, 1, 3, UNIX_MS - 20_000);
    assert_eq!(told_gone(&bed.wait(30_200)), 0);
    // What others have stored since is new.
    bed.look_up(9, 1, 6, UNIX_MS + 33_000);
    bed.wait(100);
    bed.logged(6, 2, &changes(2, 5, 2));
    assert_eq!(told_gone(&bed.wait_storing(2000)), 1);
}

#[test]
fn a_restored_node_reads_little_and_tells_what_it_did_last() {
    let mut bed = Bed::new(Some(UNIX_MS - 10_000));
    let out = bed.connect(2, UNIX_MS);
    assert_eq!(starts(&out), [Start::Time(UNIX_MS - 130_000)]);
    // Its own block before, and one of another node.
    bed.logged(1, 1, &block(Kind::CHANGES, 1, 400, 8, UNIX_MS - 20_000));
    bed.logged(2, 2, &changes(2, 5, 1));
    let out = bed.wait_storing(300);
    let since_s = walk_since_s(&out);
    assert!(since_s.is_some_and(|it| (140..145).contains(&it)), "{since_s:?}");
}

#[test]
fn what_is_dropped_is_counted_by_its_reason() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.logged(1, 3, &changes(2, 5, 1));
    bed.logged(2, 2, &block(Kind::CHANGES, 2, 5, 2, UNIX_MS - 2_702_000));
    bed.input(Input::Heartbeat { from: 2, body: b"{" });
    bed.input(Input::Heartbeat { from: 2, body: &[b' '; 5000] });
    bed.hear(0, &Heartbeat::default());
    bed.input(Input::Dropped(DropReason::Secret));
    bed.input(Input::Ignore { node: 2, is_ignored: true });
    bed.logged(3, 2, &changes(2, 5, 3));
    bed.hear(2, &Heartbeat::default());
    let dropped = bed.snapshot().dropped;
    let of = |reason| dropped[reason as usize];
    assert_eq!(DropReason::ALL.map(|reason| reason as usize), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!((of(DropReason::Origin), of(DropReason::Old), of(DropReason::Damaged)), (2, 1, 2));
    assert_eq!((of(DropReason::Secret), of(DropReason::Ignored)), (1, 2));
    // The place in the log moves on all the same.
    assert_eq!(bed.node.position().sequence, 3);
    bed.input(Input::Ignore { node: 2, is_ignored: false });
    assert!(is_applied(&bed.logged(4, 2, &changes(2, 5, 4))));
}

#[test]
fn the_younger_of_two_processes_is_mute() {
    let mut bed = Bed::new(None);
    bed.input(Input::Connected);
    bed.look_up(9, 1, 0, 0);
    bed.hear(1, &Heartbeat { boot: 400, ..Heartbeat::default() });
    let block = changes(0, 0, 0);
    let publishes = |out: &[Output]| {
        let is = |output: &Output| {
            matches!(
                output,
                Output::PublishLog { .. }
                    | Output::PublishLive { .. }
                    | Output::PublishHeartbeat { .. }
            )
        };
        out.iter().any(is)
    };
    assert!(!publishes(&bed.wait(5000)) && !publishes(&bed.input(Input::Block(&block))));
    assert!(bed.snapshot().is_mute && bed.node.is_warm());
    assert_eq!(bed.snapshot().outbound, OutboundState::Held);
    // It continues when the older one is silent for long, or says good-bye.
    bed.wait(5200);
    assert!(!bed.snapshot().is_mute);
    bed.hear(1, &Heartbeat { boot: 400, ..Heartbeat::default() });
    assert!(bed.snapshot().is_mute);
    bed.hear(1, &Heartbeat { boot: 400, is_leaving: true, ..Heartbeat::default() });
    assert!(!bed.snapshot().is_mute && publishes(&bed.wait(1000)));
    // A younger one is no reason.
    bed.hear(1, &Heartbeat { boot: 600, ..Heartbeat::default() });
    assert!(!bed.snapshot().is_mute);
}

#[test]
fn members_come_and_go() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let heartbeat =
        Heartbeat { boot: 5, version: "x\u{7}".repeat(300), torrents: 4, ..Heartbeat::default() };
    bed.hear(2, &heartbeat);
    let state = |bed: &Bed| bed.snapshot().nodes[0].state;
    let node = &bed.snapshot().nodes[0];
    assert_eq!((node.says.node, node.says.torrents, node.says.version.len()), (2, 4, 64));
    bed.wait(3100);
    assert_eq!(state(&bed), MemberState::Suspect);
    bed.wait(7000);
    assert_eq!(state(&bed), MemberState::Gone);
    bed.hear(2, &heartbeat);
    assert_eq!(state(&bed), MemberState::Alive);
    // A restart, and a late heartbeat of the process before.
    let next = Heartbeat { boot: 6, ..heartbeat.clone() };
    assert!(bed.hear(2, &next).contains(&Output::PurgeWeb { node: 2 }));
    bed.hear(2, &heartbeat);
    bed.hear(2, &Heartbeat { is_leaving: true, ..heartbeat });
    assert_eq!((bed.snapshot().nodes[0].says.boot, state(&bed)), (6, MemberState::Alive));
    bed.hear(2, &Heartbeat { is_leaving: true, ..next });
    assert_eq!(state(&bed), MemberState::Left);
    bed.wait(3_600_000);
    assert!(bed.snapshot().nodes.is_empty() && bed.snapshot().events.len() <= 20);
}

#[test]
fn a_node_that_is_cut_off_removes_no_webtorrent_peers() {
    let purge = Output::PurgeWeb { node: 2 };
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let heartbeat = Heartbeat { boot: 5, ..Heartbeat::default() };
    for node in [2, 3] {
        bed.hear(node, &heartbeat);
    }
    // Both are silent. Then one of them is back, and the other one may be soon.
    assert!(!bed.wait(600_000).contains(&purge));
    let mut out = Vec::new();
    for _ in 0..9 {
        out.extend(bed.hear(3, &heartbeat));
        out.extend(bed.wait(1000));
    }
    assert!(!out.contains(&purge), "{out:?}");
    assert_eq!(out.iter().filter(|it| **it == Output::TellWeb).count(), 1);
    // The one node is silent, and others are not.
    for _ in 0..4 {
        out.extend(bed.hear(3, &heartbeat));
        out.extend(bed.wait(1000));
    }
    assert_eq!(out.iter().filter(|it| **it == purge).count(), 1);
    bed.hear(2, &heartbeat);
    let told = |out: &[Output]| out.contains(&Output::TellWeb);
    assert!(!told(&bed.wait(1900)) && told(&bed.wait(100)));
    // One that has just started knows none.
    bed.hear(2, &Heartbeat { boot: 6, ..heartbeat.clone() });
    assert!(told(&bed.wait(2000)));
    let heartbeat = Heartbeat { boot: 6, ..heartbeat };
    // After a short pause no node has removed anything.
    bed.wait(2500);
    bed.hear(2, &heartbeat);
    assert!(!told(&bed.wait(2500)));
}

#[test]
fn webtorrent_peers_belong_to_processes_that_are_there() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let takes_web = |out: &[Output]| match out {
        [Output::Apply { takes_web, .. }] => *takes_web,
        out => panic!("expected one message, found {out:?}"),
    };
    let web = block(Kind::WEB, 2, 5, 1, UNIX_MS);
    assert!(!takes_web(&bed.logged(1, 2, &web)));
    bed.hear(2, &Heartbeat { boot: 5, ..Heartbeat::default() });
    assert!(takes_web(&bed.logged(2, 2, &web)));
    let before = block(Kind::WEB, 2, 4, 1, UNIX_MS);
    assert!(!takes_web(&bed.logged(3, 2, &before)));
    let own = block(Kind::WEB, 1, 500, 1, UNIX_MS);
    assert!(!takes_web(&bed.logged(4, 1, &own)));
}

#[test]
fn messages_that_are_stored_late_are_dropped() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    for (late_ms, is_dropped) in [(44_900, false), (45_000, true)] {
        let message = block(Kind::CHANGES, 2, 5, 1, UNIX_MS - late_ms);
        assert_eq!(is_applied(&bed.logged(late_ms, 2, &message)), !is_dropped);
        let live = Input::Live {
            from: 2,
            message: &block(Kind::CHANGES, 2, 6, 1, UNIX_MS + bed.ms - late_ms),
        };
        assert_eq!(is_applied(&bed.input(live)), !is_dropped);
    }
    assert_eq!(bed.snapshot().dropped[DropReason::Old as usize], 2);
}

/// Returns the time of the cut of the first block that is published to the log.
fn published_cut_ms(out: &[Output]) -> Option<u64> {
    out.iter().find_map(|output| match output {
        Output::PublishLog { message, .. } => Some(Block::read(message).unwrap().0.header.cut_ms),
        _ => None,
    })
}

#[test]
fn blocks_are_by_the_streams_clock_and_applied_by_the_nodes_own() {
    for (ahead_ms, correction_ms) in [(0, 0), (1500, 0), (3_600_000, 3_600_000), (-40_000, -32_000)]
    {
        let mut bed = Bed::new(None);
        bed.ahead_ms = ahead_ms;
        bed.connect(0, 0);
        assert_eq!(bed.snapshot().clock_ahead_ms, ahead_ms);
        let own = block(Kind::CHANGES, 0, 0, 0, bed.now().unix_ms);
        let cut_ms = published_cut_ms(&bed.input(Input::Block(&own))).unwrap();
        assert_eq!(cut_ms, bed.now().unix_ms.saturating_add_signed(-correction_ms));
        let out = bed.logged(1, 2, &changes(2, 5, 1));
        let [Output::Apply { shift_ms, .. }] = out[..] else { panic!("{out:?}") };
        assert_eq!(shift_ms, correction_ms);
    }
}

#[test]
fn a_wrong_clock_is_an_event_until_it_is_right() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let warnings = |out: &[Output]| {
        let is = |output: &&Output| matches!(output, Output::Report { is_warning: true, .. });
        out.iter().filter(is).count()
    };
    assert_eq!(warnings(&bed.compare_clocks()), 0);
    bed.ahead_ms = 2500;
    assert_eq!((warnings(&bed.compare_clocks()), warnings(&bed.compare_clocks())), (1, 0));
    bed.ahead_ms = 0;
    let out = bed.compare_clocks();
    assert!(matches!(out[..], [Output::Report { is_warning: false, .. }]), "{out:?}");
}

#[test]
fn a_machine_that_stood_still_contradicts_nothing_until_it_has_read_the_log() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Block(&changes(0, 0, 0)));
    // Its steady clock stood, too.
    let server_ms = UNIX_MS + bed.ms + 90_000;
    let out = bed.input(Input::Clock { asked_ms: bed.ms, server_ms });
    assert!(out.contains(&Output::Behind(true)), "{out:?}");
    assert_eq!(bed.snapshot().dropped_blocks, 1);
    bed.input(Input::Disconnected);
    bed.input(Input::Connected);
    bed.input(Input::Log { stream: 9, first: 1, last: 1, last_ms: server_ms });
    assert!(!bed.wait(2000).iter().any(|it| matches!(it, Output::Walk { .. })));
    let out = bed.logged(1, 2, &changes(2, 5, 1));
    assert!(!out.contains(&Output::Behind(false)), "{out:?}");
    // Nor until it has read a message of its own, before which all is that others have told.
    let out = bed.wait_storing(1500);
    assert!(out.contains(&Output::Behind(false)), "{out:?}");
    let is_walk = |it: &Output| matches!(it, Output::Walk { since_s: 92..96 });
    assert!(out.iter().any(is_walk), "{out:?}");
}

#[test]
fn lag_is_the_age_of_what_is_missing() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let stored = |sequence| Position { stream: 9, sequence };
    let lag_ms = |bed: &Bed| bed.snapshot().nodes[0].lag_ms;
    bed.hear(2, &Heartbeat { boot: 5, stored: stored(0), ..Heartbeat::default() });
    for second in 0..5 {
        bed.wait(1000);
        bed.hear(2, &Heartbeat { boot: 5, stored: stored(1 + second), ..Heartbeat::default() });
    }
    bed.wait(100);
    assert_eq!(lag_ms(&bed), 5100 - 1000);
    bed.logged(5, 2, &changes(2, 5, 5));
    bed.wait(100);
    assert_eq!(lag_ms(&bed), 0);
    // What the other node could not store is missing, too.
    bed.hear(
        2,
        &Heartbeat { boot: 5, stored: stored(5), unstored_ms: 8000, ..Heartbeat::default() },
    );
    bed.wait(9000);
    assert!(lag_ms(&bed) >= 8000);
}

#[test]
fn a_node_that_lacks_peers_asks_the_one_that_has_most() {
    let heartbeat = |peers: u64| Heartbeat {
        boot: 5,
        policy: 7,
        warmth: Warmth::Warm,
        outbound: OutboundState::Flowing,
        peers: [peers, peers, 0],
        ..Heartbeat::default()
    };
    let asks = |out: &[Output]| {
        let asks = |output: &Output| match output {
            Output::PublishHeartbeat { body } => Heartbeat::read(body).unwrap().asks,
            _ => 0,
        };
        out.iter().map(asks).filter(|node| *node > 0).collect::<Vec<_>>()
    };
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Figures(Figures { peers: [100, 100, 900], ..Figures::default() }));
    let mut out = Vec::new();
    for _ in 0..30 {
        bed.hear(2, &heartbeat(120));
        // It expires peers at other times, or may not have told all.
        bed.hear(3, &Heartbeat { policy: 8, ..heartbeat(900) });
        bed.hear(4, &Heartbeat { outbound: OutboundState::CatchingUp, ..heartbeat(900) });
        out.extend(bed.wait(1000));
    }
    assert_eq!(asks(&out), [2]);
    // The other way, twice within a minute.
    let asking = Heartbeat { asks: 1, ..heartbeat(50) };
    bed.hear(2, &asking);
    let out = bed.wait_storing(300);
    assert!(out.contains(&Output::Walk { since_s: 2701 }), "{out:?}");
    bed.input(Input::WalkEnded);
    bed.hear(2, &asking);
    assert!(!bed.wait_storing(300).iter().any(|output| matches!(output, Output::Walk { .. })));
}

#[test]
fn a_heartbeat_of_another_version_is_read() {
    let body =
        br#"{"node":2,"boot":7,"at_ms":1,"is_faster":true,"warmth":"lukewarm","outbound":"x"}"#;
    let heartbeat = Heartbeat::read(body).unwrap();
    assert_eq!((heartbeat.node, heartbeat.boot, heartbeat.torrents), (2, 7, 0));
    assert_eq!((heartbeat.warmth, heartbeat.outbound), (Warmth::Connecting, OutboundState::Held));
    assert_eq!(Heartbeat::read(br#"{"node":300}"#), None);
    let longest =
        Heartbeat { version: "v".repeat(64), zone: "z".repeat(64), ..Heartbeat::default() };
    assert!(longest.write().len() < 1500);
}

#[test]
fn what_a_node_sends_too_fast_is_dropped() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let header = Header {
        kind: Kind::SESSIONS,
        has_ids: false,
        node: 2,
        boot: 5,
        number: 1,
        cut_ms: UNIX_MS,
    };
    let mut large = Vec::new();
    write(&header, &vec![0; replication::block::BODY_MAX], &mut large);
    let dropped = |bed: &Bed| bed.snapshot().dropped[DropReason::Rate as usize];
    // 256 MiB at once, of which 128 pass.
    (1..=512).for_each(|sequence| drop(bed.logged(sequence, 2, &large)));
    assert!((250..260).contains(&dropped(&bed)), "{}", dropped(&bed));
    // Others are heard.
    let before = dropped(&bed);
    assert!(is_applied(&bed.logged(513, 3, &changes(3, 5, 1))));
    (0..512).for_each(|_| drop(bed.input(Input::Live { from: 2, message: &large })));
    assert!(dropped(&bed) > before);
    assert_eq!(bed.node.position().sequence, 513);
}

#[test]
fn a_node_with_a_wrong_clock_reads_all_of_the_log() {
    // It was ahead when it wrote its journal.
    let mut bed = Bed::new(Some(UNIX_MS + 3_600_000));
    assert_eq!(starts(&bed.connect(50, UNIX_MS)), [Start::First]);
    // It is ahead now.
    for (ahead_ms, expected) in [(1000, Start::Time(UNIX_MS - 120_000)), (10_000, Start::First)] {
        let mut bed = Bed::new(Some(UNIX_MS));
        bed.ahead_ms = ahead_ms;
        assert_eq!(starts(&bed.connect(50, UNIX_MS)), [expected]);
        let message = changes(2, 5, 1);
        bed.input(Input::Logged { sequence: 50, stored_ms: UNIX_MS, from: 2, message: &message });
        let is_walk = |output: &Output| matches!(output, Output::Walk { .. });
        assert_eq!(bed.wait_storing(300).iter().any(is_walk), expected != Start::First);
    }
}

/// Returns the repairs that were begun: the node and the kinds.
fn repairs(out: &[Output]) -> Vec<(u8, Vec<u8>)> {
    let repair = |output: &Output| match output {
        Output::Repair { node, kinds } => Some((*node, kinds.clone())),
        _ => None,
    };
    out.iter().filter_map(repair).collect()
}

/// A node that hears others once a second.
impl Bed {
    /// Lets time pass while these nodes have these digests. Returns the repairs that were begun.
    fn hear_rows(&mut self, seconds: u64, nodes: &[(u8, &[u64])]) -> Vec<(u8, Vec<u8>)> {
        let mut begun = Vec::new();
        for _ in 0..seconds {
            for (node, rows) in nodes {
                let rows = rows.to_vec();
                let out = self.hear(*node, &Heartbeat { boot: 5, rows, ..Heartbeat::default() });
                begun.extend(repairs(&out));
            }
            begun.extend(repairs(&self.wait(1000)));
        }
        begun
    }

    fn differs(&self, node: u8) -> Vec<u8> {
        let nodes = self.snapshot().nodes;
        nodes.iter().find(|it| it.says.node == node).unwrap().differs.clone()
    }
}

#[test]
fn rows_that_differ_are_repaired_when_they_do_for_three_heartbeats() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Rows(&[1, 2, 3]));
    assert_eq!(bed.hear_rows(3, &[(2, &[1, 2, 3])]), []);
    // Changes were on their way; then not.
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3])]), []);
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 2, 3])]), []);
    assert_eq!(bed.hear_rows(4, &[(2, &[1, 9, 3])]), [(2, vec![1])]);
    assert_eq!(bed.differs(2), [1]);
    // One at a time, and after a pause that grows.
    assert_eq!(bed.hear_rows(20, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), []);
    bed.input(Input::Repaired);
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), [(3, vec![0])]);
    bed.input(Input::Repaired);
    bed.input(Input::Rows(&[0, 2, 3]));
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), []);
    assert_eq!(bed.hear_rows(3, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), [(2, vec![0, 1])]);
    assert!(bed.snapshot().nodes[0].differs_ms > 20_000);
}

#[test]
fn a_node_that_is_heard_anew_is_repaired_from_at_once() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Rows(&[1, 2]));
    // Of a later version, which has another kind; and of one that has no rows.
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 7, 3]), (3, &[])]), [(2, vec![1])]);
    assert_eq!((bed.differs(2), bed.differs(3)), (vec![1], vec![]));
    bed.input(Input::Repaired);
    // It was away.
    bed.wait(60_000);
    assert!(bed.differs(2).is_empty());
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 7])]), [(2, vec![1])]);
    bed.input(Input::Repaired);
    // An ignored node is not asked.
    bed.input(Input::Ignore { node: 2, is_ignored: true });
    assert_eq!(bed.hear_rows(60, &[(2, &[1, 7])]), []);
}
