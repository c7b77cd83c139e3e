//! The scan of a worker's connections: deadlines, and WebSockets whose clients lost their access.
//!
//! Bans and keys end in many ways: by the API, by other nodes, by a reload, or because their time has come.
//! All change the same tables, so the scan looks there, for each WebSocket in turn, and none of these ways
//! must know of connections.

use tracker::View;
use tracker::counters::DropReason;
use types::{ConnectionKey, Refusal, Tick, limits};
use wire::ws::{self, CloseCode};

use super::{Connections, Entry, NEVER, Phase};
use crate::reject_log;

/// A WebSocket that may not stay open, and the reason in its close frame.
struct Closing {
    key: ConnectionKey,
    reason: &'static str,
}

/// Scans in which every entry is scanned once: about a second.
const SCAN_PARTS: usize = 4;

impl Connections {
    /// Ends connections that are overdue, pings silent clients, closes WebSockets whose clients lost their
    /// access, and forgets old offers. Call it a few times a second: each call scans a part of the table.
    pub(crate) fn scan(&mut self, view: &View<'_>) {
        let now = view.now();
        let mut silent = Vec::new();
        let mut closing = Vec::new();
        self.scans += 1;
        self.update_relay_crowded();
        for number in (self.scans % SCAN_PARTS..self.entries.capacity()).step_by(SCAN_PARTS) {
            let Some(entry) = self.entries.get_mut(number) else { continue };
            if now > entry.deadline && entry.expire() {
                silent.push(entry.key);
            }
            if now > entry.message_deadline && entry.can_receive() {
                entry.listener.ws().drop(DropReason::SlowMessage);
                entry.message_deadline = NEVER;
                closing.push(Closing { key: entry.key, reason: "the message takes too long" });
            }
            if self.is_relay_crowded && entry.hoards_relayed(now) {
                entry.listener.ws().drop(DropReason::UnsentMemory);
                entry.end();
            }
            let turn = number / SCAN_PARTS + self.scans / SCAN_PARTS;
            if turn.is_multiple_of(limits::WEB_RECHECK_S)
                && let Err(refusal) = entry.recheck(view)
            {
                closing.push(Closing { key: entry.key, reason: refusal.text() });
            }
            entry.offers.expire(now);
        }
        for key in silent {
            self.send(now, key, |out| ws::ping(out, b""));
        }
        for Closing { key, reason } in closing {
            self.close(now, key, CloseCode::POLICY, reason);
        }
    }

    /// Ends the HTTP connections that wait for a request, and to which none has come.
    pub(crate) fn close_idle(&mut self) {
        for (_, entry) in &mut self.entries {
            if entry.phase == Phase::Idle && !entry.socket.has_input() {
                entry.end();
            }
        }
    }
}

impl Entry {
    /// Returns whether messages of others wait for a client that has read nothing for long.
    fn hoards_relayed(&self, now: Tick) -> bool {
        let write_timeout_s = self.listener.web_options.write_timeout_s;
        let is_stuck = now.after(write_timeout_s) > self.deadline.after(limits::RELAYED_UNREAD_S);
        self.phase == Phase::Blocked && self.relayed > 0 && is_stuck
    }

    /// Checks whether a WebSocket may stay open, and counts it if not.
    fn recheck(&self, view: &View<'_>) -> Result<(), Refusal> {
        let Some(client) = self.client.as_deref().filter(|_| self.can_receive()) else {
            return Ok(());
        };
        let policy_id = self.listener.options.listener_policy;
        let checked = view.authorize_open(policy_id, client.ip, client.credentials());
        checked.inspect_err(|refusal| {
            reject_log::refused("ws", client.ip, *refusal);
            self.listener.ws().drop(match refusal {
                Refusal::Banned => DropReason::Banned,
                _ => DropReason::AccessEnded,
            });
        })
    }

    /// Acts on a deadline that has passed. Returns true if the client is to be pinged.
    fn expire(&mut self) -> bool {
        let reason = match self.phase {
            Phase::Idle | Phase::Request | Phase::Pinged => Some(DropReason::TimedOut),
            Phase::Blocked => Some(DropReason::SlowReader),
            Phase::Closing => None,
            Phase::Ended => return false,
            Phase::WebSocket => {
                let options = &self.listener.web_options;
                let wait_s = options.idle_timeout_s.saturating_sub(options.ping_s);
                (self.phase, self.deadline) = (Phase::Pinged, self.deadline.after(wait_s));
                return true;
            }
        };
        if let Some(reason) = reason {
            self.counters(|counters| counters.drop(reason));
        }
        self.end();
        false
    }
}
