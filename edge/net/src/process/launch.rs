//! Restarting the program with its original privileges, for upgrades without downtime.
//!
//! When an upgrade is requested, the process has already changed its user and may neither start
//! programs nor read files (see [`super::confine`]); a process that it started would be restricted in
//! the same way. So it forks a second process early: the launcher. The launcher accepts two kinds of
//! orders: to start its own program, at its path, with its arguments and environment, and with the
//! descriptors that come with the order; and to exchange the XDP program of a link, both of which come with
//! the order. While a program that it has started runs, it starts no other: it has rights that the process
//! may have given up, so that code which broke into the process must not get many of it. It ends with the
//! process that forked it.
//!
//! ```text
//! launcher ─ fork ─▶ exits at once
//!                      └ fork ─▶ exec: the new process, an orphan, which systemd adopts
//! ```
//!
//! # Safety
//!
//! `fork` is called only while the process has a single thread, so that no lock stays locked in the
//! child. `dup2` replaces descriptors only where nothing but an exec or an exit follows, so that no
//! owner uses the replaced ones.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv,
    recvmsg, send, sendmsg, setsockopt, socketpair,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{ForkResult, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::ExchangeProgram;

/// Descriptors in one message. The kernel accepts at most 253.
const PER_MESSAGE: usize = 128;
/// The number of the first inherited descriptor (sd_listen_fds(3)).
const FIRST_FD: RawFd = 3;
/// Signals for the main process, which may reach the launcher, too. The launcher ignores them.
const FOREIGN_SIGNALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The text of an order to exchange a program.
const EXCHANGE: &[u8] = b"!";
/// Maximum seconds for such an order, which takes some milliseconds.
const EXCHANGE_TIMEOUT_S: i64 = 10;

/// The longest time that the launcher waits for an earlier program to end, which may be ending.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

enum Order {
    /// Starts the program with these descriptors, each with a name.
    Start(Vec<(String, OwnedFd)>),
    /// Exchanges the XDP program of a link: link and program.
    Exchange(Vec<OwnedFd>),
}

/// A handle to the launcher, which ends when this is dropped.
#[derive(Debug)]
pub struct Launcher {
    orders: OwnedFd,
}

struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Launcher {
    /// Forks the launcher, which exchanges programs by `exchange_program`.
    ///
    /// # Errors
    ///
    /// If the process has more than one thread, its program cannot be found, or the kernel refuses to fork.
    pub fn spawn(exchange_program: ExchangeProgram) -> io::Result<Self> {
        if fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("the process has several threads already"));
        }
        let program = Program::running()?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: this is the only thread, as was just checked.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => Ok(Self { orders: ours }),
            ForkResult::Child => {
                let work = std::panic::AssertUnwindSafe(|| {
                    wait_for_orders(&program, &theirs, exchange_program)
                });
                let code = if let Ok(Ok(())) = std::panic::catch_unwind(work) { 0 } else { 1 };
                exit(code)
            }
        }
    }

    /// Starts the program with `descriptors` as its inherited ones, each with a name. The last one is a
    /// stream on which the program reports its progress. If it cannot be started, the launcher reports
    /// the reason there.
    ///
    /// # Errors
    ///
    /// If the launcher has ended. A failure of the program is reported on the stream instead.
    pub fn launch(&self, descriptors: &[(String, OwnedFd)]) -> io::Result<()> {
        let mut parts = descriptors.chunks(PER_MESSAGE).peekable();
        while let Some(part) = parts.next() {
            let names: Vec<&str> = part.iter().map(|(name, _)| &**name).collect();
            let more = if parts.peek().is_some() { "+" } else { "." };
            let text = format!("{more}{}", names.join(":"));
            let numbers: Vec<RawFd> = part.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
            self.send(text.as_bytes(), &numbers)?;
        }
        Ok(())
    }

    /// Exchanges the XDP program of a link: bpf(2) is denied in the sandbox.
    ///
    /// # Errors
    ///
    /// If the launcher has ended or does not answer in time, or the kernel refuses the exchange.
    pub fn exchange_program(
        &self,
        link: BorrowedFd<'_>,
        program: BorrowedFd<'_>,
    ) -> io::Result<()> {
        setsockopt(&self.orders, ReceiveTimeout, &TimeVal::seconds(EXCHANGE_TIMEOUT_S))?;
        self.send(EXCHANGE, &[link.as_raw_fd(), program.as_raw_fd()])?;
        let mut reply = [0; 4];
        match recv(self.orders.as_raw_fd(), &mut reply, MsgFlags::empty())? {
            4 if reply == [0; 4] => Ok(()),
            4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(reply))),
            _ => Err(io::Error::other("the launcher has ended")),
        }
    }

    /// Sends one message: a text, and copies of descriptors.
    fn send(&self, text: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        let text = [IoSlice::new(text)];
        let descriptors = [ControlMessage::ScmRights(descriptors)];
        let to = self.orders.as_raw_fd();
        sendmsg::<()>(to, &text, &descriptors, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }
}

impl Program {
    /// Returns this program, with the path that it was called by: if that is a link, it may point to a
    /// newer version next time.
    fn running() -> io::Result<Self> {
        let mut arguments = env::args_os();
        let called = arguments.next().map(PathBuf::from).unwrap_or_default();
        let running = env::current_exe()?;
        let is_path = called.components().count() > 1 && is_same_file(&called, &running);
        let path = if is_path { std::path::absolute(called)? } else { running };
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// Replaces this process by the program, with `descriptors` in their places. Returns only on failure.
    fn exec(&self, descriptors: Vec<(String, OwnedFd)>) -> io::Result<Infallible> {
        for one in FOREIGN_SIGNALS {
            // SAFETY: the default disposition runs no code of ours.
            unsafe { signal(one, SigHandler::SigDfl) }?;
        }
        let count = descriptors.len();
        let names: Vec<&str> = descriptors.iter().map(|(name, _)| &**name).collect();
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        let pid = std::process::id().to_string();
        command.env("LISTEN_FDS", count.to_string()).env("LISTEN_PID", &pid);
        command.env("LISTEN_FDNAMES", names.join(":"));
        if env::var_os("WATCHDOG_PID").is_some() {
            command.env("WATCHDOG_PID", &pid);
        }
        // Move all descriptors out of the way first, then each to its place.
        let above = FIRST_FD + RawFd::try_from(count).map_err(io::Error::other)?;
        let moved =
            descriptors.iter().map(|(_, descriptor)| fcntl_dupfd_cloexec(descriptor, above));
        let moved: Vec<OwnedFd> = moved.collect::<Result<_, _>>()?;
        for (_, descriptor) in descriptors {
            // Do not close it: its number is about to be reused.
            let _ = descriptor.into_raw_fd();
        }
        for (place, descriptor) in (FIRST_FD..).zip(&moved) {
            // SAFETY: both numbers are valid; nothing uses the previous descriptor `place`, because an
            // exec or an exit follows. An exec does not close the copy.
            if unsafe { libc::dup2(descriptor.as_raw_fd(), place) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let error = command.exec();
        let text = format!("cannot start {}: {error}", self.path.display());
        Err(io::Error::new(error.kind(), text))
    }
}

/// The launcher's main loop. Returns when the main process ends.
fn wait_for_orders(
    program: &Program,
    orders: &OwnedFd,
    exchange_program: ExchangeProgram,
) -> io::Result<()> {
    for one in FOREIGN_SIGNALS {
        // SAFETY: ignoring runs no code of ours.
        unsafe { signal(one, SigHandler::SigIgn) }?;
    }
    // Lists of processes by name should show only the main process.
    nix::sys::prctl::set_name(c"tidegate-launch")?;
    close_all_but(orders)?;
    let mut started: Option<Started> = None;
    while let Some(order) = receive(orders)? {
        match order {
            Order::Exchange(descriptors) => {
                send(
                    orders.as_raw_fd(),
                    &exchange(&descriptors, exchange_program),
                    MsgFlags::MSG_NOSIGNAL,
                )?;
            }
            Order::Start(descriptors) => match started.as_ref().filter(|it| it.is_running()) {
                Some(Started { pid, .. }) => {
                    let why =
                        format!("process {pid}, which was started before, still runs: end it");
                    report_failure(descriptors.into_iter().last().map(|(_, last)| last), &why);
                }
                None => started = start_orphan(program, descriptors)?,
            },
        }
    }
    Ok(())
}

/// A process that the launcher has started.
struct Started {
    pid: i32,
    /// Stands for this process, and for no later one with its number (pidfd_open(2)).
    handle: OwnedFd,
}

impl Started {
    /// Reads the number of a process from its parent, which waits until this returns, so that the number is
    /// still that of this process. Returns `None` if none was started, or before Linux 5.3.
    fn read(mut parent: &UnixStream) -> Option<Self> {
        let mut pid = [0; 4];
        parent.read_exact(&mut pid).ok()?;
        let pid = i32::from_ne_bytes(pid);
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(Self { pid, handle })
    }

    fn is_running(&self) -> bool {
        let mut end = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut end, Some(&END_TIMEOUT)) == Ok(0)
    }
}

/// Starts the program as the child of a process that ends at once.
fn start_orphan(
    program: &Program,
    descriptors: Vec<(String, OwnedFd)>,
) -> io::Result<Option<Started>> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: the launcher never has more than one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop((theirs, descriptors));
            let started = Started::read(&ours);
            // Ends the child.
            drop(ours);
            nix::sys::wait::waitpid(child, None)?;
            Ok(started)
        }
        ForkResult::Child => {
            drop(ours);
            // SAFETY: as above.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => start(program, descriptors),
                Ok(ForkResult::Parent { child }) => {
                    // Until it ends, the number of its child stays that child's. It ends when the other
                    // end is closed, even if that was too early.
                    let _ = (&theirs).write_all(&child.as_raw().to_ne_bytes());
                    let _ = (&theirs).read(&mut [0]);
                    exit(0)
                }
                Err(_) => exit(1),
            }
        }
    }
}

/// Becomes the new process, or reports the reason of a failure on the last descriptor.
fn start(program: &Program, descriptors: Vec<(String, OwnedFd)>) -> ! {
    let above = FIRST_FD + RawFd::try_from(descriptors.len()).unwrap_or(RawFd::MAX - FIRST_FD);
    let report = descriptors.last().map(|(_, last)| fcntl_dupfd_cloexec(last, above));
    let Err(error) = program.exec(descriptors);
    report_failure(report.and_then(Result::ok), &error.to_string());
    exit(1)
}

/// Reports on an order's last descriptor why the program was not started.
fn report_failure(to: Option<OwnedFd>, why: &str) {
    if let Some(to) = to {
        // Ignore errors: if the main process is gone, nothing waits for the report.
        let _ = UnixStream::from(to).write_all(format!("failed {why}\n").as_bytes());
    }
}

/// Exchanges the XDP program of a link. Returns the error's number, or 0.
fn exchange(descriptors: &[OwnedFd], exchange_program: ExchangeProgram) -> [u8; 4] {
    let result = match descriptors {
        [link, program] => exchange_program(link.as_fd(), program.as_fd()),
        _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
    };
    let number = result.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    number.to_ne_bytes()
}

/// Receives an order. Returns `None` when the main process has ended.
fn receive(orders: &OwnedFd) -> io::Result<Option<Order>> {
    let mut all = Vec::new();
    loop {
        let mut text = [0; 4096];
        let mut space = nix::cmsg_space!([RawFd; PER_MESSAGE]);
        let mut descriptors = Vec::new();
        let len = {
            let mut vectors = [IoSliceMut::new(&mut text)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let message = recvmsg::<()>(orders.as_raw_fd(), &mut vectors, Some(&mut space), flags)?;
            for part in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = part {
                    // SAFETY: the kernel has just opened them for us, and nothing else owns them.
                    let owned = numbers.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
                    descriptors.extend(owned);
                }
            }
            message.bytes
        };
        if text.get(..len) == Some(EXCHANGE) {
            return Ok(Some(Order::Exchange(descriptors)));
        }
        let Some((more, names)) = text.get(..len).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let names = String::from_utf8_lossy(names);
        all.extend(names.split(':').map(String::from).zip(descriptors));
        if *more == b'.' {
            return Ok(Some(Order::Start(all)));
        }
    }
}

/// Closes all descriptors except the standard streams and `kept`. If the launcher kept a listening
/// socket, the kernel would route connections to it that are never served.
fn close_all_but(kept: &OwnedFd) -> io::Result<()> {
    let numbers = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers {
        if number > libc::STDERR_FILENO && number != kept.as_raw_fd() {
            // SAFETY: the owner of the descriptor in this copy of the process is never used or dropped,
            // because the launcher ends by `exit`. The descriptor of the listing is closed already.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let mark = |path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    mark(one).is_some_and(|found| mark(other) == Some(found))
}

/// Ends the process without running the exit handlers of the process that forked it.
fn exit(code: i32) -> ! {
    // SAFETY: never returns, and touches nothing.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a launcher, and where its orders come out.
    fn launcher() -> (Launcher, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::empty()).unwrap();
        (Launcher { orders: ours }, theirs)
    }

    #[test]
    fn transmits_orders_of_any_length() {
        let (launcher, theirs) = launcher();
        for count in [1, PER_MESSAGE, PER_MESSAGE + 1] {
            let (told, asked) = UnixStream::pair().unwrap();
            let one = || OwnedFd::from(asked.try_clone().unwrap());
            let sent: Vec<_> = (0..count)
                .map(|at| (String::from(if at == 0 { "a" } else { "b" }), one()))
                .collect();
            launcher.launch(&sent).unwrap();
            let Some(Order::Start(got)) = receive(&theirs).unwrap() else {
                panic!("expected an order to start")
            };
            let names: Vec<&str> = got.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, sent.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
            for (_, descriptor) in got {
                UnixStream::from(descriptor).write_all(b"x").unwrap();
            }
            drop((asked, sent));
            let mut said = Vec::new();
            Read::read_to_end(&mut &told, &mut said).unwrap();
            assert_eq!(said.len(), count);
        }
        drop(launcher);
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn reports_why_a_program_cannot_be_exchanged() {
        let refuse: ExchangeProgram = |_, _| Err(io::Error::from_raw_os_error(libc::EBUSY));
        let (launcher, theirs) = launcher();
        let serving = std::thread::spawn(move || {
            while let Some(Order::Exchange(descriptors)) = receive(&theirs).unwrap() {
                send(theirs.as_raw_fd(), &exchange(&descriptors, refuse), MsgFlags::empty())
                    .unwrap();
            }
        });
        let file = fs::File::open("/dev/null").unwrap();
        let error = launcher.exchange_program(file.as_fd(), file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        drop(launcher);
        serving.join().unwrap();
    }
}
