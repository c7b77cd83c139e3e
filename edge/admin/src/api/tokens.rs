//! `/tokens`: the bearer tokens of the API.

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::auth::{self, Caller, TOKENS_MAX};
use super::input::{Body, Created, Id, Json, NoContent, PathParam, check_expiry, check_name};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::{Scope, Scopes};
use super::state::Shared;
use crate::records::RecordOp;
use crate::records::tables::tokens::TokenRow;
use crate::schema::ToSchema;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("GET /tokens", Scope::TokensRead, "List tokens, without their secrets", list),
        route("POST /tokens", Scope::TokensWrite, "Create a token", create),
        route("DELETE /tokens/{id}", Scope::TokensWrite, "Revoke a token", revoke),
    ]
}

/// A token. Its secret is not stored.
#[derive(Serialize, ToSchema)]
struct Token {
    #[schema(minimum = 0)]
    id: i64,
    /// A name for administrators.
    name: String,
    scopes: Vec<Scope>,
    /// Unix time, seconds.
    created: i64,
    /// Unix time in seconds; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
}

/// All tokens.
#[derive(Serialize, ToSchema)]
struct Tokens {
    tokens: Vec<Token>,
}

/// A token that was just created.
#[derive(Serialize, ToSchema)]
struct CreatedToken {
    #[serde(flatten)]
    token: Token,
    /// The token itself; cannot be read again.
    secret: String,
}

/// A token to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    #[schema(max_length = 100)]
    name: String,
    /// What it permits; at most what the creating token permits.
    #[schema(min_items = 1, max_items = 18)]
    scopes: Vec<Scope>,
    /// Unix time in seconds; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    #[serde(default)]
    expires: Option<i64>,
}

impl From<TokenRow> for Token {
    fn from(row: TokenRow) -> Self {
        let TokenRow { id, name, scopes, created, expires, .. } = row;
        Self { id, name, scopes: Scopes::parse(&scopes).list(), created, expires }
    }
}

async fn list(State(api): State<Shared>) -> Result<Json<Tokens>, Problem> {
    let tokens = api.authenticator().tokens().into_iter().map(Token::from).collect();
    Ok(Json(Tokens { tokens }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewToken>,
) -> Result<Created<CreatedToken>, Problem> {
    check_name("name", &new.name)?;
    check_expiry(new.expires)?;
    let scopes = Scopes::of(&new.scopes);
    if new.scopes.is_empty() || new.scopes.len() > Scope::COUNT {
        let (max, found) = (Scope::COUNT, new.scopes.len());
        return Err(Problem::bad_request(format!("scopes: expected 1 to {max}, found {found}")));
    }
    if !caller.scopes.cover(scopes) {
        return Err(Problem::forbidden("scopes: a token cannot grant scopes that it lacks itself"));
    }
    if let Some(last) = caller.expires
        && new.expires.is_none_or(|expires| expires > last)
    {
        return Err(Problem::forbidden(format!(
            "expires: a token cannot create tokens that outlive it: expected at most {last}"
        )));
    }
    if api.authenticator().tokens().len() >= TOKENS_MAX {
        return Err(Problem::conflict(format!(
            "the limit of {TOKENS_MAX} tokens is reached: revoke some first"
        )));
    }
    let secret = auth::generate_token().map_err(|_| Problem::no_random())?;
    let mut row = TokenRow {
        id: 0,
        digest: auth::fingerprint(&secret),
        name: new.name,
        scopes: scopes.to_string(),
        created: api.now(),
        expires: new.expires,
        is_first: false,
    };
    row.id = api.records().change(RecordOp::TokenPut(row.clone())).await?.id;
    api.audit(
        &caller,
        format_args!("created token {} ({:?}) with scopes {}", row.id, row.name, row.scopes),
    );
    Ok(Created(CreatedToken { token: row.into(), secret }))
}

async fn revoke(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    let id = i64::from(id);
    let tokens = api.authenticator().tokens();
    let scopes = tokens.iter().find(|token| token.id == id).map(|token| &token.scopes);
    if scopes.is_some_and(|scopes| !caller.scopes.cover(Scopes::parse(scopes))) {
        let text = "a token cannot revoke tokens with scopes that it lacks itself";
        return Err(Problem::forbidden(text));
    }
    if api.records().change(RecordOp::TokenRemoved { id }).await?.changed == 0 {
        return Err(Problem::not_found(format!("no token with id {id}")));
    }
    api.audit(&caller, format_args!("revoked token {id}"));
    Ok(NoContent)
}
