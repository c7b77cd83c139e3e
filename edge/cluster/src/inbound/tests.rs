use replication::block::{Header, write};

use super::*;

fn block(kind: Kind, node: u16, boot: u64, number: u64) -> Vec<u8> {
    let header = Header { kind, has_ids: false, node, boot, number, cut_ms: number };
    let mut bytes = Vec::new();
    write(&header, &[], &mut bytes);
    bytes
}

fn changes(boot: u64, number: u64) -> Vec<u8> {
    block(Kind::CHANGES, 2, boot, number)
}

#[test]
fn what_are_no_blocks_of_a_node_is_dropped() {
    let mut inbound = Inbound::default();
    let good = changes(1, 1);
    let mut both = |from, bytes: &[u8], expected| {
        assert_eq!(inbound.live(0, from, bytes).map(drop), Err(expected));
        assert_eq!(inbound.logged(0, from, bytes).map(drop), Err(expected));
    };
    both(2, &[], DropReason::Damaged);
    both(2, &good[..good.len() - 1], DropReason::Damaged);
    both(2, &[&good[..], &[0]].concat(), DropReason::Damaged);
    both(3, &good, DropReason::Origin);
    both(0, &block(Kind::CHANGES, 0, 1, 1), DropReason::Origin);
    both(2, &block(Kind::CHANGES, 0x102, 1, 1), DropReason::Origin);
    both(2, &[&good[..], &block(Kind::CHANGES, 3, 1, 2)].concat(), DropReason::Origin);
    both(2, &[&good[..], &changes(2, 2)].concat(), DropReason::Damaged);
    let mut bad_groups = Vec::new();
    let header = Header { node: 2, ..Block::read(&good).unwrap().0.header };
    write(&header, &[1, 2, 3], &mut bad_groups);
    both(2, &bad_groups, DropReason::Damaged);
    both(2, &[&good[..], &bad_groups].concat(), DropReason::Damaged);
}

#[test]
fn all_blocks_of_a_message_are_accepted() {
    let mut inbound = Inbound::default();
    let web = block(Kind::WEB, 2, 1, 5);
    let accepted = inbound.logged(0, 2, &[&changes(1, 3)[..], &web].concat()).unwrap();
    assert_eq!((accepted.boot, accepted.first_cut_ms, accepted.last_cut_ms), (1, 3, 5));
    assert!(!accepted.has_unknown);
    // Kinds of blocks that a later version added are left out.
    let later = [&changes(1, 6)[..], &block(Kind(9), 2, 1, 7)].concat();
    assert!(inbound.logged(0, 2, &later).unwrap().has_unknown);
    assert!(inbound.logged(0, 2, &block(Kind::ROUND, 2, 1, 8)).unwrap().has_unknown);
}

#[test]
fn live_messages_that_the_log_has_are_dropped() {
    let mut inbound = Inbound::default();
    assert!(inbound.live(0, 2, &changes(1, 3)).is_ok());
    inbound.logged(0, 2, &changes(1, 4)).unwrap();
    for (boot, number, is_repeated) in [(1, 4, true), (1, 3, true), (1, 5, false), (2, 1, false)] {
        let came = inbound.live(0, 2, &changes(boot, number));
        assert_eq!(came == Err(DropReason::Repeated), is_repeated, "{boot} {number}");
    }
    // Of the process before.
    inbound.logged(0, 2, &changes(2, 1)).unwrap();
    assert_eq!(inbound.live(0, 2, &changes(1, 9)), Err(DropReason::Repeated));
}
