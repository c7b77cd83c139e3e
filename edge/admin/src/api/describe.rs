//! The OpenAPI document, read off the handlers: what a handler takes and gives says what stands in it.
//!
//! A handler's arguments are [`Input`]s, what it gives is an [`Output`]; each adds its part to the
//! [`Operation`] of the operation. Schemas are those that the types derive.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::problem::Problem;
use super::route::Route;
use super::scope::Scope;

/// What is said of one operation.
#[derive(Default)]
pub(super) struct Operation {
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
    schemas: BTreeMap<String, Value>,
}

/// Something that a handler takes.
pub(super) trait Input {
    /// Adds what the client has to send for it.
    fn describe(_sheet: &mut Operation) {}
}

/// Something that a handler gives.
pub(super) trait Output {
    /// Adds what the client gets.
    fn describe(operation: &mut Operation);
}

/// A handler, by the tuple of its arguments.
pub(super) trait DescribeHandler<Arguments> {
    /// Adds all that it takes and gives.
    fn describe(operation: &mut Operation);
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<Handler, Work, Given, $($argument,)*> DescribeHandler<($($argument,)*)> for Handler
        where
            Handler: Fn($($argument),*) -> Work,
            Work: Future<Output = Result<Given, Problem>>,
            Given: Output,
            $($argument: Input,)*
        {
            fn describe(operation: &mut Operation) {
                $($argument::describe(operation);)*
                Given::describe(operation);
            }
        }
    };
}

described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
described!(A B C D E);

impl<T: Input> Input for Option<T> {
    fn describe(operation: &mut Operation) {
        T::describe(operation);
    }
}

impl Operation {
    /// A parameter, as OpenAPI has it.
    pub(super) fn parameter(&mut self, parameter: Value) {
        self.parameters.push(parameter);
    }

    /// What bodies there may be, by media type.
    pub(super) fn body(&mut self, content: &[(&str, Value)]) {
        self.body = Some(json!({ "required": true, "content": contents(content) }));
    }

    /// An answer, with what it may hold by media type.
    pub(super) fn response(&mut self, status: u16, description: &str, content: &[(&str, Value)]) {
        let mut response = json!({ "description": description });
        if !content.is_empty() {
            response["content"] = contents(content);
        }
        self.responses.insert(status.to_string(), response);
    }

    /// The schema of a type: a reference, if it has a name.
    pub(super) fn schema<T: ToSchema>(&mut self) -> Value {
        let mut more = Vec::new();
        T::schemas(&mut more);
        let value = |schema| serde_json::to_value(schema).unwrap_or_default();
        self.schemas.extend(more.into_iter().map(|(name, schema)| (name, value(schema))));
        let name = T::name().into_owned();
        let own = value(T::schema());
        if own["type"] != "object" && own.get("enum").is_none() {
            return own;
        }
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        self.schemas.insert(name, own);
        reference
    }
}

fn contents(content: &[(&str, Value)]) -> Value {
    content.iter().map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema }))).collect()
}

/// Adds schemas by their names, of which each means one thing.
fn merge(all: &mut BTreeMap<String, Value>, more: &mut BTreeMap<String, Value>) {
    for (name, schema) in std::mem::take(more) {
        debug_assert!(all.get(&name).is_none_or(|known| *known == schema), "two are called {name}");
        all.insert(name, schema);
    }
}

/// The whole document.
pub(super) fn document(routes: Vec<Route>, version: &str) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut problems = Operation::default();
    let problem = problems.schema::<Problem>();
    merge(&mut schemas, &mut problems.schemas);
    for route in routes {
        let (name, tag) = (route.name(), route.tag());
        let mut operation = route.operation;
        merge(&mut schemas, &mut operation.schemas);
        let mut responses = operation.responses;
        responses.extend(failures(route.scope, &problem));
        let mut object = json!({
            "operationId": name,
            "summary": route.summary,
            "tags": [tag],
            "parameters": operation.parameters,
            "responses": responses,
            "security": security(route.scope),
        });
        if let Some(body) = operation.body {
            object["requestBody"] = body;
        }
        if let Some(scope) = route.scope {
            object["description"] = format!("Scope: `{}`.", scope.label()).into();
        }
        paths
            .entry(route.path.replace("{*", "{"))
            .or_default()
            .insert(route.method.as_str().to_lowercase(), object);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidegate",
            "description": "The management API of a BitTorrent tracker. docs/api.md tells how to get in.",
            "version": version,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": super::PREFIX }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// What may go wrong anywhere.
fn failures(scope: Option<Scope>, problem: &Value) -> Map<String, Value> {
    let content = || contents(&[("application/problem+json", problem.clone())]);
    let of = |description: &str| json!({ "description": description, "content": content() });
    let mut failures = Map::new();
    if scope.is_some() {
        let challenge = json!({ "WWW-Authenticate": { "schema": { "type": "string" } } });
        let mut unauthorized = of("No token, or none that is good.");
        unauthorized["headers"] = challenge;
        failures.insert("401".into(), unauthorized);
        failures.insert("403".into(), of("The token lacks the scope."));
    }
    let wait = json!({ "Retry-After": { "schema": { "type": "integer", "minimum": 1 } } });
    let mut too_many = of("More than is taken in a second.");
    too_many["headers"] = wait;
    failures.insert("429".into(), too_many);
    failures.insert("default".into(), of("Whatever else is wrong."));
    failures
}

fn security(scope: Option<Scope>) -> Value {
    match scope {
        // The names of scopes are for every kind of scheme since OpenAPI 3.1.
        Some(scope) => json!([{ "token": [scope.label()] }]),
        None => json!([]),
    }
}
