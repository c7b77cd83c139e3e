//! Log messages about refused requests.

use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::*;

/// Collects the field `client` of all events.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<Vec<String>>>);

impl Visit for Clients {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "client" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Clients {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn refused_announce_behind_a_proxy_is_logged_with_the_client() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
    let proxies = Networks::parse(["10.0.0.1"]).unwrap();
    let mut front = front_behind(&tracker, &registry, Some(proxies));
    let client = "192.0.2.7";
    let id = tracker.view(Tick(0)).issue_connection_id(client.parse().unwrap());
    let refused = announce(id, AnnounceFields { port: 0, ..LEECHER });
    let packet = [proxies::header(client), refused].concat();
    let proxy = SocketAddr::from(([10, 0, 0, 1], 5));
    let clients = Clients::default();
    // An event is lost if another test reaches its place in the code for the first time just now.
    wait_until("an event", || {
        tracing::subscriber::with_default(clients.clone(), || {
            let replies = sim::exchange(&mut front, 0, &[(proxy, &packet)]);
            assert_eq!(u32_at(&replies[0].1, 38), ERROR);
        });
        !clients.0.lock().unwrap().is_empty()
    });
    assert_eq!(*clients.0.lock().unwrap(), [client]);
}
