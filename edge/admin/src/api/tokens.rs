//! `/tokens`: the bearer tokens of the API.

use super::auth::{self, TOKENS_MAX};
use super::handler::*;
use super::input::{check_count, check_expiry, check_name, check_room, page_limit, search_text};
use crate::records::RecordOp;
use crate::records::tables::tokens::TokenRow;
use crate::records::tables::webhooks::WebhookRow;

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

/// A page of tokens.
#[derive(Serialize, ToSchema)]
struct TokenPage {
    tokens: Vec<Token>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
    /// The number of tokens that match.
    total: u64,
}

/// Query parameters of a page of tokens.
#[derive(Deserialize, IntoParams)]
struct TokenPageQuery {
    /// The `next` of the previous page.
    #[param(format = Int64, minimum = 0, maximum = 4294967295u64, nullable = false)]
    cursor: Option<u32>,
    /// By default 1000: all.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only tokens with this in their names or scopes (in any case).
    #[param(max_length = 100, nullable = false)]
    q: Option<String>,
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
    /// Permissions of the token; at most those of the creating token.
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

async fn list(
    State(api): State<Shared>,
    Query(query): Query<TokenPageQuery>,
) -> Result<Json<TokenPage>, Problem> {
    let limit = page_limit(query.limit, TOKENS_MAX as u32, TOKENS_MAX as u32)? as usize;
    let text = search_text(query.q)?.to_lowercase();
    let mut tokens = api.authenticator().tokens();
    tokens.retain(|row| row.name.to_lowercase().contains(&text) || row.scopes.contains(&text));
    let total = tokens.len() as u64;
    // Ids begin at 0, that of the bootstrap token.
    tokens.retain(|row| query.cursor.is_none_or(|cursor| row.id > cursor.into()));
    let has_more = tokens.len() > limit;
    tokens.truncate(limit);
    let next = tokens.last().filter(|_| has_more).and_then(|row| row.id.try_into().ok());
    Ok(Json(TokenPage { tokens: tokens.into_iter().map(Token::from).collect(), next, total }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewToken>,
) -> Result<Created<CreatedToken>, Problem> {
    check_name("name", &new.name)?;
    check_expiry(new.expires, api.now())?;
    let scopes = Scopes::of(&new.scopes);
    check_count("scopes", new.scopes.len(), Scope::all().count())?;
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
    let wanted = api.authenticator().tokens().len() + 1;
    check_room(wanted, TOKENS_MAX, "tokens", "revoke some first")?;
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
    let token = tokens.iter().find(|token| token.id == id);
    if token.is_some_and(|token| !caller.scopes.cover(Scopes::parse(&token.scopes))) {
        let text = "a token cannot revoke tokens with scopes that it lacks itself";
        return Err(Problem::forbidden(text));
    }
    // First, so that a failure leaves a token that can be revoked again.
    let ends = |row: &WebhookRow| token.is_some_and(|token| row.token == Some(token.digest));
    for row in api.webhooks().rows().into_iter().filter(ends) {
        api.records().change(RecordOp::WebhookRemoved { id: row.id }).await?;
        api.audit(&caller, format_args!("removed webhook {} of token {id}", row.id));
    }
    api.remove(RecordOp::TokenRemoved { id }, || format!("no token with id {id}")).await?;
    api.audit(&caller, format_args!("revoked token {id}"));
    Ok(NoContent)
}
