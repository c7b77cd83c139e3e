use primitives::Random;

use super::*;

const HEADER: Header = Header {
    kind: Kind::WALK,
    has_ids: false,
    node: 0x0102,
    boot: 0x0304_0506_0708_090a,
    number: 0x0b0c,
    cut_ms: 0x0d0e_0f10_1112,
};

/// A decoded group: info hash, downloads and birth, peers.
type PlainGroup = ([u8; 20], Option<(u32, u32)>, Vec<(PeerKey, u16, Option<[u8; 20]>)>);

fn plain(groups: Groups<'_>) -> Vec<PlainGroup> {
    let plain = |group: Group<'_>| {
        let v4 = group.v4.map(|peer| (PeerKey::V4(peer.key), peer.word.0, peer.id.map(|id| id.0)));
        let v6 = group.v6.map(|peer| (PeerKey::V6(peer.key), peer.word.0, peer.id.map(|id| id.0)));
        let head = group.head.map(|head| (head.downloads, head.born_min));
        (group.info_hash.0, head, v4.chain(v6).collect())
    };
    groups.map(plain).collect()
}

fn some_peer(random: &mut Random) -> (PeerKey, Word) {
    let mut key = [0; 18];
    key.fill_with(|| random.next() as u8);
    let [a, b, c, d, e, f, ..] = key;
    let peer =
        if random.below(3) == 0 { PeerKey::V6(key) } else { PeerKey::V4([a, b, c, d, e, f]) };
    (peer, Word(random.next() as u16))
}

fn some_id(random: &mut Random) -> PeerId {
    PeerId([random.next() as u8; 20])
}

fn block_of(header: Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&header, body, &mut bytes);
    bytes
}

#[test]
fn the_bytes_of_a_block_are_these() {
    let mut body = Vec::new();
    let head = Head { downloads: 0x0102_0304, born_min: 0x0506_0708 };
    let mut group = GroupWriter::new(&mut body, InfoHash([0xaa; 20]), Some(head));
    group.push(PeerKey::V4([1, 2, 3, 4, 5, 6]), Word::present(9, Role::Seeder, true), None);
    group.push(PeerKey::V6([0xbb; 18]), Word::gone(), None);
    drop(group);
    let mut expected = vec![0xaa; 20];
    expected.extend([1, 0, 1, 0, 4, 3, 2, 1, 8, 7, 6, 5]);
    expected.extend([1, 2, 3, 4, 5, 6, 9, 0xa0]);
    expected.extend([0xbb; 18]);
    expected.extend([0, 0xc0]);
    assert_eq!(body, expected);
    let bytes = block_of(HEADER, &body);
    assert_eq!(bytes[..8], [b'T', b'G', b'B', b'1', 1, 0, 2, 1]);
    assert_eq!(bytes[8..16], [0x0a, 9, 8, 7, 6, 5, 4, 3]);
    assert_eq!(
        bytes[16..32],
        [0x0c, 0x0b, 0, 0, 0, 0, 0, 0, 0x12, 0x11, 0x10, 0x0f, 0x0e, 0x0d, 0, 0]
    );
    assert_eq!(bytes[32..36], [60, 0, 0, 0]);
    // The check value of CRC-32C (RFC 3720, B.4: 32 bytes of zeros).
    assert_eq!(checksum(&[0; 20], &[0; 12]), 0x8a91_36aa);
    assert_eq!(bytes[40..], body);
}

#[test]
fn the_body_has_a_limit() {
    let mut bytes = block_of(HEADER, &vec![0; BODY_MAX]);
    assert_eq!(Block::read(&bytes).unwrap().1, HEADER_LEN + BODY_MAX);
    bytes[32..36].copy_from_slice(&(BODY_MAX as u32 + 1).to_le_bytes());
    bytes.push(0);
    assert_eq!(Block::read(&bytes).map(drop), Err(BlockError::TooLong));
}

/// Every word means something, and no peer is gone and completed.
#[test]
fn no_word_is_nonsense() {
    for word in (0..=u16::MAX).map(Word) {
        assert!(word.age() <= 8190);
        assert_eq!(word.is_gone(), word.0 >= 0xc000);
        assert!(!(word.is_gone() && word.is_completed()));
        if !word.is_gone() && !word.is_completed() {
            assert_eq!(Word::present(word.age(), word.role(), word.is_counted()), word);
        }
    }
}

#[test]
fn changes_are_grouped_by_torrent_and_stay_in_order() {
    let mut random = Random::new(8);
    for round in 0..100 {
        let has_ids = round % 2 == 0;
        let peers: Vec<_> = (0..10).map(|_| some_peer(&mut random).0).collect();
        let change = |random: &mut Random| Change {
            info_hash: InfoHash([random.below(4) as u8; 20]),
            peer: peers[random.below(10) as usize],
            word: Word(random.next() as u16),
            is_refresh: random.below(2) == 0,
        };
        let changes: Vec<_> = (0..60).map(|_| change(&mut random)).collect();
        let ids: Vec<_> = changes.iter().map(|_| some_id(&mut random)).collect();
        let ids = if has_ids { ids } else { Vec::new() };
        let mut body = Vec::new();
        encode_changes(&changes, &ids, &mut body);
        assert!(body.len() <= changes.len() * CHANGE_BYTES_MAX);
        let header = Header { kind: Kind::CHANGES, has_ids, ..HEADER };
        let groups = Block { header, body: &body }.groups().unwrap();
        let groups = plain(groups);
        assert!(groups.is_sorted_by_key(|(info_hash, ..)| *info_hash));
        assert!(groups.len() <= 4);
        for torrent in 0..4 {
            for peer in &peers {
                let is_it = |change: &&Change| {
                    change.info_hash == InfoHash([torrent; 20]) && change.peer == *peer
                };
                let at =
                    |change: &Change| changes.iter().position(|other| std::ptr::eq(other, change));
                let expected = changes.iter().filter(is_it).map(|change| {
                    let id = at(change).and_then(|at| ids.get(at)).map(|id| id.0);
                    (*peer, change.word.0, id)
                });
                let group = groups.iter().find(|(info_hash, ..)| *info_hash == [torrent; 20]);
                let found = group.iter().flat_map(|(.., peers)| peers.iter().copied());
                let found: Vec<_> = found.filter(|(other, ..)| other == peer).collect();
                assert_eq!(found, expected.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_torrent_continues_in_another_group() {
    let mut body = Vec::new();
    let head = Some(Head { downloads: 3, born_min: 4 });
    let mut group = GroupWriter::new(&mut body, InfoHash([1; 20]), head);
    for port in 0..70_000_u32 {
        let [_, a, b, c] = port.to_be_bytes();
        group.push(PeerKey::V4([1, 2, 3, a, b, c]), Word(1), None);
    }
    group.push(PeerKey::V6([6; 18]), Word(2), None);
    group.push(PeerKey::V4([9; 6]), Word(3), None);
    drop(group);
    let groups = Groups::check(&body, true, false).unwrap();
    let lens: Vec<_> = groups.map(|group| (group.v4.len(), group.v6.len())).collect();
    assert_eq!(lens, [(65_535, 0), (4465, 1), (1, 0)]);
    let mut groups = groups;
    assert!(groups.all(|group| group.info_hash == InfoHash([1; 20]) && group.head == head));
}
