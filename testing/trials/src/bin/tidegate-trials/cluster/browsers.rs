//! WebTorrent peers: a few at each node, over connections that stay open.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use bench::Api;
use bench::cluster::{PATIENCE, TestCluster};
use harness::http::{Connection, UPGRADE};
use serde_json::Value;

/// Browsers at each node.
const EACH: u8 = 20;
/// The torrent of all of them.
const TORRENT: &str = "7777777777777777777777777777777777777777";
/// Pause between two announces of a browser: connections that are silent for longer than a minute or two are closed.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// Pause between two looks of a waiting browser at the order to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Browsers at all nodes, which announce until this is dropped. One whose connection ends connects again.
pub(super) struct Browsers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A browser, whether or not it is connected.
struct Browser {
    /// Where its node listens for WebSockets.
    node: SocketAddr,
    peer_id: String,
    socket: Option<Connection>,
}

impl Browsers {
    /// Starts browsers at these nodes. This thread must be in the clients' namespace.
    pub(super) fn start(nodes: impl Iterator<Item = u8>) -> Self {
        let browsers: Vec<Browser> = nodes
            .flat_map(|node| (0..EACH).map(move |number| Browser::new(node, number)))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || run(browsers, &stopped));
        Self { stop, thread: Some(thread) }
    }

    /// Returns how many there are.
    pub(super) fn count(cluster: &TestCluster) -> u64 {
        u64::from(EACH) * cluster.numbers().count() as u64
    }

    /// Returns how many of them a node knows.
    pub(super) fn known(node: u8) -> Result<u64> {
        let mut api = Api::open(TestCluster::api(node))?;
        let (status, text) = api.exchange(&format!("GET /api/v1/torrents/{TORRENT}"), "")?;
        if status == 404 {
            return Ok(0);
        }
        ensure!(status == 200, "torrent {TORRENT}: status {status}: {text}");
        let torrent: Value = serde_json::from_str(&text)?;
        Ok(torrent["web"]["leechers"].as_u64().unwrap_or_default())
    }

    /// Waits until all nodes that run know all browsers.
    pub(super) fn wait_until_known(cluster: &TestCluster) -> Result<()> {
        let count = Self::count(cluster);
        for node in cluster.running() {
            let mut known = 0;
            harness::wait_for(PATIENCE, "WebTorrent peers", || {
                known = Self::known(node)?;
                Ok::<_, anyhow::Error>(known == count)
            })
            .map_err(|error| {
                error.context(format!("node {node} knows {known} WebTorrent peers of {count}"))
            })?;
        }
        Ok(())
    }
}

impl Drop for Browsers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has reported nothing if it panicked: the nodes miss its peers.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Makes browsers announce until `stop` is set.
fn run(mut browsers: Vec<Browser>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for browser in &mut browsers {
            if browser.announce().is_err() {
                // Its node does not run. It is tried again.
                browser.socket = None;
            }
        }
        let mut waited = Duration::ZERO;
        while waited < ANNOUNCE_EVERY && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
            browsers.iter_mut().for_each(Browser::drop_if_closed);
            if browsers.iter().any(|browser| browser.socket.is_none()) {
                break;
            }
        }
    }
}

impl Browser {
    fn new(node: u8, number: u8) -> Self {
        Self {
            node: TestCluster::udp(node)[0],
            peer_id: format!("-BR0001-node{node:03}{number:05}"),
            socket: None,
        }
    }

    /// Announces, over a new connection if there is none.
    fn announce(&mut self) -> Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = open(self.node)?;
                socket.stream.set_nonblocking(true)?;
                socket
            }
        };
        // The bytes of the torrent's info hash.
        let info_hash = "\\u0077".repeat(20);
        let message = format!(
            r#"{{"action":"announce","info_hash":"{info_hash}","peer_id":"{}","left":7,"numwant":0,"offers":[]}}"#,
            self.peer_id
        );
        self.socket.insert(socket).send(frame(&message))?;
        Ok(())
    }

    /// Reads and drops answers. Forgets the connection if it has ended.
    fn drop_if_closed(&mut self) {
        self.socket.take_if(|socket| !is_open(&mut socket.stream));
    }
}

/// Opens a WebSocket.
fn open(node: SocketAddr) -> Result<Connection> {
    let mut connection = Connection::open(node)?;
    let status = connection.ask("GET /", &format!("Host: t\r\n{UPGRADE}"), b"")?.status;
    ensure!(status == 101, "status {status}");
    Ok(connection)
}

/// Returns a text of 126 to 65,535 bytes as a client's frame, masked by zeros.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend((text.len() as u16).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// Returns whether a socket that does not block is still open.
fn is_open(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 4096]) {
        Ok(len) => len > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
