//! Accepts connections, and serves what they have sent already.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::sleep;
use tracker::ConnectionPermit;
use tracker::counters::{Counters, DropReason};

use super::connection::{Connection, count_failure};
use super::http_service::{HttpClient, Served, ServiceStep};
use super::proxy_header;
use crate::buffer::InputBuffer;
use crate::client::RemoteClient;
use crate::connection_error::ConnectionResult;
use crate::listener::Listener;
use crate::stream::Socket;
use crate::worker::Worker;

/// Connections accepted before other tasks run.
const ACCEPT_BATCH: usize = 64;
/// The pause of a listener when the process has no file descriptors left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections of one listener, until the task is aborted.
pub(super) async fn accept_all(
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    socket: AsyncFd<TcpListener>,
) {
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        let (mut pause, mut is_drained) = (None, false);
        for _ in 0..ACCEPT_BATCH {
            match net::accept(socket.get_ref()) {
                Ok((stream, from)) => serve_new(&worker, &listener, stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    is_drained = true;
                    break;
                }
                Err(error) if net::is_out_of_descriptors(&error) => {
                    pause = Some(EXHAUSTED_PAUSE);
                    listener.http().drop(DropReason::ConnectionLimit);
                    worker.free_descriptors();
                    break;
                }
                // The client is gone, or the kernel refuses this connection; the next may do.
                Err(_) => listener.http().drop(DropReason::Reset),
            }
        }
        drop(ready);
        match pause {
            Some(pause) => sleep(pause).await,
            // Waiting for the socket lets other tasks run as well, and spares a look at the reactor.
            None if is_drained => {}
            None => yield_now().await,
        }
    }
}

/// Serves what a new connection has sent already, and keeps the connection only if there may be more.
fn serve_new(
    worker: &Rc<Worker>,
    listener: &Rc<Listener>,
    stream: std::net::TcpStream,
    from: SocketAddr,
) {
    let local = || stream.local_addr().ok().map(|address| address.ip());
    let options = &listener.options;
    let proxies = options.proxy_protocol.then_some(&options.trusted_proxies);
    let mut client = RemoteClient::new(from.ip(), local, proxies);
    let header = proxy_header::take(&mut client, &stream);
    let permit = match listener.admit(worker, client.ip) {
        Ok(permit) => permit,
        Err(error) => return count_failure(listener, client.ip, &error),
    };
    if !worker.find_room(listener, &permit) {
        return listener.http().drop(DropReason::ConnectionLimit);
    }
    Counters::connection_opened(&mut listener.http());
    let ip = client.ip;
    let step = header.and_then(|()| make_first_step(worker, listener, stream, client, permit));
    let stays = step.unwrap_or_else(|error| {
        count_failure(listener, ip, &error);
        false
    });
    if !stays {
        listener.http().connection_closed();
    }
}

/// Makes the first step of a connection that is not registered with the reactor yet, and starts a task if it
/// stays. Returns true if it stays.
fn make_first_step(
    worker: &Rc<Worker>,
    listener: &Rc<Listener>,
    stream: std::net::TcpStream,
    client: RemoteClient,
    permit: ConnectionPermit,
) -> ConnectionResult<bool> {
    let mut input = InputBuffer::default();
    // A TLS handshake takes several steps in any case, and a PROXY header that has not come must
    // be waited for.
    let mut served = if client.expects_proxy_header() || listener.tls.is_some() {
        Served::nothing(ServiceStep::Read, worker.now())
    } else {
        let may_stay = !worker.stopping.get();
        let tracker = &worker.tracker;
        let http_client = HttpClient { tracker, listener, remote: &client, may_stay };
        let mut service = worker.service.borrow_mut();
        let mut buffer = worker.read_buffer.borrow_mut();
        service.step(http_client, &mut input, Some(&mut **buffer), &stream)?
    };
    let is_last = matches!(served.next, ServiceStep::Close);
    if is_last && served.unsent.is_empty() && served.long_body.is_none() {
        return Ok(false);
    }
    let socket = Socket::new(TcpStream::from_std(stream)?, listener.tls.as_ref())?;
    // It counts as held from now on, not only once its task runs. The first request has no more time than
    // any other, even before its first byte.
    let deadline = served.now.after(listener.options.head_timeout_s);
    let mut connections = worker.connections.borrow_mut();
    let key = connections.insert(socket, Rc::clone(listener), permit, deadline);
    connections.set_output(served.now, key, std::mem::take(&mut served.unsent));
    drop(connections);
    let (worker, listener) = (Rc::clone(worker), Rc::clone(listener));
    let tasks = Rc::clone(&worker.tasks);
    let connection = Connection { worker, listener, key, client, input };
    match served.next {
        ServiceStep::Upgrade(client) => connection.upgrade(client),
        _ => _ = tasks.spawn(connection.run(served)),
    }
    Ok(true)
}
