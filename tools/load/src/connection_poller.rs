//! Waits for many connections, with microsecond precision where it matters.

use std::io::{self, ErrorKind};
use std::time::Instant;
use std::{
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use mio::{Events, Poll};
use mio::{Interest, Token, unix::SourceFd};
use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

/// A connection that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token it was registered with.
    pub(crate) number: usize,
    /// True if it is writable.
    pub(crate) is_writable: bool,
    /// True if it is readable or closed.
    pub(crate) is_readable: bool,
}

/// Waits for connections. [Dialing](crate::stream::Dialer::dial) with its `poll` registers them.
pub(crate) struct ConnectionPoller {
    pub(crate) poll: Poll,
    events: Events,
    /// Ends a wait with microsecond precision: the poll itself counts in milliseconds.
    timer: TimerFd,
    pub(crate) ready: Vec<Ready>,
}

/// Events per wait; further ones are reported by the next.
const EVENTS: usize = 1024;
const TIMER: Token = Token(usize::MAX);
/// Spin for the last part of a wait, because a sleep may take this much longer.
const SPIN_BEFORE: Duration = Duration::from_micros(60);

impl ConnectionPoller {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            let fd = timer.as_fd().as_raw_fd();
            poll.registry().register(&mut SourceFd(&fd), TIMER, Interest::READABLE)?;
            timer
        };
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            ready: Vec::with_capacity(EVENTS),
        })
    }

    /// Sets the timer so that the end of the wait is spent spinning. Returns the poll's timeout.
    fn sleep_exactly(&mut self, left: Duration) -> io::Result<Duration> {
        let Some(sleep) = left.checked_sub(SPIN_BEFORE) else { return Ok(Duration::ZERO) };
        let time = Expiration::OneShot(TimeSpec::from_duration(sleep));
        self.timer.set(time, TimerSetTimeFlags::empty())?;
        Ok(left)
    }

    /// Waits until a connection is ready or until `until`, and fills `ready`. `is_exact` asks for
    /// microsecond precision.
    pub(crate) fn wait(&mut self, until: Instant, is_exact: bool) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let left = if is_exact { self.sleep_exactly(left)? } else { left };
        self.ready.clear();
        match self.poll.poll(&mut self.events, Some(left)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let events = self.events.iter();
        let events = events.filter(|event| event.token() != TIMER);
        self.ready.extend(events.map(|event| Ready {
            number: event.token().0,
            is_writable: event.is_writable(),
            is_readable: event.is_readable() || event.is_error() || event.is_read_closed(),
        }));
        Ok(())
    }
}
