//! The description of one operation in the OpenAPI document, collected from its handler's types.
//!
//! A handler's arguments are [`Input`]s, its result is an [`Output`]; each adds its part to the
//! [`Operation`]. Schemas are those that the types derive.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api::problem::Problem;

/// The description of an operation.
#[derive(Default)]
pub(in crate::api) struct Operation {
    pub(in crate::api) method: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    pub(super) responses: Map<String, Value>,
    pub(super) schemas: BTreeMap<String, Value>,
}

/// An argument of a handler.
pub(super) trait Input {
    /// Adds what the client sends for it.
    fn describe(_operation: &mut Operation) {}
}

/// The successful result of a handler.
pub(super) trait Output {
    fn describe(operation: &mut Operation);
}

/// A handler whose arguments are the tuple `Arguments`.
pub(in crate::api) trait DescribeHandler<Arguments> {
    /// Describes the operation: method, summary, all arguments and the result.
    fn describe(method: &'static str, summary: &'static str) -> Operation;
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
            fn describe(method: &'static str, summary: &'static str) -> Operation {
                let mut operation = Operation { method, summary, ..Operation::default() };
                $($argument::describe(&mut operation);)*
                Success::describe(&mut operation);
                operation
            }
        }
    };
}

described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);

impl Operation {
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
        self.schemas.extend(more.into_iter().map(|(name, schema)| (name, json!(schema))));
        let name = T::name().into_owned();
        let own = json!(T::schema());
        if own["type"] != "object" && own.get("enum").is_none() {
            return own;
        }
        let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
        self.schemas.insert(name, own);
        reference
    }
}

pub(super) fn contents(content: &[(&str, Value)]) -> Value {
    content.iter().map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema }))).collect()
}
