//! Inputs and outputs of a node of a cluster.

use std::sync::Arc;

/// Identity, limits and initial state of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's number, 1 to 255.
    pub node: u8,
    /// The process's start, unix ms × 2⁸ + 8 random bits: later starts are larger. The blocks that come as
    /// [`Input::Block`] have the same.
    pub boot: u64,
    /// The version of tidegate, for other nodes to show.
    pub version: String,
    /// The zone, for other nodes to show. May be empty.
    pub zone: String,
    /// The names of the kinds of rows, by number.
    pub kinds: &'static [&'static str],
    /// A digest of the policy: nodes whose digests differ are shown.
    pub policy: u64,
    /// Bytes of blocks that wait for the stream, at most.
    pub queue_bytes: usize,
    /// The lifetime of peers, seconds.
    pub peer_lifetime_s: u32,
    /// The node counts as warm after this time at the latest, milliseconds.
    pub warm_wait_ms: u64,
    /// Until when, unix ms, the store surely has everything: the begin of the journal's newest round, or of
    /// the walk of an upgrade. `None` if the store is empty.
    pub restored_ms: Option<u64>,
}

/// Where reading of the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that there is.
    First,
    /// At the first message that was stored at this time, unix ms, or later.
    Time(u64),
    /// At this sequence, or the first one after it that there is.
    Sequence(u64),
}

/// Figures of a node for its heartbeats: what it holds, and its load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// IPv4, IPv6 and WebTorrent peers.
    pub peers: [u64; 3],
    /// Torrents.
    pub torrents: u64,
    /// Announces per second.
    pub announces_per_s: u64,
}

types::labelled! {
    /// Why a message is dropped.
    pub enum DropReason {
        /// It has no header that names a secret.
        Foreign = "foreign",
        /// It names an unknown secret.
        Secret = "secret",
        /// Its node has listeners of other kinds: private ones, and this node open ones, or the reverse.
        Access = "access",
        /// The node of its subject is not the one that it names, or no number of a node; or a stream has published it
        /// again, or delivered it where it does not belong; or its answer was to go to another node.
        Origin = "origin",
        /// It is no block, or a damaged one; or no heartbeat.
        Damaged = "damaged",
        /// A kind of block that this version does not know.
        Kind = "kind",
        /// It was cut longer ago than a lifetime, or stored much later than it was cut.
        Old = "old",
        /// Its node sends more than is allowed.
        Rate = "rate",
        /// Its node is ignored.
        Ignored = "ignored",
        /// It came live after it had come by the log, or by the log twice at one place.
        Repeated = "repeated",
    }
}

/// A time, read from two clocks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Milliseconds since some moment, from a clock that never jumps. Deadlines and ages go by it.
    pub steady_ms: u64,
    /// Unix time, milliseconds. It may be wrong, and may be set.
    pub unix_ms: u64,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Time has passed. Comes at least ten times a second.
    Tick,
    /// The node's present figures. Comes once a second.
    Figures(Figures),
    /// The digests of this node's rows, by kind. Comes before each tick and heartbeat.
    Rows(&'a [u64]),
    /// The repair that [`Output::Repair`] began has ended, successfully or not.
    Repaired,
    /// All blocks before [`Output::Settle`] are applied.
    Settled,
    /// The connection to NATS is there.
    Connected,
    /// The connection to NATS has ended. What was published and not acknowledged may be stored or not.
    Disconnected,
    /// A look-up of the log has found what the stream's clock shows. Comes before [`Input::Log`], and every few seconds.
    Clock {
        /// When the look-up began, by the steady clock.
        asked_ms: u64,
        /// The time of the server that answered, unix ms.
        server_ms: u64,
    },
    /// The log was looked up. Comes once after each [`Input::Connected`], and when the stream was made
    /// again; the log is read from then on where [`Output::Read`] says.
    Log {
        /// When the stream was made, unix ns.
        stream: u64,
        /// The sequence of its first message.
        first: u64,
        /// The sequence of its last message; less than `first` if it is empty.
        last: u64,
        /// When that was stored, by the server's clock, unix ms.
        last_ms: u64,
    },
    /// A block of this node has been cut: changes, a part of the walk that [`Output::Walk`] began, WebTorrent peers or
    /// sessions.
    Block(&'a [u8]),
    /// The store has lost changes, because they were not taken in time.
    Missed,
    /// The walk has ended.
    WalkEnded,
    /// The stream has stored a message.
    Stored {
        /// The message's ticket.
        ticket: u64,
        /// Where it is stored.
        sequence: u64,
    },
    /// A message has come by the live path.
    Live {
        /// The node of the subject.
        from: u8,
        /// One block.
        message: &'a [u8],
    },
    /// A message has come by the log, in the order of the stream.
    Logged {
        /// The message's sequence in the stream.
        sequence: u64,
        /// When the stream stored it, by the server's clock, unix ms.
        stored_ms: u64,
        /// The node of the subject.
        from: u8,
        /// One block or more.
        message: &'a [u8],
    },
    /// A heartbeat has come, perhaps the node's own.
    Heartbeat {
        /// The node of the subject.
        from: u8,
        /// The message.
        body: &'a [u8],
    },
    /// The driver has dropped a message, because of its header or subject.
    Dropped(DropReason),
    /// A heartbeat was dropped, because the node has listeners of other kinds.
    Refused {
        /// The node.
        node: u8,
    },
    /// An operator wants nothing of a node any more, or wants it again.
    Ignore {
        /// The node.
        node: u8,
        /// True if its messages are dropped from now on.
        is_ignored: bool,
    },
    /// The node is about to end, or has handed over to a new process.
    Leave,
}

/// Something to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Publish a message to the log. Its acknowledgement is [`Input::Stored`] with `ticket`. The same ticket again means
    /// the same message, which the stream stores once.
    PublishLog {
        /// Names this message in its acknowledgement.
        ticket: u64,
        /// One block or more.
        message: Arc<[u8]>,
    },
    /// Publish a block on the live path.
    PublishLive {
        /// The block.
        block: Arc<[u8]>,
    },
    /// Publish a heartbeat.
    PublishHeartbeat {
        /// The message.
        body: Vec<u8>,
    },
    /// Read the log from here on, instead of where it was read.
    Read(Start),
    /// Apply the blocks of the message that came with this input: changes, walks, and what the fields allow. Their
    /// times are for a [`replication::ReplayClock`] in whole seconds whose tick 0 is a multiple of 16 s: then the times
    /// that peers get are the same at all nodes.
    Apply {
        /// Milliseconds to add to the times of cuts, so that they are by this node's wall clock.
        shift_ms: i64,
        /// True if WebTorrent peers are taken: the process that has their connections is there.
        takes_web: bool,
        /// True if sessions are taken. Own ones are younger here.
        takes_sessions: bool,
    },
    /// Tell by [`Input::Settled`] when all blocks before are applied.
    Settle,
    /// Fetch the rows that differ from those of a node. The end is [`Input::Repaired`]. There is one repair at a time.
    Repair {
        /// The node.
        node: u8,
        /// The kinds that differ.
        kinds: Vec<u8>,
    },
    /// Begin a walk over peers that announced within the last `since_s` seconds; one that is under way ends
    /// without [`Input::WalkEnded`]. Steps are done when [`Output::WalkMore`] asks for them.
    Walk {
        /// The oldest announce that matters, in seconds before now.
        since_s: u32,
    },
    /// Do steps of the walk, until blocks of about `bytes` have been cut, some milliseconds have passed, or
    /// it ends. Changes that the steps find come as [`Input::Block`], in order with the others.
    WalkMore {
        /// Bytes of blocks.
        bytes: usize,
    },
    /// Tell the store that it is behind what other nodes know, or no longer, by [`swarm::Store::set_behind`].
    Behind(bool),
    /// Cut blocks of all WebTorrent peers of this node: other nodes may have removed them.
    TellWeb,
    /// Remove the WebTorrent peers of a node.
    PurgeWeb {
        /// The node.
        node: u8,
    },
    /// Write an event to the process's log. [`crate::Snapshot::events`] has it, too.
    Report {
        /// True if an operator should see it.
        is_warning: bool,
        /// Description of the event.
        text: String,
    },
}
