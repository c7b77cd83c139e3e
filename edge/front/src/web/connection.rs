//! A WebSocket's task: it reads, and waits.

use std::io;
use std::mem::take;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;
use tracker::ConnectionPermit;
use types::ConnectionKey;

use super::hub::Written;
use super::session::{Next, Session};
use super::{Upgraded, Web};
use crate::stream::{Socket, Stream, reason};

/// How long a client that says too much is not listened to.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives the connection a mailbox and a task.
pub(super) fn start(web: &Rc<Web>, upgraded: Upgraded) {
    let Upgraded { stream, listener, newcomer, permit, unsent, rest } = upgraded;
    let stream = Rc::new(stream);
    let key = web.turn(|worker, now| worker.hub.open(now, Rc::clone(&stream), listener, unsent));
    let connection = Connection { web: Rc::clone(web), stream, key, listener, _seat: permit };
    let session = Session::new(key, listener, newcomer, rest);
    tokio::task::spawn_local(connection.run(session));
}

struct Connection {
    web: Rc<Web>,
    stream: Rc<Socket>,
    key: ConnectionKey,
    listener: usize,
    _seat: ConnectionPermit,
}

/// What a read brought.
enum Heard {
    /// All is as the session says.
    Session(Next),
    /// Nothing more will come.
    End,
}

impl Connection {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
    fn run(self, mut session: Session) -> impl Future<Output = ()> {
        async move {
            let end = self.listen(&mut session).await;
            self.web.turn(|worker, _| session.leave(worker));
            if let Ok(Next::End) = end {
                // Whatever goes wrong with its last frame: it is over.
                let _ = self.part().await;
            }
            self.web.turn(|worker, now| {
                if let Err(error) = &end {
                    worker.hub.counters(self.listener).drop(reason(error));
                }
                // Who only says no more may still listen.
                worker.hub.write(now, self.key);
                worker.hub.remove(self.key);
            });
        }
    }

    /// Serves until there is nothing more to serve. [`Next::End`] means that a close frame has yet to
    /// leave.
    async fn listen(&self, session: &mut Session) -> io::Result<Next> {
        // What came with the request.
        let mut next = self.web.turn(|worker, now| session.receive(worker, now, &mut []));
        loop {
            match next {
                Next::End => return Ok(next),
                Next::Pause => {
                    // Boxed, because it is rare: a task has room for its largest wait.
                    Box::pin(sleep(PAUSE)).await;
                    next = self.web.turn(|worker, now| session.receive(worker, now, &mut []));
                }
                Next::Read => {
                    self.stream.readable().await?;
                    match self.read(session) {
                        Ok(Heard::Session(then)) => next = then,
                        Ok(Heard::End) => return Ok(Next::Read),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Reads once, and serves what is there.
    fn read(&self, session: &mut Session) -> io::Result<Heard> {
        self.web.turn(|worker, now| {
            let mut buffer = take(&mut worker.read_buffer);
            let heard = self.stream.read_now(&mut buffer).map(|len| {
                let Some(fresh) = buffer.get_mut(..len).filter(|fresh| !fresh.is_empty()) else {
                    return Heard::End;
                };
                worker.hub.counters(self.listener).bytes_in += len as u64;
                worker.hub.heard(now, self.key);
                Heard::Session(session.receive(worker, now, fresh))
            });
            worker.read_buffer = buffer;
            heard
        })
    }

    /// Sends what is left, the close frame last, and then waits until the client closes, too: who
    /// closes over unread input makes the kernel throw away what it has not delivered. The hub's scan
    /// ends it if that takes too long.
    async fn part(&self) -> io::Result<()> {
        while self.web.turn(|worker, now| worker.hub.write(now, self.key)) == Written::Blocked {
            self.stream.writable().await?;
        }
        self.stream.finish()?;
        loop {
            self.stream.readable().await?;
            // Into the shared buffer: one of its own would make every connection's task larger.
            let read = self.web.turn(|worker, _| self.stream.read_now(&mut worker.read_buffer));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
