//! Properties that have to hold.

use replication::block::Block;
use types::Role;

use crate::clients::State;
use crate::faults::{Fault, Planned, Scenario};
use crate::host::{EPOCH_MS, Process, blocks, each_peer};
use crate::world::World;
use crate::{Peer, Times};

fn running<'a, 'b>(world: &'b World<'a>) -> impl Iterator<Item = &'b Process<'a>> {
    world.slots.iter().filter_map(|slot| slot.process.as_ref())
}

/// (h): the lag that is shown is no less than the true one, but for a second and the steps of time.
pub(crate) fn lags(world: &World<'_>) -> Result<(), String> {
    // Where the log has lost its end, positions say little until something follows.
    let has_lost_end = |it: &Planned| {
        matches!(it.fault, Fault::LeaderLoss { loses_end: true } | Fault::FallBack { .. })
    };
    // Heartbeats that take minutes are late by more than is shown.
    let is_slow_world = matches!(world.scenario, Scenario::Stuck | Scenario::WrongClocks);
    if is_slow_world || world.has_clock_faults || world.faults.iter().any(has_lost_end) {
        return Ok(());
    }
    let now_ms = world.now_ms;
    for process in running(world) {
        let snapshot = process.snapshot(world.now_ms);
        // One that counts as warm because it has waited knows of no lag.
        if snapshot.warm_ms.is_none_or(|ms| ms >= 30_000)
            || world.now_ms < process.hangs_until_ms + 2000
            || is_slow(world, process.number)
        {
            continue;
        }
        for node in &snapshot.nodes {
            let is_it =
                |it: &&Process<'_>| it.number == node.node && (it.boot >> 8) / 1000 == node.started;
            let Some(other) = running(world).find(is_it) else { continue };
            if world.now_ms < other.hangs_until_ms + 2000 {
                continue;
            }
            let position = process.node.position();
            let unread = world.broker.stream.messages.iter().rev();
            let unread = unread.take_while(|it| it.sequence > position.sequence);
            let unread = unread
                .filter(|it| it.from == other.number && position.stream == world.broker.stream.id)
                .filter(|it| Block::read(&it.message).is_ok());
            let unread = unread.map(|it| it.stored_ms - EPOCH_MS);
            let unstored = other.unstored.values().copied();
            let Some(oldest_ms) = unread.chain(unstored).min() else { continue };
            let true_ms = now_ms.saturating_sub(oldest_ms);
            // Nodes do not know how long messages take. Messages that are under way when a delay ends are late, too.
            let delays = world.faults.iter().filter_map(|it| match it.fault {
                Fault::Delay { most_ms, .. } => {
                    let is_on = (it.from_ms..it.until_ms + 8000).contains(&world.now_ms);
                    is_on.then_some(u64::from(most_ms))
                }
                _ => None,
            });
            let delay_ms = 2 * delays.max().unwrap_or_default();
            let lag_ms = (node.lag_s * 1000.0) as u64;
            if lag_ms + 1000 + 400 + delay_ms < true_ms {
                let number = process.number;
                return Err(format!(
                    "at {} ms node {number} shows a lag of {lag_ms} ms, found {true_ms}: {node:?}",
                    world.now_ms
                ));
            }
        }
    }
    Ok(())
}

/// Returns true if heartbeats wait at a node, because it is slow.
fn is_slow(world: &World<'_>, number: u8) -> bool {
    world.faults.iter().any(|it| {
        let is_it = matches!(it.fault, Fault::Slow { at } if at + 1 == usize::from(number));
        is_it && (it.from_ms..it.until_ms + 2000).contains(&world.now_ms)
    })
}

pub(crate) fn unsettled(world: &World<'_>) -> String {
    let mut text = format!(
        "not settled a minute after the last fault; stream {:?} {}",
        world.broker.stream.id, world.broker.stream.last
    );
    for process in running(world) {
        let snapshot = process.snapshot(world.now_ms);
        text += &format!(
            "\n  node {}: {:?}, {:?}, {} unstored, dirty {} s, at {:?}, mute {}",
            process.number,
            snapshot.warmth,
            snapshot.queue.log,
            snapshot.queue.unstored_blocks,
            snapshot.queue.dirty_s,
            process.node.position(),
            snapshot.is_mute
        );
    }
    text
}

/// (b): all nodes have the same peers in the same roles, but for those that are about to expire, and those of
/// which something was lost with a node or the stream.
pub(crate) fn same_peers(world: &World<'_>) -> Result<(), String> {
    if world.has_clock_jumps() {
        return Ok(());
    }
    let all: Vec<_> =
        running(world).map(|process| (process.number, process.peers(world.now_ms))).collect();
    let Some((first, expected)) = all.first() else { return Ok(()) };
    let old_units = world.scenario.times().old_units();
    for (number, peers) in &all[1..] {
        let either = expected.keys().chain(peers.keys());
        for peer in either.filter(|peer| !world.tainted.contains_key(peer)) {
            let both = [expected.get(peer), peers.get(peer)];
            let is_old = both.iter().flatten().any(|(_, age)| *age > old_units);
            let roles = both.map(|it| it.map(|it| it.0));
            let is_role = roles[0].is_some() && roles[1].is_some();
            if roles[0] != roles[1] && !is_old && !is_contested(world, *peer, is_role) {
                return Err(format!(
                    "node {first} has {:?}, node {number} {:?} of {}",
                    both[0],
                    both[1],
                    describe(world, *peer)
                ));
            }
        }
    }
    Ok(())
}

/// Returns true if nodes may disagree about a peer, because it was at several nodes within a minute.
///
/// - Reports of its role within 16 s have the same mark. Then the log's order decides, except for a node where the
///   peer has announced since.
/// - Where clocks differ, the same is true of reports of its presence.
/// - It is also true of a peer that stopped and came back within 16 s, if the block that reports its return waited for
///   too long; a thread that hangs cuts a stop as if it happened now.
fn is_contested(world: &World<'_>, peer: Peer, is_role: bool) -> bool {
    let mut clients = world.clients.iter();
    let Some(client) = clients.find(|it| it.peer == peer && it.switched_ms.is_some()) else {
        return false;
    };
    let has_hang = world.faults.iter().any(|it| matches!(it.fault, Fault::Hang { .. }));
    let is_close = client.gap_ms < 17_000 || has_hang;
    is_role || world.has_clock_faults || is_close && world.walked.contains(&peer)
}

fn describe(world: &World<'_>, peer: Peer) -> String {
    let client = world.clients.iter().find(|client| client.peer == peer);
    let mut text = format!("{peer:?}: {client:?}");
    for message in &world.broker.stream.messages {
        for block in blocks(&message.message) {
            each_peer(&block, |other, word| {
                if other == peer {
                    let header = block.header;
                    text += &format!(
                        "\n  {} stored {:.2} s, cut {:.2} s by {} ({}): {}",
                        message.sequence,
                        (message.stored_ms as f64 - EPOCH_MS as f64) / 1000.0,
                        (header.cut_ms as f64 - EPOCH_MS as f64) / 1000.0,
                        header.node,
                        header.number,
                        if word.is_gone() {
                            format!("gone, {} units ago", word.age())
                        } else {
                            format!(
                                "{:?}, {} units ago, completed {}",
                                word.role(),
                                word.age(),
                                word.is_completed()
                            )
                        }
                    );
                }
            });
        }
    }
    text
}

/// (c), (d): who announces is known everywhere, who has stopped nowhere.
pub(crate) fn truth(world: &World<'_>) -> Result<(), String> {
    if world.has_clock_jumps() {
        return Ok(());
    }
    let nodes: Vec<_> =
        running(world).map(|process| (process.number, process.peers(world.now_ms))).collect();
    let times: Times = world.scenario.times();
    let has_hang = world.faults.iter().any(|it| matches!(it.fault, Fault::Hang { .. }));
    for client in &world.clients {
        if world.tainted.contains_key(&client.peer) {
            continue;
        }
        // Of two roles within 16 s, the order of the log decides: everywhere alike. So it
        // is with walks.
        let has_switched = client.switched_ms.is_some_and(|at| at + 60_000 > client.last_ms);
        let is_any_role = has_switched || world.walked.contains(&client.peer);
        // So it is with its presence within 16 s; and a thread that hangs cuts what happened before as if it
        // happened now.
        let since_ms = client.switched_ms.map_or(u64::MAX, |at| client.last_ms - at);
        let is_close = client.gap_ms < 17_000 || (1..17_000).contains(&since_ms);
        if has_switched && (is_close || has_hang) {
            continue;
        }
        for (number, peers) in &nodes {
            let known: Option<&(Role, u32)> = peers.get(&client.peer);
            let silent_ms = world.now_ms - client.last_ms;
            let is_old = silent_ms > u64::from(times.old_units()) * 16_000;
            // Peers that expire are swept some seconds later.
            let is_over = silent_ms > u64::from(times.lifetime_s + 64) * 1000;
            let is_right = match client.state {
                _ if is_over => known.is_none(),
                State::Here(role) => is_old || known.is_some_and(|it| it.0 == role || is_any_role),
                State::Stopped => known.is_none(),
                State::Vanished => true,
            };
            if !is_right {
                return Err(format!(
                    "node {number} has {known:?} of {}",
                    describe(world, client.peer)
                ));
            }
        }
    }
    Ok(())
}
