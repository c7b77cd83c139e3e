//! Waits for many sockets, with microsecond precision where it matters.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

/// A socket that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The number that it was added with.
    pub(crate) number: usize,
    pub(crate) is_writable: bool,
    /// True if it is readable or closed.
    pub(crate) is_readable: bool,
    /// True if the other side has closed it.
    pub(crate) is_closed: bool,
}

/// Waits for sockets.
pub(crate) struct Poller {
    epoll: Epoll,
    events: Vec<EpollEvent>,
    pub(crate) ready: Vec<Ready>,
}

/// Events per wait; further ones are reported by the next.
const EVENTS: usize = 1024;
/// Spin for the last part of a wait, because a sleep may take this much longer.
const SPIN_BEFORE: Duration = Duration::from_micros(60);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // By default a sleep may take 50 µs longer than requested. Best effort.
        let _ = set_timerslack(1);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); EVENTS], ready: Vec::new() })
    }

    /// Reports a socket by this number, until it is closed, while there is something to read.
    pub(crate) fn add(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        self.add_for(socket, number, EpollFlags::EPOLLIN)
    }

    /// Reports a connection by this number, until it is closed, whenever it becomes readable or writable.
    pub(crate) fn add_connection(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        let directions = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP;
        self.add_for(socket, number, directions | EpollFlags::EPOLLET)
    }

    fn add_for(&self, socket: impl AsFd, number: usize, flags: EpollFlags) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(flags, number as u64))?)
    }

    /// Waits until a socket is ready or until `until`, and fills `ready`. `is_exact` asks for microsecond precision.
    pub(crate) fn wait(&mut self, until: Instant, is_exact: bool) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let mut rest = EpollTimeout::ZERO;
        if let Some(sleep) = left.checked_sub(SPIN_BEFORE).filter(|_| is_exact) {
            // An epoll descriptor is readable when one of its sockets is, and only ppoll has
            // nanosecond timeouts.
            let mut polls = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut polls, Some(TimeSpec::from_duration(sleep)), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        } else if !is_exact {
            let ms = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
            rest = EpollTimeout::from(ms);
        }
        let count = match self.epoll.wait(&mut self.events, rest) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let closed = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP;
        self.ready.clear();
        self.ready.extend(self.events.iter().take(count).map(|event| Ready {
            number: event.data() as usize,
            is_writable: event.events().contains(EpollFlags::EPOLLOUT),
            is_readable: event.events().intersects(EpollFlags::EPOLLIN | closed),
            is_closed: event.events().intersects(closed),
        }));
        Ok(())
    }
}
