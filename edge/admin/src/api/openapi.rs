//! Builds the OpenAPI document from the routes and from the types of their handlers. Only tests do: the API
//! serves the file that they compare it with.

mod handlers;
mod networks;
mod operation;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::route::Route;
use operation::contents;

pub(super) use networks::{network_schema, networks_schema};
pub(super) use operation::{DescribeHandler, Operation};

/// Adds schemas by name. A name must stand for one schema.
fn merge(all: &mut BTreeMap<String, Value>, more: &mut BTreeMap<String, Value>) {
    for (name, schema) in std::mem::take(more) {
        debug_assert!(
            all.get(&name).is_none_or(|known| *known == schema),
            "two schemas are called {name}"
        );
        all.insert(name, schema);
    }
}

/// Returns the document of `routes`, which are below the path `prefix`. Its version is 0.0.0.
pub(super) fn document(routes: Vec<Route>, prefix: &str) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut problems = Operation::default();
    let problem = problems.schema::<Problem>();
    merge(&mut schemas, &mut problems.schemas);
    for route in routes {
        let (name, tag) = (operation_id(&route), tag(&route));
        let mut operation = route.operation;
        merge(&mut schemas, &mut operation.schemas);
        let labels: Vec<_> = route.scopes.iter().flatten().map(|scope| scope.label()).collect();
        let needs_token = !labels.is_empty();
        let mut responses = operation.responses;
        responses.extend(failures(needs_token, &problem));
        let mut object = json!({
            "operationId": name,
            "summary": operation.summary,
            "tags": [tag],
            "parameters": operation.parameters,
            "responses": responses,
            // Since OpenAPI 3.1 scopes may be listed for every kind of scheme.
            "security": if needs_token { json!([{ "token": labels }]) } else { json!([]) },
        });
        if let Some(body) = operation.body {
            object["requestBody"] = body;
        }
        if needs_token {
            let name = if labels.len() == 1 { "Scope" } else { "Scopes" };
            object["description"] = format!("{name}: `{}`.", labels.join("`, `")).into();
        }
        paths
            .entry(route.path.replace("{*", "{"))
            .or_default()
            .insert(operation.method.to_lowercase(), object);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidegate",
            "description": "The management API of tidegate, a BitTorrent tracker. docs/api.md describes how to \
                authenticate.",
            "version": "0.0.0",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": prefix }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Returns the tag of the operation: the first segment of its path.
fn tag(route: &Route) -> &'static str {
    route.path.split('/').nth(1).unwrap_or(route.path)
}

/// Returns the operation id, as `get_torrents_by_hash`, which generated clients use as a name.
fn operation_id(route: &Route) -> String {
    let parts = route.path.split('/').filter(|part| !part.is_empty()).map(|part| {
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => format!("by_{}", name.trim_start_matches('*')),
            None => part.replace('.', "_"),
        }
    });
    let method = route.operation.method.to_lowercase();
    std::iter::once(method).chain(parts).collect::<Vec<_>>().join("_")
}

/// Returns the responses for errors that any operation may have.
fn failures(needs_token: bool, problem: &Value) -> Map<String, Value> {
    let content = || contents(&[("application/problem+json", problem.clone())]);
    let of = |description: &str| json!({ "description": description, "content": content() });
    let mut failures = Map::new();
    if needs_token {
        let challenge = json!({ "WWW-Authenticate": { "schema": { "type": "string" } } });
        let mut unauthorized = of("Missing, malformed, unknown or expired token.");
        unauthorized["headers"] = challenge;
        failures.insert("401".into(), unauthorized);
        failures.insert("403".into(), of("The token lacks the scope."));
    }
    let foreign = of("The Host header names no host of this tracker: see `[admin] hosts`.");
    failures.insert("421".into(), foreign);
    let wait = json!({ "Retry-After": { "schema": { "type": "integer", "minimum": 1 } } });
    let mut too_many = of("Too many requests, or an invalid token after too many others.");
    too_many["headers"] = wait;
    failures.insert("429".into(), too_many);
    failures.insert("default".into(), of("Any other error."));
    failures
}
