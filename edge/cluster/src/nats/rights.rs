//! What a node may do at the servers: exactly what the driver does.

use super::options::Subjects;

/// The subjects that a node may publish and subscribe to. Others are refused by a server with users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Patterns of subjects.
    pub publish: Vec<String>,
    /// Patterns of subjects.
    pub subscribe: Vec<String>,
}

impl Rights {
    /// Returns the rights of `node` in the cluster `name`. With `manages_streams`, it may create the streams
    /// and change their settings.
    ///
    /// It publishes only in its own name, but for answers and WebTorrent letters, whose subjects name who they
    /// are for.
    pub fn of_node(name: &str, node: u8, manages_streams: bool) -> Self {
        let subjects = Subjects::new(name, node);
        let own = [subjects.data(), subjects.live(), subjects.records(), subjects.heartbeat()];
        let mut publish: Vec<String> = own.iter().map(ToString::to_string).collect();
        publish.extend(["w", "q"].map(|kind| format!("tg.{name}.{kind}.*.{node}")));
        publish.push(format!("tg.{name}.i.>"));
        for stream in ["d", "r"].map(|kind| subjects.stream(kind)) {
            let mut calls = vec![format!("STREAM.INFO.{stream}")];
            if manages_streams {
                calls.extend(["CREATE", "UPDATE"].map(|call| format!("STREAM.{call}.{stream}")));
            }
            let of_consumer = ["CREATE", "INFO", "MSG.NEXT"];
            calls.extend(of_consumer.map(|call| format!("CONSUMER.{call}.{stream}.*")));
            publish.extend(calls.into_iter().map(|call| format!("$JS.API.{call}")));
        }
        let subscribe = vec![
            subjects.all("l"),
            subjects.all("h"),
            subjects.to_this("w"),
            subjects.to_this("q"),
            format!("{}.>", subjects.inbox()),
        ];
        Self { publish, subscribe }
    }
}
