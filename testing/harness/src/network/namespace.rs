//! Network namespaces without names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns, unshare};

use crate::output;

/// The namespace of the thread that reads it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, which ends with the last thread, process or value that is in it.
#[derive(Debug)]
pub struct Namespace(File);

/// A thread that is in a [`Namespace`] until this is dropped.
#[derive(Debug)]
pub struct Entered {
    before: File,
    /// It must be dropped by the same thread.
    _thread: PhantomData<*const ()>,
}

impl Namespace {
    /// Creates one, in which all interfaces are down.
    ///
    /// # Errors
    ///
    /// Without CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Self> {
        // A new thread, because the thread that creates a namespace is in it.
        let create = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(OWN)
        };
        thread::scope(|scope| joined(scope.spawn(create))).map(Self)
    }

    /// The namespace of this thread.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn current() -> io::Result<Self> {
        File::open(OWN).map(Self)
    }

    /// Where other programs find it while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Moves this thread into it. Sockets that the thread opens and processes that it starts belong to it.
    ///
    /// # Errors
    ///
    /// Without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<Entered> {
        let before = File::open(OWN)?;
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        Ok(Entered { before, _thread: PhantomData })
    }

    /// Calls `action` inside of it, on a thread of its own.
    ///
    /// # Panics
    ///
    /// If the namespace cannot be entered, or if `action` panics.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let run = || {
            let _inside = self.enter().expect("a namespace that could be made can be entered");
            action()
        };
        thread::scope(|scope| joined(scope.spawn(run)))
    }

    /// Runs a program inside of it and returns what it prints.
    ///
    /// # Errors
    ///
    /// If it is not installed or fails.
    pub fn run_command(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.run(|| output(command))
    }

    /// Has `ip` (iproute2) run these commands, one a line.
    ///
    /// # Errors
    ///
    /// If one fails.
    pub fn ip(&self, commands: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.run(|| command.spawn()).context("ip (iproute2)")?;
        child.stdin.take().context("no pipe")?.write_all(commands.as_bytes())?;
        let output = child.wait_with_output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip: {message}\n{commands}");
        Ok(())
    }

    /// Sets a parameter, by its path below `/proc/sys`.
    ///
    /// # Errors
    ///
    /// If there is none, or the value is refused.
    pub fn set(&self, parameter: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{parameter}");
        self.run(|| fs::write(&path, value)).with_context(|| format!("{path} = {value}"))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread that cannot return must not go on as if it had.
        setns(&self.before, CloneFlags::CLONE_NEWNET).expect("a thread returns to its namespace");
    }
}

/// Waits for a thread, and panics as it did.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
