use replication::block::{Header, write};

use super::*;

fn block(kind: Kind, node: u16, boot: u64, number: u64) -> Vec<u8> {
    let header = Header { kind, has_ids: false, node, boot, number, cut_ms: 5 };
    let mut bytes = Vec::new();
    write(&header, &[], &mut bytes);
    bytes
}

fn changes(boot: u64, number: u64) -> Vec<u8> {
    block(Kind::CHANGES, 2, boot, number)
}

#[test]
fn what_is_no_block_of_its_node_is_dropped() {
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
    both(2, &block(Kind(9), 2, 1, 1), DropReason::Kind);
    both(2, &block(Kind::ROUND, 2, 1, 1), DropReason::Kind);
    let mut bad_groups = Vec::new();
    let header = Header { node: 2, ..Block::read(&good).unwrap().0.header };
    write(&header, &[1, 2, 3], &mut bad_groups);
    both(2, &bad_groups, DropReason::Damaged);
}

#[test]
fn live_blocks_that_the_log_has_are_dropped() {
    let mut inbound = Inbound::default();
    assert_eq!(inbound.live(0, 2, &changes(1, 3)).map(|it| it.applied), Ok(3));
    inbound.logged(0, 2, &changes(1, 4)).unwrap();
    assert_eq!(inbound.live(0, 2, &changes(1, 4)).map(drop), Err(DropReason::Repeated));
    assert_eq!(inbound.live(0, 2, &changes(1, 3)).map(drop), Err(DropReason::Repeated));
    assert_eq!(inbound.live(0, 2, &changes(1, 5)).map(|it| it.applied), Ok(5));
    assert!(inbound.live(0, 2, &changes(2, 1)).is_ok());
}

#[test]
fn processes_that_are_remembered_are_few() {
    let mut inbound = Inbound::default();
    for boot in 0..1000 {
        inbound.logged(0, 2, &changes(boot, 1)).unwrap();
    }
    assert_eq!(inbound.origins[&2].boots.len(), BOOTS);
}
