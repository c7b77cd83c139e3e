//! WebTorrent letters to and from browsers at other nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt;

use super::link::Link;
use super::status::Status;
use crate::host::Letters;
use crate::node::DropReason;

/// Publishes letters until the task is dropped.
pub(super) async fn send(
    link: Link,
    letters: Arc<dyn Letters>,
    status: Arc<Status>,
    bytes_per_s: u32,
) {
    let mut budget = Budget { left: bytes_per_s.into(), bytes_per_s, at: Instant::now() };
    loop {
        letters.wait().await;
        for (to, body) in letters.take() {
            let bytes = body.len() as u64;
            let sent = if status.is_mute() || !budget.take(bytes, Instant::now()) {
                false
            } else {
                link.publish(link.subjects.letters(to), None, Bytes::from(body)).await.is_ok()
            };
            if sent {
                status.letters.sent.fetch_add(1, Ordering::Relaxed);
                status.letters.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
            } else {
                status.letters.unsent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Delivers letters until the task is dropped. Those to be dropped are reported to `drop`.
pub(super) async fn receive(
    link: Link,
    mut messages: Subscriber,
    letters: Arc<dyn Letters>,
    status: Arc<Status>,
    drop: impl Fn(DropReason),
) {
    while let Some(message) = messages.next().await {
        match link.origin(&message) {
            Err(reason) => drop(reason),
            Ok(from) if status.is_ignored(from) => drop(DropReason::Ignored),
            Ok(from) => {
                let counts = &status.letters;
                let is_good = letters.deliver(from, &message.payload);
                let count = if is_good { &counts.delivered } else { &counts.damaged };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Bytes that may be sent: as many as in a second, and that many more with each second.
#[derive(Debug)]
struct Budget {
    left: u64,
    bytes_per_s: u32,
    at: Instant,
}

impl Budget {
    /// Returns false if there is no room for that much.
    fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let passed_ms = u64::try_from(now.duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        if passed_ms > 0 {
            let more = passed_ms.saturating_mul(self.bytes_per_s.into()) / 1000;
            self.left = self.left.saturating_add(more).min(self.bytes_per_s.into());
            self.at = now;
        }
        let is_enough = self.left >= bytes;
        if is_enough {
            self.left -= bytes;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bounds_bytes_per_second() {
        let start = Instant::now();
        let mut budget = Budget { left: 1000, bytes_per_s: 1000, at: start };
        assert!(budget.take(900, start));
        assert!(!budget.take(200, start));
        assert!(budget.take(200, start + Duration::from_millis(100)));
        assert!(!budget.take(1, start + Duration::from_millis(100)));
        // It never saves up more than a second's.
        assert!(!budget.take(1001, start + Duration::from_secs(60)));
        assert!(budget.take(1000, start + Duration::from_secs(60)));
    }
}
