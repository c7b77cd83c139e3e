//! An https server of lists, which can fail in many ways.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::client_commands::fake_trackers::read_head;
use crate::process::Directory;
use crate::tls::{ECDSA, issue, make_authority};

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A list, with a tag of its version.
    List(Vec<u8>, &'static str),
    /// A status without a body.
    Status(u16),
    /// A header that says that the body is of this length; nothing follows.
    Announced(u64),
    /// A part of the body that its length announces.
    Truncated,
    /// A byte now and then, without end.
    Drip,
    Redirect(String),
}

#[derive(Default)]
struct Shared {
    reply: Mutex<Option<Reply>>,
    /// The heads of the requests, in lower case.
    requests: Mutex<Vec<String>>,
    has_ended: AtomicBool,
}

/// Serves until it is dropped.
pub(crate) struct ListServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// Makes `ca.pem` and a certificate of it for 127.0.0.1.
pub(crate) fn make_certificates(directory: &Directory) {
    make_authority(directory);
    issue(directory, "lists", "IP:127.0.0.1", (ECDSA, "30"));
}

impl ListServer {
    /// Serves at `address` with the certificate of [`make_certificates`].
    pub(crate) fn start(directory: &Directory, address: SocketAddr, reply: Reply) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::new(tls(directory));
        let shared = Arc::new(Shared { reply: Mutex::new(Some(reply)), ..Shared::default() });
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if server.has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let (server, tls) = (Arc::clone(&server), Arc::clone(&tls));
                let Ok(stream) = stream else { continue };
                // A client that gives up is no fault.
                thread::spawn(move || drop(serve(&server, tls, stream)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.address)
    }

    /// Replies so from now on, and forgets the requests so far.
    pub(crate) fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap() = Some(reply);
        self.shared.requests.lock().unwrap().clear();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for ListServer {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        // Wakes the thread, which closes the listener.
        let _ = TcpStream::connect(self.address);
        while TcpStream::connect(self.address).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tls(directory: &Directory) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(directory.path("lists.pem")).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(directory.path("lists.key")).unwrap();
    let builder = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(chain, key).unwrap()
}

fn serve(shared: &Shared, tls: Arc<ServerConfig>, stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let connection = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let Some(head) = read_head(&mut stream) else { return Ok(()) };
    let head = head.to_ascii_lowercase();
    shared.requests.lock().unwrap().push(head.clone());
    let reply = shared.reply.lock().unwrap().clone().unwrap();
    let start =
        |status: u16, more: &str| format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{more}\r\n");
    let length = |length: u64| format!("Content-Length: {length}\r\n");
    match reply {
        Reply::List(_, tag) if head.contains(&format!("if-none-match: \"{tag}\"")) => {
            stream.write_all(start(304, "").as_bytes())?;
        }
        Reply::List(body, tag) => {
            let headers = length(body.len() as u64) + &format!("ETag: \"{tag}\"\r\n");
            stream.write_all(start(200, &headers).as_bytes())?;
            stream.write_all(&body)?;
        }
        Reply::Status(status) => stream.write_all(start(status, &length(0)).as_bytes())?,
        Reply::Announced(bytes) => stream.write_all(start(200, &length(bytes)).as_bytes())?,
        Reply::Truncated => {
            stream.write_all(start(200, &length(1000)).as_bytes())?;
            stream.write_all(b"# the first line\n")?;
        }
        Reply::Drip => {
            stream.write_all(start(200, &length(1000)).as_bytes())?;
            while !shared.has_ended.load(Ordering::Relaxed) {
                stream.write_all(b"#")?;
                stream.flush()?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        Reply::Redirect(location) => {
            let headers = length(0) + &format!("Location: {location}\r\n");
            stream.write_all(start(302, &headers).as_bytes())?;
        }
    }
    stream.conn.send_close_notify();
    stream.flush()
}
