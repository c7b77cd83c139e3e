//! Parts of an operation's description that come from the arguments and results of its handler.

use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tracker::IpPrefix;
use types::InfoHash;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::{IntoParams, ToSchema};

use super::networks::{address_schema, network_schema};
use super::operation::{Input, Operation, Output};
use crate::api::auth::Caller;
use crate::api::backup::ArchiveFile;
use crate::api::cluster::{ClusterState, NodeNumber};
use crate::api::events::EventStream;
use crate::api::history::StatsStream;
use crate::api::input::{Body, Created, Id, Json, NoContent, PathParam, PathSegment, Query, Raw};
use crate::api::lists::{Entries, EntryPage, InfoHashes, ListsState};
use crate::api::peers::AddressQuery;
use crate::api::site::{Feed, SiteState};
use crate::api::state::Shared;
use crate::api::stats::{Health, HealthState, NetworkState};
use crate::events::Event;
use crate::records::tables::lists::List;

impl Input for State<Shared> {}

impl Input for Caller {}

impl Input for HeaderMap {}

impl<T: ToSchema, const MAX: usize> Input for Body<T, MAX> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.body(&[("application/json", schema)]);
    }
}

impl Input for InfoHashes {
    fn describe(operation: &mut Operation) {
        let hash = InfoHash::schema();
        let array = json!({ "type": "array", "minItems": 1, "items": hash });
        let text = json!({
            "type": "string",
            "description": "Info hashes, one per line, each optionally followed by blanks and a note; # begins a comment",
            "pattern": "^([0-9a-f]{40}\\n)+$",
        });
        operation.body(&[("application/json", array), ("text/plain", text)]);
    }
}

impl<T: IntoParams> Input for Query<T> {
    fn describe(operation: &mut Operation) {
        for parameter in T::into_params(|| Some(ParameterIn::Query)) {
            operation.parameters.push(json!(parameter));
        }
    }
}

// Not derived: that leaves out the description of a parameter that has a schema of its own.
impl IntoParams for AddressQuery {
    fn into_params(place: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let address = ParameterBuilder::new()
            .name("address")
            .parameter_in(place().unwrap_or_default())
            .required(Required::True)
            .description(Some("An IP address without a port."))
            .schema(Some(address_schema()));
        vec![address.build()]
    }
}

impl<T: PathSchema> Input for PathParam<T> {
    fn describe(operation: &mut Operation) {
        operation.parameters.push(json!({
            "name": T::NAME, "in": "path", "required": true, "schema": T::schema(),
        }));
    }
}

/// A type of path parameter with its JSON Schema.
trait PathSchema: PathSegment {
    fn schema() -> Value;
}

impl PathSchema for InfoHash {
    fn schema() -> Value {
        let pattern = "^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$";
        json!({ "type": "string", "pattern": pattern, "description": "40 hex digits; or 64, of a v2 hash" })
    }
}

impl PathSchema for Id {
    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

impl PathSchema for NodeNumber {
    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 1, "maximum": 255 })
    }
}

impl PathSchema for IpPrefix {
    fn schema() -> Value {
        json!(network_schema())
    }
}

impl PathSchema for List {
    fn schema() -> Value {
        json!({ "type": "string", "enum": ["allow", "deny"] })
    }
}

impl<T: ToSchema> Output for Json<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.response(200, "OK.", &[("application/json", schema)]);
    }
}

impl<T: ToSchema> Output for Created<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.response(201, "Created and applied.", &[("application/json", schema)]);
    }
}

impl Output for Raw<ClusterState> {
    fn describe(operation: &mut Operation) {
        Json::<cluster::ClusterStatus>::describe(operation);
    }
}

impl Output for Raw<NetworkState> {
    fn describe(operation: &mut Operation) {
        Json::<geo::NetworkStatus>::describe(operation);
    }
}

impl Output for Raw<ListsState> {
    fn describe(operation: &mut Operation) {
        Json::<::lists::ListsStatus>::describe(operation);
    }
}

impl Output for Raw<SiteState> {
    fn describe(operation: &mut Operation) {
        Json::<site::SiteStatus>::describe(operation);
    }
}

impl Output for NoContent {
    fn describe(operation: &mut Operation) {
        operation.response(204, "Applied.", &[]);
    }
}

impl Output for Raw<Entries> {
    fn describe(operation: &mut Operation) {
        let page = operation.schema::<EntryPage>();
        let text = json!({ "type": "string", "description": "All entries, one per line" });
        let content = [("application/json", page), ("text/plain", text)];
        operation.response(200, "A page; with `Accept: text/plain`, all entries.", &content);
    }
}

impl Output for Raw<HealthState> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<Health>();
        operation.response(200, "Healthy.", &[("application/json", schema.clone())]);
        operation.response(503, "Unhealthy.", &[("application/json", schema)]);
    }
}

impl Output for Raw<EventStream> {
    fn describe(operation: &mut Operation) {
        let event = operation.schema::<Event>();
        let text = json!({
            "type": "string",
            "description": "Lines `id:`, `event:` and `data:`. The data is an Event in JSON. After the \
                client read too slowly, an event `missed` has the number of events dropped.",
            "contentSchema": event,
        });
        operation.response(
            200,
            "Events, until the client disconnects.",
            &[("text/event-stream", text)],
        );
    }
}

impl Output for Raw<Feed> {
    fn describe(operation: &mut Operation) {
        let line = json!({
            "type": "string",
            "description": "A batch per line, in JSON: `cursor`, which is made of `feed` (differs by node, and after the \
                state was lost) and `sequence`, `time` (Unix time in seconds) and `records`. A record \
                has `user` (the id of a key), `info_hash`, what was `uploaded` and `downloaded` since the last batch \
                in which it was, `seeded_s`, `completed` (Unix time; absent if no client has just completed the \
                torrent), `event`, and `clients`, each as its last announce left it.",
        });
        let stream = json!({
            "type": "string",
            "description": "Events `batch` with the cursor as `id:` and the same JSON as `data:`. A client that \
                connects again continues behind its `Last-Event-ID`.",
        });
        let content = [("application/x-ndjson", line), ("text/event-stream", stream)];
        let text = "Batches; with `Accept: text/event-stream`, further ones as they are made.";
        operation.response(200, text, &content);
    }
}

impl Output for Raw<ArchiveFile> {
    fn describe(operation: &mut Operation) {
        let file = json!({
            "type": "string",
            "format": "binary",
            "description": "A tar file for `tidegate restore`. Its last file is `backup.json`: without it, the archive is \
                incomplete.",
        });
        operation.response(200, "The archive.", &[("application/x-tar", file)]);
    }
}

impl Output for Raw<StatsStream> {
    fn describe(operation: &mut Operation) {
        let text = json!({
            "type": "string",
            "description": "First the events `history` (field names, and one sample per second of the last \
                minute) and `details`; then `sample` each second, `details` every five seconds, and \
                `annotation` as it happens. Data is JSON.",
        });
        operation.response(
            200,
            "Statistics, until the client disconnects.",
            &[("text/event-stream", text)],
        );
    }
}
