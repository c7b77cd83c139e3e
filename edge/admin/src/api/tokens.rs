//! `/tokens`: who may do what.

use axum::extract::State;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::auth::{self, Caller, TOKENS_MAX};
use super::input::{Body, Created, Id, Json, NoContent, PathParam, check_expiry, check_name};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::{Scope, Scopes};
use crate::records::tables::tokens::{self, TokenRow};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("GET /tokens", Scope::TokensRead, "All tokens, without their secrets", list),
        route("POST /tokens", Scope::TokensWrite, "Make a token", create),
        route("DELETE /tokens/{id}", Scope::TokensWrite, "Revoke a token", revoke),
    ]
}

/// A token. What it is itself is nowhere kept.
#[derive(Serialize, ToSchema)]
struct Token {
    #[schema(minimum = 0)]
    id: i64,
    /// What its maker calls it.
    name: String,
    scopes: Vec<Scope>,
    /// Seconds since 1970.
    created: i64,
    /// Seconds since 1970; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
}

/// All tokens.
#[derive(Serialize, ToSchema)]
struct Tokens {
    tokens: Vec<Token>,
}

/// A token that has just been made.
#[derive(Serialize, ToSchema)]
struct CreatedToken {
    #[serde(flatten)]
    token: Token,
    /// The token itself: shown now, and never again.
    secret: String,
}

/// What a new token shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TokenWish {
    #[schema(max_length = 100)]
    name: String,
    /// What it allows. Nobody can give more than he has.
    #[schema(min_items = 1, max_items = 18)]
    scopes: Vec<Scope>,
    /// Seconds since 1970 at which it ends; absent: never.
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

/// Puts the operator's own token among `known` and, if there is none at all, makes one and gives it.
pub(super) fn seed(
    known: &mut Vec<TokenRow>,
    given: Option<&str>,
    connection: &Connection,
) -> Result<Option<String>, rusqlite::Error> {
    let row = |token: &str, name: &str| TokenRow {
        id: 0,
        digest: auth::fingerprint(token),
        name: name.into(),
        scopes: Scopes::ALL.to_string(),
        created: 0,
        expires: None,
    };
    if let Some(token) = given {
        known.push(row(token, "environment"));
    }
    if !known.is_empty() {
        return Ok(None);
    }
    let Ok(token) = auth::generate_token() else { return Ok(None) };
    known.push(tokens::insert(connection, row(&token, "first"))?);
    Ok(Some(token))
}

async fn list(State(api): State<Shared>) -> Result<Json<Tokens>, Problem> {
    let tokens = api.authenticator.tokens().into_iter().map(Token::from).collect();
    Ok(Json(Tokens { tokens }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<TokenWish>,
) -> Result<Created<CreatedToken>, Problem> {
    check_name("name", &new.name)?;
    check_expiry(new.expires)?;
    let scopes = Scopes::of(&new.scopes);
    if new.scopes.is_empty() || new.scopes.len() > Scope::COUNT {
        return Err(Problem::bad_request(format!("scopes: 1 to {} are due", Scope::COUNT)));
    }
    if !caller.scopes.cover(scopes) {
        return Err(Problem::forbidden("a token can give no scope that it lacks itself"));
    }
    if api.authenticator.tokens().len() >= TOKENS_MAX {
        return Err(Problem::conflict(format!("{TOKENS_MAX} tokens are the most: revoke some")));
    }
    let secret = auth::generate_token()
        .map_err(|_| Problem::unavailable("the system gives no random numbers"))?;
    let row = TokenRow {
        id: 0,
        digest: auth::fingerprint(&secret),
        name: new.name,
        scopes: scopes.to_string(),
        created: api.now(),
        expires: new.expires,
    };
    let shared = Shared::clone(&api);
    let put = move |row: &TokenRow| shared.authenticator.add(row.clone());
    let row = api.records().change(move |db| tokens::insert(db, row), put).await?;
    api.audit(&caller, format_args!("made token {} ({:?}) for {}", row.id, row.name, row.scopes));
    Ok(Created(CreatedToken { token: row.into(), secret }))
}

async fn revoke(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    let shared = Shared::clone(&api);
    let id = i64::from(id);
    let forget = move |was_there: &bool| {
        if *was_there {
            shared.authenticator.remove(id);
        }
    };
    if !api.records().change(move |db| tokens::remove(db, id), forget).await? {
        return Err(Problem::not_found("there is no token of this number"));
    }
    api.audit(&caller, format_args!("revoked token {id}"));
    Ok(NoContent)
}
