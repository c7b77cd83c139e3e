//! A node of a cluster, and whatever messages come.

use cluster::{DropReason, Input, LogState, Node, Options, Output, Time};
use replication::block::{Header, Kind, write};

/// Bytes of blocks that may wait.
const QUEUE: usize = 4096;

/// No sequence of inputs breaks a node, and what it keeps stays bounded.
///
/// Each input is a byte for its kind, two for time, node and length, and as many bytes of a message.
pub fn check(bytes: &[u8]) {
    let mut node = Node::new(Options {
        node: 1,
        boot: 77,
        version: "1".to_owned(),
        zone: String::new(),
        kinds: &[],
        policy: 1,
        queue_bytes: QUEUE,
        peer_lifetime_s: 2700,
        warm_wait_ms: 3000,
        restored_ms: bytes.first().filter(|first| *first % 2 == 0).map(|_| 1_000_000),
    });
    let mut now = Time { steady_ms: 0, unix_ms: 10_000_000 };
    let (mut rest, mut out, mut sequence) = (bytes, Vec::new(), 0_u64);
    while let [kind, small, len, after @ ..] = rest {
        let (message, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        now.steady_ms += u64::from(*small) * 20;
        // A wall clock may be set.
        now.unix_ms = now.unix_ms.wrapping_add(u64::from(*small) * 20) ^ u64::from(kind >> 7) << 22;
        let from = small % 5;
        let block = block(now, *small, message);
        let number = u64::from(*small);
        let input = match kind % 20 {
            0 => Input::Connected,
            1 => Input::Disconnected,
            2 => Input::Log { stream: number % 3, first: 1, last: number, last_ms: now.unix_ms },
            3..=5 => Input::Block(&block),
            6 => Input::WalkEnded,
            7 => Input::Missed,
            8 => Input::Stored { ticket: number, sequence: sequence + number },
            9 => Input::Clock {
                asked_ms: now.steady_ms.saturating_sub(number * 100),
                server_ms: now.unix_ms.rotate_left(u32::from(*len)),
            },
            10 => Input::Live { from, message },
            11 => Input::Live { from, message: &block },
            12 | 13 => {
                sequence = sequence.saturating_add(number % 4);
                let message = if kind % 20 == 12 { message } else { &block };
                Input::Logged { sequence, stored_ms: now.unix_ms, from, message }
            }
            14 | 15 => Input::Heartbeat { from, body: message },
            16 => Input::Ignore { node: from, is_ignored: number % 2 == 0 },
            17 => Input::Dropped(DropReason::ALL[usize::from(small % 9)]),
            18 if number == 9 => Input::Leave,
            _ => Input::Tick,
        };
        out.clear();
        node.handle(now, input, &mut out);
        check_bounds(&node, now, &out);
    }
}

/// Returns a block that a node may have cut.
fn block(now: Time, small: u8, message: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind(small % 5),
        has_ids: false,
        node: u16::from(small % 5),
        boot: 70 + u64::from(small % 3),
        number: u64::from(small),
        cut_ms: now.unix_ms,
    };
    let mut block = Vec::new();
    write(&header, message, &mut block);
    block
}

fn check_bounds(node: &Node, now: Time, out: &[Output]) {
    let snapshot = node.snapshot(now);
    let unstored_bytes = snapshot.queue.unstored_bytes;
    assert!(unstored_bytes <= QUEUE as u64, "{unstored_bytes} bytes wait");
    assert!(snapshot.nodes.len() < 256 && snapshot.events.len() <= 20);
    assert!(snapshot.nodes.iter().all(|node| node.version.len() <= 256 && node.zone.len() <= 256));
    assert!(!snapshot.is_mute || snapshot.queue.log != LogState::Flowing);
    assert!(out.len() < 1000, "{} outputs", out.len());
    for output in out {
        if let Output::PublishHeartbeat { body } = output {
            assert!(body.len() <= 4096);
        }
    }
}
