use super::*;

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
    assert_eq!(bed.snapshot().queue.log, LogState::Held);
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
    assert_eq!((node.node, node.torrents, node.version.len()), (2, 4, 64));
    bed.wait(3100);
    assert_eq!(state(&bed), NodeState::Suspect);
    bed.wait(7000);
    assert_eq!(state(&bed), NodeState::Gone);
    bed.hear(2, &heartbeat);
    assert_eq!(state(&bed), NodeState::Alive);
    // A restart, and a late heartbeat of the process before.
    let next = Heartbeat { boot: 6000 << 8, ..heartbeat.clone() };
    assert!(bed.hear(2, &next).contains(&Output::PurgeWeb { node: 2 }));
    bed.hear(2, &heartbeat);
    bed.hear(2, &Heartbeat { is_leaving: true, ..heartbeat });
    assert_eq!((bed.snapshot().nodes[0].started, state(&bed)), (6, NodeState::Alive));
    bed.hear(2, &Heartbeat { is_leaving: true, ..next });
    assert_eq!(state(&bed), NodeState::Left);
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
fn a_heartbeat_of_another_version_is_read() {
    let body =
        br#"{"node":2,"boot":7,"at_ms":1,"is_faster":true,"warmth":"lukewarm","outbound":"x"}"#;
    let heartbeat = Heartbeat::read(body).unwrap();
    assert_eq!((heartbeat.node, heartbeat.boot, heartbeat.torrents), (2, 7, 0));
    assert_eq!((heartbeat.warmth, heartbeat.outbound), (Warmth::Connecting, LogState::Held));
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
