//! Takes the keys of a configuration one by one, and names those that are left.

use std::fmt;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::addresses;
use crate::document::{Document, Found};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::machine;
use crate::options::Options;
use crate::rival::{KeyRow, Rival};

/// A configuration on its way to a draft.
pub(crate) struct Mapper<'a> {
    pub(crate) document: Document,
    pub(crate) draft: &'a mut Draft,
    pub(crate) options: &'a Options,
    rival: Rival,
    keys: Vec<KeyRow>,
}

impl<'a> Mapper<'a> {
    pub(crate) fn new(
        rival: Rival,
        document: Document,
        draft: &'a mut Draft,
        options: &'a Options,
    ) -> Self {
        Self { document, draft, options, rival, keys: rival.keys() }
    }

    /// Takes integers, each of which is that of our key in its row.
    pub(crate) fn set_numbers(&mut self, theirs: &[&str]) -> Result<(), ImportError> {
        for name in theirs {
            let ours = self.row(name).and_then(|row| row.ours.first().copied());
            self.set_number(name, ours.unwrap_or_default())?;
        }
        Ok(())
    }

    pub(crate) fn row(&self, name: &str) -> Option<&KeyRow> {
        self.keys.iter().find(|row| row.is(name))
    }

    /// Returns the reason why a key has no counterpart.
    pub(crate) fn reason(&self, name: &str) -> &'static str {
        self.row(name).map_or("", |row| row.remark)
    }

    /// Takes a text whose key has no counterpart, and notes that.
    pub(crate) fn text_without(&mut self, path: &str) -> Result<Option<String>, ImportError> {
        let Some((text, found)) = self.text(path)? else { return Ok(None) };
        let reason = self.reason(path);
        self.draft.without(path, &found.place, reason);
        Ok(Some(text))
    }

    /// Takes a port. Returns `default` with `remark` if there is none.
    pub(crate) fn port(
        &mut self,
        path: &str,
        default: u16,
        remark: &str,
    ) -> Result<(u16, String), ImportError> {
        let Some((port, found)) = self.number(path)? else {
            return Ok((default, remark.to_owned()));
        };
        let port = u16::try_from(port).map_err(|_| found.expected("a port from 0 to 65535"))?;
        Ok((port, found.comment()))
    }

    /// Returns the comment about the header in which proxies name clients, which must be another one here.
    pub(crate) fn header_comment(header: &str, found: &Found) -> String {
        let comment = found.comment();
        if header.eq_ignore_ascii_case("x-forwarded-for") {
            return comment;
        }
        format!("{comment} The proxy must write X-Forwarded-For in place of {header:?}.")
    }

    /// Takes an integer.
    pub(crate) fn number(&mut self, path: &str) -> Result<Option<(i64, Found)>, ImportError> {
        let Some(found) = self.take_value(path) else { return Ok(None) };
        let number = match &found.value {
            Value::Number(number) => {
                number.as_i64().or_else(|| number.as_f64().map(|number| number as i64))
            }
            Value::String(text) if text.trim().is_empty() => return Ok(None),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| found.expected("an integer"))?;
        Ok(Some((number, found)))
    }

    /// Takes true or false.
    pub(crate) fn flag(&mut self, path: &str) -> Result<Option<(bool, Found)>, ImportError> {
        let Some(found) = self.take_value(path) else { return Ok(None) };
        let flag = match &found.value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" | "" => Some(false),
                _ => None,
            },
            _ => None,
        };
        let flag = flag.ok_or_else(|| found.expected("true or false"))?;
        Ok(Some((flag, found)))
    }

    /// Takes a text that is not empty.
    pub(crate) fn text(&mut self, path: &str) -> Result<Option<(String, Found)>, ImportError> {
        let Some(found) = self.take_value(path) else { return Ok(None) };
        match &found.value {
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(text) => Ok(Some((text.clone(), found))),
            Value::Number(number) => Ok(Some((number.to_string(), found))),
            _ => Err(found.expected("a text")),
        }
    }

    /// Takes the files of a certificate. Missing ones are empty.
    pub(crate) fn certificate(
        &mut self,
        chain: &str,
        key: &str,
    ) -> Result<[String; 2], ImportError> {
        let mut file = |path: &str| -> Result<String, ImportError> {
            Ok(self.text(path)?.map_or_else(String::new, |(file, _)| file))
        };
        Ok([file(chain)?, file(key)?])
    }

    /// Takes a list of texts.
    pub(crate) fn texts(
        &mut self,
        path: &str,
    ) -> Result<Option<(Vec<String>, Found)>, ImportError> {
        let Some(found) = self.take_value(path) else { return Ok(None) };
        let items = found.value.as_array().ok_or_else(|| found.expected("a list of texts"))?;
        let text = |item: &Value| match item {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(found.expected("a list of texts")),
        };
        let texts = items.iter().map(text).collect::<Result<_, _>>()?;
        Ok(Some((texts, found)))
    }

    /// Takes addresses that one value stands for.
    pub(crate) fn addresses(
        &mut self,
        path: &str,
        port: u16,
    ) -> Result<Option<(Vec<String>, Found)>, ImportError> {
        let Some((text, found)) = self.text(path)? else { return Ok(None) };
        Ok(Some((found.addresses(&text, port)?, found)))
    }

    /// Takes a key. Null is no value.
    fn take_value(&mut self, path: &str) -> Option<Found> {
        self.document.take(path).filter(|found| !found.value.is_null())
    }

    /// Takes an integer and sets a key to it, within the key's bounds.
    pub(crate) fn set_number(&mut self, path: &str, ours: &'static str) -> Result<(), ImportError> {
        let Some((number, found)) = self.number(path)? else { return Ok(()) };
        self.set_bounded(&found, ours, number);
        Ok(())
    }

    /// Sets a key to a number, within the key's bounds.
    pub(crate) fn set_bounded(&mut self, found: &Found, ours: &'static str, number: i64) {
        let (low, high) = bounds(ours);
        let bounded = number.clamp(low.into(), high.into());
        let comment = match bounded == number {
            true => found.comment(),
            false => format!("{} {number} there; from {low} to {high} here.", found.comment()),
        };
        self.draft.set(ours, json!(bounded), comment);
    }

    /// Sets keys for a tracker that is behind a reverse proxy.
    pub(crate) fn trust_proxies(&mut self, comment: &str) {
        for proxy in self.proxies() {
            self.draft.push("http.trusted_proxies", &proxy, comment);
        }
        if self.options.proxies.is_empty() {
            self.draft.push("http.trusted_proxies", "::1", TRUST_REMARK);
        }
    }

    /// Returns the addresses of the proxies that are trusted.
    pub(crate) fn proxies(&self) -> Vec<String> {
        match self.options.proxies.as_slice() {
            [] => vec!["127.0.0.0/8".into(), "::1".into()],
            proxies => proxies.to_vec(),
        }
    }

    /// Sets keys for a listener with TLS, or for it to be set up, if the certificate cannot be used here.
    pub(crate) fn set_tls(&mut self, listen: &[String], chain: &str, key: &str, comment: &str) {
        let files = json!([{ "chain": chain, "key": key }]);
        match machine::check_certificate(chain.as_ref(), key.as_ref()) {
            Ok(()) => {
                listen.iter().for_each(|address| self.draft.push("tls.listen", address, comment));
                let certificates = self.draft.find("tls.certificates");
                match certificates {
                    Some(known) if known.value != files => {
                        if let (Value::Array(known), Value::Array(more)) = (&mut known.value, files)
                        {
                            known.extend(more);
                        }
                    }
                    _ => self.draft.set("tls.certificates", files, comment),
                }
            }
            Err(error) => {
                let comment = format!(
                    "{comment} Not in effect: {error}. Remove the # of both lines once tidegate can read them."
                );
                self.draft.suggest("tls.listen", json!(listen), comment.clone());
                self.draft.suggest("tls.certificates", files, comment);
            }
        }
    }

    /// Sets the address of metrics and management, if only this machine can reach it.
    pub(crate) fn set_admin(&mut self, listen: &[String], comment: &str) {
        let is_loopback = listen.iter().all(|address| {
            address.parse().is_ok_and(|it: std::net::SocketAddr| it.ip().is_loopback())
        });
        if is_loopback {
            return self.draft.set("admin.listen", json!(listen), comment);
        }
        let comment = format!(
            "{comment} Not in effect: dashboard and API are at the same address, and others can reach it. Remove the \
             # if a firewall protects it, or let the scraper connect by a tunnel."
        );
        self.draft.suggest("admin.listen", json!(listen), comment);
    }

    /// Sets an access list to a file that is there already.
    pub(crate) fn set_list(
        &mut self,
        found: &Found,
        mode: &'static str,
        file: &str,
    ) -> Result<(), ImportError> {
        let ours = if mode == "deny" { "access.deny" } else { "access.allow" };
        self.draft.set("access.mode", json!(mode), found.comment());
        match machine::check_list(file.as_ref()) {
            Ok(()) => self.draft.set(ours, json!(file), found.comment()),
            // The records have the entries, if the file is among those to import.
            Err(error) if self.options.state.is_some() => {
                let comment = format!("{} Not in effect: {error}.", found.comment());
                self.draft.suggest(ours, json!(file), comment);
            }
            Err(error) => {
                return Err(found.place.error(format_args!(
                    "{}: {error}: copy the list there, or give it as one more FILE together with --state DIR",
                    found.path
                )));
            }
        }
        Ok(())
    }

    /// Sets an access list to a folder of torrent files.
    pub(crate) fn set_torrents(&mut self, found: &Found, folder: &str) -> Result<(), ImportError> {
        machine::check_folder(folder.as_ref()).map_err(|error| {
            found.place.error(format_args!("{}: {error}: copy the folder there", found.path))
        })?;
        self.draft.set("access.mode", json!("allow"), found.comment());
        self.draft.set("access.allow_torrents", json!(folder), found.comment());
        Ok(())
    }

    /// Suggests the user, if it is named. It may not own the state of tidegate.
    pub(crate) fn suggest_user(&mut self, user: &str, found: &Found) {
        if user.is_empty() {
            return;
        }
        let comment = format!(
            "{} Not in effect: systemd starts tidegate with a user of its own. Remove the # if root starts it, and let \
             this user own state.dir.",
            found.comment()
        );
        self.draft.suggest("process.user", json!(user), comment);
    }

    /// Sets a public address of peers beside the tracker. There is one of each family.
    pub(crate) fn set_external(&mut self, path: &str) -> Result<(), ImportError> {
        let Some((text, found)) = self.text(path)? else { return Ok(()) };
        let address: IpAddr = text.parse().map_err(|_| found.expected("an IP address"))?;
        if address.is_unspecified() {
            // Stands for none.
            return Ok(());
        }
        let ours = "tracker.external_address";
        let known = self.draft.find(ours).and_then(|key| key.value.as_array());
        let is_other = known.into_iter().flatten().filter_map(Value::as_str).any(|other| {
            other != text && other.parse().is_ok_and(|it: IpAddr| it.is_ipv4() == address.is_ipv4())
        });
        if is_other {
            let comment = format!(
                "{} That is {address}: one of each family here, and others in a [[listener]].",
                found.comment()
            );
            self.draft.suggest(ours, json!([text]), comment);
        } else {
            self.draft.push(ours, &text, found.comment());
        }
        Ok(())
    }

    /// Names the keys that are left: without counterpart, or unknown.
    pub(crate) fn finish(self) {
        // A key without a value, such as an empty list of YAML, is none.
        for found in self.document.rest().iter().filter(|found| !found.value.is_null()) {
            let name = without_numbers(&found.path);
            let reason = match self.row(&name) {
                Some(row) if row.ours.is_empty() => row.remark.to_owned(),
                Some(row) => format!("not in use there; here {}", row.ours.join(", ")),
                None => format!("no key of {}", self.rival.title()),
            };
            self.draft.without(&found.path, &found.place, reason);
        }
    }
}

const TRUST_REMARK: &str = "Only these may name clients. Add your proxy's address if it is another machine or a container.";

impl Found {
    /// Returns the comment that says where a value comes from.
    pub(crate) fn comment(&self) -> String {
        format!("From {} ({}).", self.path, self.place)
    }

    /// Returns an error: the value is of the wrong type. Values may be secret, so it only names the type.
    pub(crate) fn expected(&self, what: impl fmt::Display) -> ImportError {
        let found = match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "another text",
            Value::Array(_) => "a list",
            Value::Object(_) => "a table",
        };
        self.place.error(format_args!("{}: expected {what}, found {found}", self.path))
    }

    /// Parses an address.
    pub(crate) fn addresses(&self, text: &str, port: u16) -> Result<Vec<String>, ImportError> {
        addresses::parse(text, port)
            .map_err(|error| self.place.error(format_args!("{}: {error}", self.path)))
    }
}

/// Seconds in a day, the maximum of intervals here.
pub(crate) const DAY_S: u32 = 24 * 3600;

/// Returns the lowest and the highest value of a key. The tracker checks those of others.
fn bounds(ours: &str) -> (u32, u32) {
    match ours {
        "tracker.interval_s" | "tracker.interval_min_s" => (1, DAY_S),
        "tracker.websocket_interval_s" => (1, DAY_S / 2),
        "tracker.numwant_max" => (0, 1000),
        "udp.workers" | "http.workers" => (0, 1024),
        "http.connections_max" => (1, 10_000_000),
        "site.flush_s" => (1, 60),
        name if name.ends_with("_factor") => (0, 10_000),
        _ => (0, u32::MAX),
    }
}

/// Removes the numbers of items from a path.
fn without_numbers(path: &str) -> String {
    let mut parts = path.split('[');
    let mut name = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| name.push_str(part.split_once(']').map_or("", |(_, rest)| rest)));
    name
}
