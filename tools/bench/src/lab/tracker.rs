//! A running tracker: started on its processors with its configuration, observed, and stopped with
//! all its descendants.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ::load::Usage;
use anyhow::{Context, Result, bail};
use harness::network::Namespace;
use harness::wait_for;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::certificate::Certificate;
use super::definition::Protocol;
use super::program::{Program, Subject};
use super::template::TemplateVars;
use super::{Lab, cores};

/// A running tracker, with its front if it has one; stopped on drop.
pub(crate) struct RunningTracker {
    /// The tracker's process; a shell if there are two programs, so that both descend from one
    /// process.
    child: Child,
    /// The address to send requests to.
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

/// A command and its environment.
struct Launch {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Where a tracker runs, and where it listens.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The network namespace, if it is another than this thread's.
    pub(crate) namespace: Option<&'a Namespace>,
    pub(crate) address: SocketAddr,
    pub(crate) processors: &'a [usize],
}

/// Time for a tracker to start listening.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time to settle after that.
const SETTLE: Duration = Duration::from_millis(500);

impl Lab {
    /// Starts a tracker on these processors, and waits until it listens.
    pub(crate) fn start(
        &self,
        subject: &Subject,
        protocol: Protocol,
        processors: &[usize],
    ) -> Result<RunningTracker> {
        let place = Place { namespace: None, address: free_address()?, processors };
        self.start_at(subject, protocol, place, &[])
    }

    /// The same at a place, with more variables in its environment.
    pub(crate) fn start_at(
        &self,
        subject: &Subject,
        protocol: Protocol,
        place: Place<'_>,
        environment: &[(&str, &str)],
    ) -> Result<RunningTracker> {
        let Place { namespace, address, processors } = place;
        let vars = self.vars_of(protocol, address, processors.len());
        let secure = protocol.is_secure();
        let mut listening = vec![address];
        let (tracker, front) = match &subject.front {
            None => (self.prepare(&subject.tracker, vars, secure)?, None),
            Some(front) => {
                let behind = free_address()?;
                listening.push(behind);
                let vars =
                    vars.with("backend_host", behind.ip()).with("backend_port", behind.port());
                let front = self.prepare(front, vars, true)?;
                let vars = self.vars_of(protocol, behind, processors.len());
                (self.prepare(&subject.tracker, vars, false)?, Some(front))
            }
        };
        // A tracker that keeps something there begins anew.
        let _ = fs::remove_dir_all(self.folder.path("kept"));
        let log = self.folder.path("tracker.log");
        let mut command = command(tracker, front)?;
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // A separate process group, so that descendants end with it and Ctrl-C reaches only this
        // process.
        command.envs(environment.iter().copied()).current_dir(self.folder.root()).process_group(0);
        let child = cores::on(processors, || {
            let _inside = namespace.map(Namespace::enter).transpose()?;
            command.spawn()
        })?;
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut running = RunningTracker { child, address, log };
        running.wait_until_it_listens(&listening, protocol)?;
        Ok(running)
    }

    /// Writes a program's configuration and returns how to start it.
    fn prepare(&self, program: &Program, vars: TemplateVars, secure: bool) -> Result<Launch> {
        let definition = &program.definition;
        let name = if vars.has("backend_port") { "front.conf" } else { "tracker.conf" };
        let file = self.folder.path(name);
        let vars = vars.with("program", program.path.display());
        let mut vars = vars.with("configuration", file.display());
        for (name, value) in &definition.variables {
            vars = vars.with(name, value);
        }
        let text = definition.configuration_tls.as_ref().filter(|_| secure);
        fs::write(&file, vars.fill(text.unwrap_or(&definition.configuration))?)?;
        let variable = |(name, value): (&String, &String)| Ok((name.clone(), vars.fill(value)?));
        Ok(Launch {
            words: vars.fill_all(&definition.start)?,
            environment: definition.environment.iter().map(variable).collect::<Result<_>>()?,
        })
    }

    fn vars_of(&self, protocol: Protocol, address: SocketAddr, cores: usize) -> TemplateVars {
        let Certificate { chain, key, both } = &self.certificate;
        let vars = self.vars().with("address", address).with("host", address.ip());
        vars.with("port", address.port())
            .with("cores", cores)
            .with("protocol", protocol.without_tls())
            .with("folder", self.folder.root().display())
            .with("chain", chain.display())
            .with("key", key.display())
            .with("chain_and_key", both.display())
    }
}

impl RunningTracker {
    /// Waits until the tracker listens: TCP accepts a connection, a UDP socket appears in the
    /// kernel's table.
    fn wait_until_it_listens(&mut self, places: &[SocketAddr], protocol: Protocol) -> Result<()> {
        let process = self.process();
        let is_ready = |place: &SocketAddr| match protocol {
            Protocol::Udp => has_udp_socket(process, place.port()),
            _ => TcpStream::connect_timeout(place, Duration::from_millis(100)).is_ok(),
        };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.check()?;
            if places.iter().all(is_ready) {
                sleep(SETTLE);
                return self.check();
            }
            sleep(Duration::from_millis(20));
        }
        let what = self.last_words();
        bail!("not listening on {} after {} s{what}", self.address, PATIENCE.as_secs())
    }

    /// Fails if the tracker has exited.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the tracker exited ({status}){}", self.last_words()),
            None => Ok(()),
        }
    }

    /// Returns the last line of its output, for errors.
    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(String::new, |line| format!(": {}", line.trim()))
    }

    /// Returns the process from which all others descend.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resource usage of all its processes so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process()).context("the tracker has exited")
    }
}

/// Returns the tracker's command; with a front, a shell that starts both and exits when one of them
/// does.
fn command(tracker: Launch, front: Option<Launch>) -> Result<Command> {
    let Some(front) = front else {
        let [program, arguments @ ..] = &*tracker.words else { bail!("`start` has no words") };
        let mut command = Command::new(program);
        command.args(arguments).envs(tracker.environment);
        return Ok(command);
    };
    let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let one = |Launch { words, environment }: &Launch| {
        let variables = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = std::iter::once("env".to_owned()).chain(variables).chain(words.iter().cloned());
        let line = words.map(|word| quote(&word)).collect::<Vec<_>>().join(" ");
        format!("{{ {line}; kill $$; }} &")
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{} {} wait", one(&tracker), one(&front)));
    Ok(command)
}

impl Drop for RunningTracker {
    fn drop(&mut self) {
        // Nothing is measured any more, and the group may already be gone.
        let group = Pid::from_raw(self.child.id().cast_signed());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
        // No descendant may run while the next tracker is measured.
        let ended = || Ok(killpg(group, None).is_err());
        let _ = wait_for(Duration::from_secs(2), "its end", ended);
    }
}

/// Returns an address whose port is free for TCP and UDP. Each start gets another port: connections
/// that a tracker has closed can block its port for a minute.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let mut last = io::Error::other("no port is free");
    for _ in 0..PORTS.len() {
        // Concurrent comparisons start at different ports.
        let turn = u32::from(NEXT.fetch_add(1, Ordering::Relaxed))
            .wrapping_add(std::process::id().wrapping_mul(101));
        let port = PORTS.start + (turn % PORTS.len() as u32) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        match TcpListener::bind(address).and_then(|_| UdpSocket::bind(address)) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Below the ephemeral port ranges.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns whether there is such a socket in the network namespace of a process.
fn has_udp_socket(process: u32, port: u16) -> bool {
    let tables =
        ["udp", "udp6"].map(|name| fs::read_to_string(format!("/proc/{process}/net/{name}")));
    tables.iter().flatten().any(|table| lists_port(table, port))
}

/// Returns whether a line of the kernel's table is a socket on that port: `  12: 0100007F:1B39
/// 00000000:0000 …`.
fn lists_port(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)))
}

#[cfg(test)]
mod tests;
