//! The rights of users at the servers: nodes have those that the driver needs, readers of accounts those that receive and
//! answer, the operator those that change the stream, and a user of the system account those that remove users.

use super::options::Subjects;

/// The subjects that a user may publish and subscribe to. Others are refused by a server with users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Patterns of subjects.
    pub publish: Vec<String>,
    /// Patterns of subjects.
    pub subscribe: Vec<String>,
    /// True if the user may answer each message that it receives, for a while.
    pub answers: bool,
}

impl Rights {
    /// Returns the rights of `node` in the cluster `name`.
    ///
    /// It publishes only in its own name, but for answers, whose subjects name who they are for, and it cannot
    /// change streams: a stream can be made to publish under the subject of another node.
    pub fn of_node(name: &str, node: u8) -> Self {
        let subjects = Subjects::new(name, node);
        let own = [
            subjects.data(),
            subjects.live(),
            subjects.rows(),
            subjects.heartbeat(),
            subjects.batches(),
        ];
        let mut publish: Vec<String> = own.iter().map(ToString::to_string).collect();
        publish.extend(["w", "q"].map(|kind| format!("tg.{name}.{kind}.*.{node}")));
        publish.push(format!("tg.{name}.i.>"));
        let stream = subjects.stream();
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        let of_consumer = ["CREATE", "INFO", "MSG.NEXT"];
        publish.extend(of_consumer.map(|call| format!("$JS.API.CONSUMER.{call}.{stream}.*")));
        let subscribe = vec![
            subjects.all("l"),
            subjects.all("r"),
            subjects.all("h"),
            subjects.to_this("w"),
            subjects.to_this("q"),
            format!("{}.>", subjects.inbox()),
        ];
        Self { publish, subscribe, answers: false }
    }

    /// Returns the rights of a reader of accounts in the cluster `name`: to receive the batches of all nodes, and to
    /// answer them.
    pub fn of_reader(name: &str) -> Self {
        let subscribe = vec![Subjects::new(name, OPERATOR).all("f")];
        Self { publish: Vec::new(), subscribe, answers: true }
    }

    /// Returns the rights of the operator, who makes and changes the stream of the cluster `name`.
    pub fn of_operator(name: &str) -> Self {
        let subjects = Subjects::new(name, OPERATOR);
        let stream = subjects.stream();
        let calls = ["INFO", "CREATE", "UPDATE"];
        let publish = calls.map(|call| format!("$JS.API.STREAM.{call}.{stream}")).into();
        Self { publish, subscribe: vec![format!("{}.>", subjects.inbox())], answers: false }
    }

    /// Returns the rights of the system account's user that tells the servers which users of the cluster `name` are
    /// removed.
    pub fn of_system(name: &str) -> Self {
        let subjects = Subjects::new(name, OPERATOR);
        Self {
            publish: vec![UPDATE_ACCOUNT.into()],
            subscribe: vec![format!("{}.>", subjects.inbox())],
            answers: false,
        }
    }
}

/// Servers take a new JWT of an account at this subject of their system account.
pub(super) const UPDATE_ACCOUNT: &str = "$SYS.REQ.CLAIMS.UPDATE";

/// No node has this number.
pub(super) const OPERATOR: u8 = 0;
