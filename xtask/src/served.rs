//! A tracker that tasks ask things by its management API.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A token that may do everything, given to the tracker by its environment.
pub(crate) const TOKEN: &str = "tg_xtaskxtaskxtaskxtaskxtaskxtask01";
const PATIENCE: Duration = Duration::from_secs(30);

/// A running tracker with its records in a folder.
pub(crate) struct Served {
    child: Child,
    pub(crate) announce: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Served {
    /// Starts `program` on free ports, with records in `folder` and `more` in its configuration, and
    /// waits until it serves.
    pub(crate) fn start(program: &Path, folder: &Path, more: &str) -> Result<Self> {
        ensure!(program.is_file(), "no {}: cargo build --release first", program.display());
        let (announce, admin) = (free()?, free()?);
        let state = folder.join("state");
        let config = format!(
            "[udp]\nlisten = []\n[http]\nlisten = [\"{announce}\"]\n[admin]\nlisten = [\"{admin}\"]\n\
             requests_per_s = 0\nwrong_tokens_per_min = 1000000\nwebhook_ports = [\"443\"]\n[state]\ndir = {state:?}\n{more}"
        );
        let path = folder.join("tidegate.toml");
        fs::write(&path, config)?;
        let log = File::options().append(true).create(true).open(folder.join("tracker.log"))?;
        let mut command = Command::new(program);
        command.env("TIDEGATE_ADMIN_TOKEN", TOKEN).args(["serve", "--config"]).arg(path);
        let child = command.stderr(log.try_clone()?).stdout(log).spawn()?;
        let mut served = Self { child, announce, admin };
        let deadline = Instant::now() + PATIENCE;
        while served.get(admin, "/health/ready").map_or(0, |(status, _)| status) != 200 {
            if let Some(status) = served.child.try_wait()? {
                bail!("the tracker ended with {status}: {}", folder.join("tracker.log").display());
            }
            ensure!(Instant::now() < deadline, "the tracker is not ready in time");
            sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        TcpStream::connect(self.admin).is_ok()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Status and body of a page.
    pub(crate) fn get(&self, address: SocketAddr, target: &str) -> Result<(u16, Vec<u8>)> {
        ask(address, &format!("GET {target}"), "")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Status and body of the answer to a request with JSON, or nothing, as its body.
pub(crate) fn ask(address: SocketAddr, request: &str, body: &str) -> Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").context("no answer")?;
    let status = answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
    let status = status.context("no status")?.parse()?;
    Ok((status, answer.split_off(end + 4)))
}

fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
