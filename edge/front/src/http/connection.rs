//! Connections that stay: kept alive, or with a request that is still coming.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use tracker::ConnectionPermit;
use types::Tick;

use super::desk::{Client, Next, Turn};
use super::greeting::{self, Greeted};
use super::{HttpOptions, Shared, upgrade};
use crate::reject_log;
use crate::stream::{Socket, Stream, reason};

/// Seconds for which input is thrown away behind a last answer.
const DRAIN_S: u32 = 2;

/// A connection with a task of its own.
pub(super) struct Connection {
    stream: Socket,
    client: Cell<Client>,
    /// Taken as long as it lasts.
    permit: Cell<ConnectionPermit>,
    /// When it is ended, unless something happens before.
    deadline: Cell<Tick>,
    /// Whether it waits for the first byte of a request.
    idle: Cell<bool>,
    /// Whether it was ended from here.
    ended: Cell<bool>,
}

impl Connection {
    /// Hands `stream` to the reactor, and to a task that goes on after its first turn. It counts as
    /// held from now on, not only once its task runs.
    pub(super) fn start(
        shared: &Rc<Shared>,
        stream: Socket,
        client: Client,
        permit: ConnectionPermit,
        first: Turn,
    ) {
        // The first request has no longer than any other, even before its first byte.
        let wait_s = shared.options[client.listener].head_timeout_s;
        let deadline = shared.desk.borrow().clock.now().after(wait_s);
        let connection = Rc::new(Self {
            stream,
            client: Cell::new(client),
            permit: Cell::new(permit),
            deadline: Cell::new(deadline),
            idle: Cell::new(false),
            ended: Cell::new(false),
        });
        let place = shared.connections.insert(Rc::clone(&connection));
        tokio::task::spawn_local(connection.run(Rc::clone(shared), place, first));
    }

    async fn run(self: Rc<Self>, shared: Rc<Shared>, place: usize, first: Turn) {
        let end = self.meet(&shared, first).await;
        shared.connections.remove(place);
        {
            let mut desk = shared.desk.borrow_mut();
            let counters = &mut desk.metrics(self.client.get().listener).counters;
            counters.connections_closed += 1;
            if let Err(error) = &end
                && !self.ended.get()
            {
                counters.drop(reason(error));
                reject_log::broken("http", self.client.get().caller.ip(), error);
            }
        }
        // Nobody else holds it once it is out of the list.
        if let (Ok(Some(turn)), Some(this)) = (end, Rc::into_inner(self)) {
            drop(this.permit);
            upgrade(&shared, this.client.get().listener, this.stream, turn);
        }
    }

    /// Finds out who it is, and talks to it. Gives what is left when the connection becomes a
    /// WebSocket.
    async fn meet(&self, shared: &Shared, first: Turn) -> io::Result<Option<Turn>> {
        self.idle.set(true);
        let greeted = greeting::wait(&self.client, &self.stream).await;
        self.idle.set(false);
        match greeted? {
            Greeted::Known => {}
            Greeted::Gone => return Ok(None),
            Greeted::Named => {
                let Client { listener, caller, .. } = self.client.get();
                let permit = shared.desk.borrow().permit(listener, caller.ip());
                match permit {
                    Ok(permit) => self.permit.set(permit),
                    Err(reason) => {
                        shared.count_drop(listener, reason);
                        return Ok(None);
                    }
                }
            }
        }
        self.talk(shared, first).await
    }

    async fn talk(&self, shared: &Shared, first: Turn) -> io::Result<Option<Turn>> {
        let options = &shared.options[self.client.get().listener];
        let now = || shared.desk.borrow().clock.now();
        let mut turn = first;
        let mut handshaking = self.stream.is_handshaking();
        loop {
            if matches!(turn.next, Next::Upgrade(_)) {
                return Ok(Some(turn));
            }
            if handshaking {
                // Within the deadline of the first request.
                self.write_all(&[]).await?;
            } else if !turn.unsent.is_empty() || self.stream.is_pending() {
                self.deadline.set(now().after(options.write_timeout_s));
                self.write_all(&turn.unsent).await?;
                turn.unsent = Vec::new();
                turn.answered = turn.answered.max(1);
            }
            match turn.next {
                Next::Close => return self.stream.say_goodbye().map(|()| None),
                Next::Drain => {
                    return self.drain(shared, now().after(DRAIN_S)).await.map(|()| None);
                }
                Next::Read | Next::Upgrade(_) => {}
            }
            if !turn.more {
                self.await_input(&turn, options, now).await?;
            }
            let client = Client { may_stay: !shared.stopping.get(), ..self.client.get() };
            let had_begun = !turn.rest.is_empty();
            turn = shared.desk.borrow_mut().turn(client, turn, &self.stream)?;
            if handshaking && !self.stream.is_handshaking() {
                handshaking = false;
                shared.desk.borrow_mut().metrics(client.listener).counters.tls_handshakes += 1;
            }
            if !had_begun && !turn.rest.is_empty() {
                self.deadline.set(now().after(options.head_timeout_s));
            }
        }
    }

    /// Sleeps until there is input. Bytes that dribble in do not move the deadline of a request
    /// that has begun.
    async fn await_input(
        &self,
        turn: &Turn,
        options: &HttpOptions,
        now: impl Fn() -> Tick,
    ) -> io::Result<()> {
        if turn.answered > 0 {
            let wait_s =
                if turn.rest.is_empty() { options.idle_timeout_s } else { options.head_timeout_s };
            self.deadline.set(now().after(wait_s));
        }
        self.idle.set(turn.rest.is_empty());
        let ready = self.stream.readable().await;
        self.idle.set(false);
        ready
    }

    async fn write_all(&self, mut left: &[u8]) -> io::Result<()> {
        while !left.is_empty() || self.stream.is_pending() {
            self.stream.writable().await?;
            match self.stream.write_now(left) {
                Ok(len) => left = left.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more comes from here, and throws away what comes from there.
    async fn drain(&self, shared: &Shared, deadline: Tick) -> io::Result<()> {
        self.deadline.set(deadline);
        self.stream.finish()?;
        loop {
            self.stream.readable().await?;
            match shared.desk.borrow_mut().discard(&self.stream) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends it from outside: its task wakes up and finds the stream closed.
    fn hang_up(&self) {
        // A socket that is closed already needs no ending.
        let _ = self.stream.hang_up();
    }
}

/// The connections of a worker that have tasks.
#[derive(Default)]
pub(super) struct Connections {
    all: RefCell<slab::Slab<Rc<Connection>>>,
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    fn insert(&self, connection: Rc<Connection>) -> usize {
        self.all.borrow_mut().insert(connection)
    }

    fn remove(&self, place: usize) {
        self.all.borrow_mut().remove(place);
    }

    /// Ends those whose deadline has passed, and names the listener of each.
    pub(super) fn close_overdue(&self, now: Tick, mut ended: impl FnMut(usize)) {
        for (_, connection) in self.all.borrow().iter() {
            if now > connection.deadline.get() && !connection.ended.replace(true) {
                connection.hang_up();
                ended(connection.client.get().listener);
            }
        }
    }

    /// Ends those that wait for a request.
    pub(super) fn close_idle(&self) {
        for (_, connection) in self.all.borrow().iter() {
            if connection.idle.get() && !connection.ended.replace(true) {
                connection.hang_up();
            }
        }
    }
}
