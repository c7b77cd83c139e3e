//! `/webhooks`: URLs that events are posted to.

use std::net::IpAddr;

use super::auth::{AuthError, random_text};
use super::handler::*;
use super::input::{check_count, check_length, check_room};
use super::state::ApiOptions;
use crate::events::EventKind;
use crate::public_address::is_public_address;
use crate::records::RecordOp;
use crate::records::tables::webhooks::WebhookRow;
use crate::webhooks::{Delivery, recorded_kinds};

/// Webhooks at most.
const WEBHOOKS_MAX: usize = 32;
/// Characters of a URL.
const URL_MAX: usize = 2000;
/// Characters of a secret: 190 bits.
const SECRET_LEN: usize = 32;

pub(super) fn routes() -> Vec<Route> {
    vec![
        // A webhook receives events, and its URL may be a secret that lets others post to its receiver.
        route("GET /webhooks", Scope::ConfigRead, "List webhooks, without their secrets", list)
            .and(Scope::EventsRead),
        route("POST /webhooks", Scope::ConfigWrite, "Create a webhook", create)
            .and(Scope::EventsRead),
        route("DELETE /webhooks/{id}", Scope::ConfigWrite, "Remove a webhook", remove),
        route("POST /webhooks/{id}/test", Scope::ConfigWrite, "Post a test event once", test),
        route(
            "GET /webhooks/{id}/deliveries",
            Scope::ConfigRead,
            "List the latest attempts to post events to a webhook",
            deliveries,
        )
        .and(Scope::EventsRead),
    ]
}

/// A webhook.
#[derive(Serialize, ToSchema)]
struct Webhook {
    #[schema(minimum = 1)]
    id: i64,
    url: String,
    /// Kinds of events that are posted.
    events: Vec<EventKind>,
    /// Unix time, seconds.
    created: i64,
    /// When the token that created it expires, Unix time in seconds; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    /// True if events are posted: false once the token that created it has expired or was revoked.
    active: bool,
    /// The latest attempt to post an event since the start; absent: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_delivery: Option<Delivery>,
}

/// The latest attempts to post events to a webhook since the start.
#[derive(Serialize, ToSchema)]
struct DeliveryList {
    /// At most 50, newest first.
    deliveries: Vec<Delivery>,
}

/// All webhooks.
#[derive(Serialize, ToSchema)]
struct WebhookList {
    webhooks: Vec<Webhook>,
}

/// A webhook that was just created.
#[derive(Serialize, ToSchema)]
struct CreatedWebhook {
    #[serde(flatten)]
    webhook: Webhook,
    /// The key of the signatures of posts; cannot be read again.
    secret: String,
}

/// A webhook to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewWebhook {
    /// An https URL, or an http URL if the network is trusted. `[admin] webhook_ports` must name its port.
    #[schema(
        max_length = 2000,
        pattern = "^https?://[a-z0-9]+([.-][a-z0-9]+)*(:[1-9][0-9]{0,3})?(/([A-Za-z0-9/_.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)?$"
    )]
    url: String,
    /// Kinds of events to post.
    #[schema(min_items = 1, max_items = 8)]
    events: Vec<EventKind>,
}

impl Webhook {
    fn new(row: WebhookRow, api: &Api) -> Self {
        let owner = row.token.as_ref().and_then(|digest| api.authenticator().by_digest(digest));
        let (active, expires) = (api.webhooks().is_active(&row), owner.and_then(|it| it.expires));
        let last_delivery = api.webhooks().log.last(row.id);
        let kinds = recorded_kinds(&row.events);
        let events = EventKind::all().filter(|kind| kinds.contains(kind)).collect();
        let WebhookRow { id, url, created, .. } = row;
        Self { id, url, events, created, expires, active, last_delivery }
    }
}

async fn list(State(api): State<Shared>) -> Result<Json<WebhookList>, Problem> {
    let rows = api.webhooks().rows().into_iter();
    let webhooks = rows.map(|row| Webhook::new(row, &api)).collect();
    Ok(Json(WebhookList { webhooks }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewWebhook>,
) -> Result<Created<CreatedWebhook>, Problem> {
    let host = check_url(&new.url, &api.options)?;
    check_count("events", new.events.len(), EventKind::all().count())?;
    let wanted = api.webhooks().rows().len() + 1;
    check_room(wanted, WEBHOOKS_MAX, "webhooks", "remove one first")?;
    if new.events.contains(&EventKind::Accounting) {
        check_accounting(&api, &caller)?;
    }
    let secret = random_text(SECRET_LEN).map_err(|_| Problem::no_random())?;
    let events: Vec<_> = new.events.iter().map(|kind| kind.label()).collect();
    let mut row = WebhookRow {
        id: 0,
        url: new.url,
        events: events.join(" "),
        secret: secret.clone(),
        created: api.now(),
        token: caller.owner,
    };
    row.id = api.records().change(RecordOp::WebhookPut(row.clone())).await?.id;
    api.audit(&caller, format_args!("created webhook {} to {host}", row.id));
    Ok(Created(CreatedWebhook { webhook: Webhook::new(row, &api), secret }))
}

/// Checks that batches of the site may be posted to a new webhook: what its receiver accepts is confirmed.
fn check_accounting(api: &Api, caller: &Caller) -> Result<(), Problem> {
    let scopes = Scopes::of(&[Scope::AccountingRead, Scope::AccountingWrite]);
    if !caller.scopes.cover(scopes) {
        return Err(AuthError::MissingScope.problem(scopes));
    }
    match api.webhooks().of_accounting() {
        None => Ok(()),
        Some(row) => Err(Problem::conflict(format!(
            "events: webhook {} gets the batches of the site, and only one can: remove it first",
            row.id
        ))),
    }
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    let id = i64::from(id);
    api.remove(RecordOp::WebhookRemoved { id }, || absent(id)).await?;
    api.audit(&caller, format_args!("removed webhook {id}"));
    Ok(NoContent)
}

async fn test(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<Json<Delivery>, Problem> {
    let row = api.webhooks().rows().into_iter().find(|row| row.id == i64::from(id));
    let row = row.ok_or_else(|| Problem::not_found(absent(id.into())))?;
    if !api.webhooks().is_active(&row) {
        return Err(Problem::conflict(
            "the token that created this webhook has ended: create another",
        ));
    }
    let delivery = api.webhooks().test(&row).await;
    api.audit(&caller, format_args!("tested webhook {id}"));
    Ok(Json(delivery))
}

async fn deliveries(
    State(api): State<Shared>,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<Json<DeliveryList>, Problem> {
    let id = i64::from(id);
    if !api.webhooks().contains(id) {
        return Err(Problem::not_found(absent(id)));
    }
    Ok(Json(DeliveryList { deliveries: api.webhooks().log.of(id) }))
}

fn absent(id: i64) -> String {
    format!("no webhook with id {id}")
}

/// Checks that events may be posted to `url`, and returns its host: the rest may contain secrets. A name is
/// resolved and checked when events are posted.
fn check_url(url: &str, options: &ApiOptions) -> Result<String, Problem> {
    let bad = |reason: String| Problem::bad_request(format!("url: {reason}"));
    check_length("url", url.len(), URL_MAX)?;
    let uri: axum::http::Uri = url.parse().map_err(|_| bad("expected a URL".into()))?;
    let port = match uri.scheme_str() {
        Some("https") => uri.port_u16().unwrap_or(443),
        Some("http") => uri.port_u16().unwrap_or(80),
        _ => return Err(bad("expected a URL that begins with https:// or http://".into())),
    };
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if uri.host().is_none_or(str::is_empty) || has_user {
        return Err(bad("expected a host and no user name or password".into()));
    }
    // The URL parser accepts every host that RFC 3986 allows, including `*` and `$`, which DNS does not.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !uri.host().is_some_and(|host| host.starts_with('[') || host.bytes().all(is_name)) {
        return Err(bad("expected a host name or an IP address".into()));
    }
    // It takes a port that is no number for none.
    let written = uri.host().zip(uri.port_u16()).map(|(host, port)| format!("{host}:{port}"));
    let expected = written.as_deref().or_else(|| uri.host());
    if uri.authority().map(|authority| authority.as_str()) != expected {
        return Err(bad("expected a number from 1 to 65535 after the colon".into()));
    }
    if !options.webhook_ports.contains(&port) {
        return Err(Problem::forbidden(format!(
            "url: [admin] webhook_ports does not contain port {port}: add it and restart"
        )));
    }
    let host = uri.host().unwrap_or_default().to_owned();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    if let Ok(ip) = bare.parse::<IpAddr>()
        && !is_public_address(ip)
        && !options.webhook_private.contains(ip)
    {
        return Err(Problem::forbidden(format!(
            "url: {ip} is not a public address: add it to [admin] webhook_private and restart"
        )));
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use tracker::Networks;

    use super::*;

    #[test]
    fn accepts_only_urls_with_permitted_ports() {
        let options = ApiOptions {
            webhook_ports: vec![443, 8080],
            webhook_private: Networks::parse(["127.0.0.1"]).unwrap(),
            ..ApiOptions::default()
        };
        let check = |url: &str| check_url(url, &options).map_err(|problem| problem.status.as_u16());
        assert_eq!(check("https://hooks.example.org/x?y=1"), Ok("hooks.example.org".into()));
        assert_eq!(check("http://127.0.0.1:8080/"), Ok("127.0.0.1".into()));
        assert_eq!(check("https://[2a00::1]/"), Ok("[2a00::1]".into()));
        for private in ["127.0.0.2", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]", "[fd00::1]"] {
            assert_eq!(check(&format!("https://{private}/")), Err(403), "{private}");
        }
        assert_eq!(check("http://hooks.example.org/"), Err(403));
        assert_eq!(check("https://hooks.example.org:22/"), Err(403));
        for bad in [
            "",
            "/etc/passwd",
            "file:///etc/passwd",
            "https://",
            "ftp://a:443/",
            "https://u:p@host/",
            "https:///x",
            "https://host*/",
            "https://host:443*/",
            "https://host:/",
        ] {
            assert_eq!(check(bad), Err(400), "{bad}");
        }
    }
}
