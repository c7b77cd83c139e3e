//! The description of one operation in the OpenAPI document, collected from its handler's types.
//!
//! A handler's arguments are [`Input`]s, its result is an [`Output`]; each adds its part to the
//! [`Operation`]. Schemas are those that the types derive.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::problem::Problem;
use crate::json::json_value;

/// The description of an operation.
#[derive(Default)]
pub(super) struct Operation {
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    pub(super) responses: Map<String, Value>,
    pub(super) schemas: BTreeMap<String, Value>,
}

/// An argument of a handler.
pub(super) trait Input {
    /// Adds what the client sends for it.
    fn describe(_sheet: &mut Operation) {}
}

/// The successful result of a handler.
pub(super) trait Output {
    /// Adds the response.
    fn describe(operation: &mut Operation);
}

/// A handler whose arguments are the tuple `Arguments`.
pub(super) trait DescribeHandler<Arguments> {
    /// Adds all arguments and the result.
    fn describe(operation: &mut Operation);
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<Handler, Work, Success, $($argument,)*> DescribeHandler<($($argument,)*)> for Handler
        where
            Handler: Fn($($argument),*) -> Work,
            Work: Future<Output = Result<Success, Problem>>,
            Success: Output,
            $($argument: Input,)*
        {
            fn describe(operation: &mut Operation) {
                $($argument::describe(operation);)*
                Success::describe(operation);
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
    /// Adds a parameter object of OpenAPI.
    pub(super) fn parameter(&mut self, parameter: Value) {
        self.parameters.push(parameter);
    }

    /// Sets the schemas of the request body by media type.
    pub(super) fn body(&mut self, content: &[(&str, Value)]) {
        self.body = Some(json!({ "required": true, "content": contents(content) }));
    }

    /// Adds a response, with its schemas by media type.
    pub(super) fn response(&mut self, status: u16, description: &str, content: &[(&str, Value)]) {
        let mut response = json!({ "description": description });
        if !content.is_empty() {
            response["content"] = contents(content);
        }
        self.responses.insert(status.to_string(), response);
    }

    /// Returns the schema of a type: a reference for objects and enums, which are added to the components.
    pub(super) fn schema<T: ToSchema>(&mut self) -> Value {
        let mut more = Vec::new();
        T::schemas(&mut more);
        self.schemas.extend(more.into_iter().map(|(name, schema)| (name, json_value(schema))));
        let name = T::name().into_owned();
        let own = json_value(T::schema());
        if own["type"] != "object" && own.get("enum").is_none() {
            return own;
        }
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        self.schemas.insert(name, own);
        reference
    }
}

/// Returns a content object of OpenAPI.
pub(super) fn contents(content: &[(&str, Value)]) -> Value {
    content.iter().map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema }))).collect()
}
