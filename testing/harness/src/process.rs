//! A process that runs in the background, with its output in files.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Pause between two checks of a condition.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A process that is killed when dropped. Its standard output and error go to files.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    stdout: Output,
    stderr: Output,
}

/// A file that output is appended to, and where that of this process begins.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    start: u64,
}

impl Process {
    /// Starts `command`. Its output is appended to `NAME.out` and `NAME.log` in `folder`.
    ///
    /// # Errors
    ///
    /// If the program or the files cannot be opened.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> Result<Self> {
        let (stdout, out_file) = Output::open(folder.join(format!("{name}.out")))?;
        let (stderr, error_file) = Output::open(folder.join(format!("{name}.log")))?;
        command.stdout(out_file).stderr(error_file);
        Self::watch(command, name, [stdout, stderr])
    }

    /// Starts `command` without input. All that it writes is appended to `NAME.log` in `folder`.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_with_one_log(mut command: Command, folder: &Path, name: &str) -> Result<Self> {
        let (stderr, file) = Output::open(folder.join(format!("{name}.log")))?;
        let stdout = Output { path: stderr.path.clone(), start: stderr.start };
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Self::watch(command, name, [stdout, stderr])
    }

    fn watch(mut command: Command, name: &str, [stdout, stderr]: [Output; 2]) -> Result<Self> {
        let program = command.get_program().display().to_string();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, name: name.to_owned(), stdout, stderr })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.read()
    }

    /// Returns its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.read()
    }

    /// Returns an error with what it wrote if it has ended.
    ///
    /// # Errors
    ///
    /// See above.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, self.stderr()),
            None => Ok(()),
        }
    }

    /// Waits until `is_so`.
    ///
    /// # Errors
    ///
    /// If that takes longer than `patience`, or the process ends before.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut is_so: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !is_so(self) {
            self.check()?;
            ensure!(
                Instant::now() < deadline,
                "waited {patience:?} for {}: {what}\n{}",
                self.name,
                self.stderr()
            );
            sleep(POLL_PERIOD);
        }
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// If it has not ended after `patience`.
    pub fn wait_for_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            let (name, log) = (&self.name, self.stderr());
            ensure!(Instant::now() < deadline, "{name} has not ended after {patience:?}\n{log}");
            sleep(POLL_PERIOD);
        }
    }

    /// Kills it, as a crash would end it, and waits for its end. Does nothing if it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Output {
    fn open(path: PathBuf) -> Result<(Self, File)> {
        let file = File::options().append(true).create(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let start = file.metadata()?.len();
        Ok((Self { path, start }, file))
    }

    /// Returns the text so far; empty if the file is gone.
    fn read(&self) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }
}

/// Runs a command to its end, and returns its standard output.
///
/// # Errors
///
/// If it cannot be started, or does not exit with 0: the error has what it wrote to its standard error.
pub fn output(mut command: Command) -> Result<String> {
    let line = show(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{line}` failed: {}\n{}", output.status, why.trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Formats a command as a user would type it.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Sends a signal to a process.
///
/// # Errors
///
/// If there is no such process, or it belongs to another user.
pub fn signal(process: u32, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(process.cast_signed());
    kill(id, signal).with_context(|| format!("cannot send {signal} to process {process}"))
}

/// Returns whether a process runs. One that has ended and is only not yet reaped does not. While one of its threads is
/// left, it has its ports.
pub fn is_alive(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    if threads > 1 {
        return true;
    }
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name, which stands in parentheses and may contain any character.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}
