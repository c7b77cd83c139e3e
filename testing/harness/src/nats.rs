//! NATS servers with JetStream, for clusters of trackers.
//!
//! A server keeps its addresses and its files over kills and restarts, so that clients and the other
//! servers find it again. Its files go with [`Nats`].

mod client;
mod operator;

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(target_os = "linux")]
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

#[cfg(target_os = "linux")]
use crate::network::Namespace;
#[cfg(target_os = "linux")]
use crate::network::sites::{Sites, backbone_address};
use crate::{Directory, PATIENCE, Process, http, signal, unused_address, wait_for};

pub use client::{Client, Message};
pub use operator::{Operator, User, UserRights};

/// The argument of `go install`. The version pins its dependencies as well.
pub const MODULE: &str = "github.com/nats-io/nats-server/v2@v2.15.2";
/// The name of the servers' cluster.
const CLUSTER: &str = "tidegate-tests";

/// Returns the folder that the program is installed to, by version.
pub fn folder() -> PathBuf {
    let version = MODULE.rsplit('@').next().unwrap_or_default();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(target).join("tools").join(format!("nats-server-{version}"))
}

/// Returns the program, whether or not it is installed.
pub fn program() -> PathBuf {
    folder().join("nats-server")
}

/// Returns why no server can be started here, if so.
pub fn obstacle() -> Option<String> {
    let program = program();
    let missing = || format!("without {}: run `cargo xtask setup`", program.display());
    (!program.is_file()).then(missing)
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// For clients.
    pub client: SocketAddr,
    /// For the other servers.
    pub routes: SocketAddr,
    /// For monitoring over HTTP, at the IP address of `client`.
    pub monitor: u16,
}

impl Addresses {
    /// Addresses on loopback that nothing else uses.
    pub fn unused() -> Self {
        let [client, routes, monitor] = [(); 3].map(|()| unused_address());
        Self { client, routes, monitor: monitor.port() }
    }
}

/// Servers that form one cluster. They are killed when dropped.
#[derive(Debug)]
pub struct Nats {
    servers: Vec<Server>,
    directory: Directory,
}

#[derive(Debug)]
struct Server {
    name: String,
    addresses: Addresses,
    /// None if it does not run.
    process: Option<Process>,
    command: Vec<String>,
    #[cfg(target_os = "linux")]
    namespace: Option<Arc<Namespace>>,
}

impl Nats {
    /// Starts servers at these addresses with the users of an operator, and waits until they can make streams.
    ///
    /// # Errors
    ///
    /// If there is an [`obstacle`], or they are not ready within [`PATIENCE`].
    pub fn start(places: &[Addresses], operator: &Operator) -> Result<Self> {
        let configuration =
            |server: usize, data: &Path| operator.server_configuration(server, data);
        let mut nats = Self::new(places, configuration)?;
        nats.start_all()?;
        Ok(nats)
    }

    /// The same with a server at each host of a network. This thread must be able to reach their backbone. The servers
    /// accept connections without TLS, too: [`Client`] speaks none.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    #[cfg(target_os = "linux")]
    pub fn start_in(sites: &Sites, operator: &Operator) -> Result<Self> {
        let place = |host| {
            let ip = backbone_address(host);
            Addresses { client: (ip, 4222).into(), routes: (ip, 6222).into(), monitor: 8222 }
        };
        let places: Vec<_> = sites.numbers().map(place).collect();
        let mut nats = Self::new(&places, |server, data| {
            Ok(operator.server_configuration(server, data)? + "allow_non_tls: true\n")
        })?;
        for (server, host) in nats.servers.iter_mut().zip(sites.numbers()) {
            server.namespace = Some(Arc::clone(sites.host(host)));
        }
        nats.start_all()?;
        Ok(nats)
    }

    /// Returns servers that do not run. `configuration` returns that of each, counted from 0, with a folder for its data.
    fn new(
        places: &[Addresses],
        configuration: impl Fn(usize, &Path) -> Result<String>,
    ) -> Result<Self> {
        if let Some(obstacle) = obstacle() {
            anyhow::bail!(obstacle);
        }
        let directory = Directory::new()?;
        let mut servers = Vec::new();
        for (index, addresses) in places.iter().enumerate() {
            let server = Server::new(index, addresses, places, directory.root());
            let data = directory.path(&server.name);
            directory.write(&format!("{}.conf", server.name), configuration(index, &data)?)?;
            servers.push(server);
        }
        Ok(Self { servers, directory })
    }

    fn start_all(&mut self) -> Result<()> {
        for server in &mut self.servers {
            server.start(self.directory.root())?;
        }
        self.wait_until_ready()
    }

    /// The folder of configurations, and of what the servers write: `n1.conf`, `n1.log`, and so on.
    pub fn folder(&self) -> &Path {
        self.directory.root()
    }

    /// The address for clients of a server. Servers are counted from 0.
    pub fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].addresses.client
    }

    /// Returns true if a server was started and has not been killed since.
    pub fn is_running(&self, server: usize) -> bool {
        self.servers[server].process.is_some()
    }

    /// The process of a server, if it runs.
    pub fn process(&self, server: usize) -> Option<u32> {
        self.servers[server].process.as_ref().map(Process::id)
    }

    /// Waits until all servers that run can make streams. They need a majority of the servers.
    ///
    /// # Errors
    ///
    /// After [`PATIENCE`]; the error has a log.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        for server in self.servers.iter_mut().filter(|it| it.process.is_some()) {
            let (name, monitor) = (server.name.clone(), server.monitor());
            let mut is_ready = || {
                server.process.as_mut().map_or(Ok(()), Process::check)?;
                Ok(http::get(monitor, "/healthz")?.status == 200)
            };
            let log = self.directory.path(&format!("{name}.log"));
            wait_for(PATIENCE, &name, &mut is_ready)
                .with_context(|| fs::read_to_string(log).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Kills a server, as a crash would end it.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].process = None;
    }

    /// Stops a server as a service manager would.
    ///
    /// # Errors
    ///
    /// If it does not run, or has not ended after [`PATIENCE`].
    pub fn stop(&mut self, server: usize) -> Result<()> {
        let process = self.servers[server].process.take();
        let mut process = process.context("the server does not run")?;
        signal(process.id(), Signal::SIGTERM)?;
        process.wait_for_end(PATIENCE)?;
        Ok(())
    }

    /// Starts a server again after its end, with the files that it had. Does not wait until it is ready.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn restart(&mut self, server: usize) -> Result<()> {
        self.servers[server].start(self.directory.root())
    }

    /// Stops a server in its tracks (SIGSTOP): connections stay open, and nothing is answered.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn pause(&self, server: usize) -> Result<()> {
        self.signal(server, Signal::SIGSTOP)
    }

    /// Resumes a server after [`Self::pause`].
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self, server: usize) -> Result<()> {
        self.signal(server, Signal::SIGCONT)
    }

    fn signal(&self, server: usize, which: Signal) -> Result<()> {
        let process = self.servers[server].process.as_ref().context("the server does not run")?;
        signal(process.id(), which)
    }

    /// The servers that run.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|server| self.is_running(*server))
    }
}

impl Server {
    fn new(index: usize, addresses: &Addresses, all: &[Addresses], folder: &Path) -> Self {
        let name = format!("n{}", index + 1);
        let (client, monitor) = (addresses.client, addresses.monitor);
        // Options are stronger than the file.
        let mut command = vec![
            format!("--config={}", folder.join(format!("{name}.conf")).display()),
            format!("--name={name}"),
            format!("--addr={}", client.ip()),
            format!("--port={}", client.port()),
            format!("--http_port={monitor}"),
            "--jetstream".into(),
            format!("--store_dir={}", folder.join(&name).display()),
        ];
        if all.len() > 1 {
            let routes: Vec<_> = all.iter().map(|it| format!("nats://{}", it.routes)).collect();
            command.push(format!("--cluster_name={CLUSTER}"));
            command.push(format!("--cluster=nats://{}", addresses.routes));
            command.push(format!("--routes={}", routes.join(",")));
        }
        Self {
            name,
            addresses: *addresses,
            process: None,
            command,
            #[cfg(target_os = "linux")]
            namespace: None,
        }
    }

    fn monitor(&self) -> SocketAddr {
        SocketAddr::new(self.addresses.client.ip(), self.addresses.monitor)
    }

    fn start(&mut self, folder: &Path) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs", self.name);
        let mut command = Command::new(program());
        command.args(&self.command);
        #[cfg(target_os = "linux")]
        let _inside = self.namespace.as_ref().map(|it| it.enter()).transpose()?;
        self.process = Some(Process::start_with_one_log(command, folder, &self.name)?);
        Ok(())
    }
}
