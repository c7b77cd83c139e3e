//! A tracker that runs: started on its processors with its configuration, watched, and stopped with
//! all that it has started.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use load::Usage;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::certificate::Certificate;
use crate::cores;
use crate::definition::Protocol;
use crate::subject::{Found, Places, Subject};
use crate::template::Words;

/// What every start needs.
pub(crate) struct Stage<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) places: &'a Places,
    /// Files of the run.
    pub(crate) folder: &'a Path,
    pub(crate) certificate: &'a Certificate,
    /// Info hashes of the load, one a line.
    pub(crate) hashes: &'a Path,
}

/// A tracker that runs until it is dropped, and what stands before it.
pub(crate) struct Running {
    children: Vec<Child>,
    /// Where it is asked.
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

/// How long a tracker may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);
/// What it gets to put things in order behind that.
const SETTLE: Duration = Duration::from_millis(500);

impl Running {
    /// Starts it on these processors and waits until it listens.
    pub(crate) fn start(
        subject: &Subject,
        stage: &Stage<'_>,
        processors: &[usize],
    ) -> Result<Self> {
        let address = free_address()?;
        let log = stage.folder.join("tracker.log");
        let mut running = Self { children: Vec::new(), address, log };
        let mut listening = vec![address];
        match &subject.front {
            None => {
                let secure = stage.protocol.is_secure();
                let words = stage.words(address, processors.len());
                running.add(&subject.tracker, stage, (words, secure), processors)?;
            }
            Some(front) => {
                let behind = free_address()?;
                listening.push(behind);
                let words = stage.words(behind, processors.len());
                running.add(&subject.tracker, stage, (words, false), processors)?;
                let words = stage.words(address, processors.len());
                let words =
                    words.with("backend_host", behind.ip()).with("backend_port", behind.port());
                running.add(front, stage, (words, true), processors)?;
            }
        }
        running.wait_until_it_listens(&listening, stage.protocol)?;
        Ok(running)
    }

    /// Starts one of its programs.
    fn add(
        &mut self,
        found: &Found,
        stage: &Stage<'_>,
        (words, secure): (Words, bool),
        processors: &[usize],
    ) -> Result<()> {
        let definition = &found.definition;
        let file = stage.folder.join(format!("configuration-{}", self.children.len()));
        let words = words.with_path("program", &found.program).with_path("configuration", &file);
        let text = definition.configuration_tls.as_ref().filter(|_| secure);
        fs::write(&file, words.fill(text.unwrap_or(&definition.configuration))?)?;
        let start = words.fill_all(&definition.start)?;
        let [program, arguments @ ..] = &*start else { bail!("`start` has no words") };
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        for (name, value) in &definition.environment {
            command.env(name, words.fill(value)?);
        }
        // A group of its own, so that what it starts ends with it, and Ctrl-C is ours alone to hear.
        command.current_dir(stage.folder).process_group(0);
        let child = cores::on(processors, || command.spawn())?;
        self.children.push(child.with_context(|| format!("cannot start {program}"))?);
        Ok(())
    }

    /// A TCP connection says when it listens; over UDP its socket is in the kernel's table.
    fn wait_until_it_listens(&mut self, places: &[SocketAddr], protocol: Protocol) -> Result<()> {
        let is_ready = |place: &SocketAddr| match protocol {
            Protocol::Udp => has_udp_socket(place.port()),
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
        bail!("it does not listen on {} after {} s{what}", self.address, PATIENCE.as_secs())
    }

    /// An error if any of its programs has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("it ended by itself ({status}){}", self.last_words());
            }
        }
        Ok(())
    }

    /// The end of what it wrote, for an error.
    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(String::new, |line| format!(": {}", line.trim()))
    }

    /// The numbers of its processes and of those that they have started.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.children.iter().map(Child::id).collect();
        let mut next = 0;
        while let Some(process) = all.get(next).copied() {
            let list = format!("/proc/{process}/task/{process}/children");
            let started = fs::read_to_string(list).unwrap_or_default();
            all.extend(started.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
            next += 1;
        }
        all
    }

    /// What all its processes have used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let mut sum = Usage::default();
        for process in self.processes() {
            let one = Usage::of(process).context("the tracker is gone")?;
            sum.user_s += one.user_s;
            sum.system_s += one.system_s;
            sum.resident_bytes += one.resident_bytes;
        }
        Ok(sum)
    }

    /// The most memory its processes ever had resident, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.processes().into_iter().filter_map(peak_bytes).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The figures are taken; a group that is gone already is no loss.
            if let Ok(group) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = child.wait();
        }
    }
}

impl Stage<'_> {
    fn words(&self, address: SocketAddr, cores: usize) -> Words {
        let Certificate { chain, key, both } = self.certificate;
        let words = self.places.words().with("address", address).with("host", address.ip());
        words
            .with("port", address.port())
            .with("cores", cores)
            .with("protocol", self.protocol.without_tls())
            .with_path("folder", self.folder)
            .with_path("chain", chain)
            .with_path("key", key)
            .with_path("chain_and_key", both)
            .with_path("hashes", self.hashes)
    }
}

/// A port that is free for TCP and UDP alike. Each start has another: connections that one tracker has
/// closed may keep the next from its port for a minute.
fn free_address() -> io::Result<SocketAddr> {
    let mut last = io::Error::other("no port is free");
    for _ in 0..32 {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        match UdpSocket::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn has_udp_socket(port: u16) -> bool {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(fs::read_to_string);
    tables.iter().flatten().any(|table| lists_port(table, port))
}

/// Whether a line of the kernel's table is a socket on that port: `  12: 0100007F:1B39 00000000:0000 …`.
fn lists_port(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)))
}

fn peak_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests;
