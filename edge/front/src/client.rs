//! Who the client is: the other end, unless that is a trusted proxy, which says for whom it speaks.
//!
//! What is nearer to the wire comes first. Of a connection that is the PROXY header, then, if the
//! address that it names is a trusted proxy as well, what stands in the HTTP request. Of a datagram
//! it is the Simple Proxy header.

use std::net::IpAddr;

use tracker::Networks;
use types::Scope;
use wire::http::{ForwardedHeader, RequestHead};
use wire::proxy::{self, ParsedProxyHeader};
use wire::url::query_key;

/// The other end of a TCP connection, as far as its first bytes have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The nearest address that is known.
    ip: IpAddr,
    /// Whether the caller has reached an address that is not public.
    pub(crate) via_local_address: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A PROXY header must come before anything else.
    Announced,
    /// If it is a trusted proxy, the request says for whom it speaks.
    Known,
    /// A proxy that has said it speaks for nobody it can name, so that whatever a request says comes
    /// from that nobody.
    Alone,
}

/// What was heard at the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// All there is to hear about the caller: what it says itself begins so many bytes further on.
    All(usize),
    /// A part of a PROXY header: more must come.
    Part,
    /// No PROXY header, though there must be one. The connection is to be closed.
    Nonsense,
}

impl Caller {
    /// Somebody who has connected from `peer`, to a listener on which `proxies` begin with a PROXY
    /// header, if such are due at all. `local` gives the address that was reached; it is only asked
    /// for peers that are not public.
    pub(crate) fn new(
        peer: IpAddr,
        local: impl FnOnce() -> Option<IpAddr>,
        proxies: Option<&Networks>,
    ) -> Self {
        let ip = peer.to_canonical();
        //= proxy#trusted-only
        let is_announced = proxies.is_some_and(|proxies| proxies.contains(ip));
        let state = if is_announced { State::Announced } else { State::Known };
        Self { ip, via_local_address: is_via_local_address(ip, local), state }
    }

    /// Whether a PROXY header must come first, and has not yet.
    #[inline]
    pub(crate) fn is_announced(&self) -> bool {
        self.state == State::Announced
    }

    /// Takes in `input`, all that has come so far of the connection's first bytes, before TLS and
    /// HTTP see it. Once everything is known this is always [`Heard::All`] of 0.
    #[inline]
    pub(crate) fn hear(&mut self, input: &[u8]) -> Heard {
        if self.is_announced() { self.hear_header(input) } else { Heard::All(0) }
    }

    //= proxy#no-guessing
    fn hear_header(&mut self, input: &[u8]) -> Heard {
        let header = match proxy::read(input) {
            ParsedProxyHeader::Complete(header) => header,
            ParsedProxyHeader::Partial { .. } => return Heard::Part,
            ParsedProxyHeader::Invalid(_) => return Heard::Nonsense,
        };
        self.state = State::Alone;
        if let Some(route) = header.route {
            self.ip = route.client.ip();
            self.via_local_address = Scope::of(route.server.ip()) != Scope::Public;
            self.state = State::Known;
        }
        Heard::All(header.len)
    }

    /// The nearest address that is known.
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The address of the client that sent `request`: the caller's, unless that is a trusted proxy.
    /// Then the right-most hop that is none: everything to the left of it may have been made up by
    /// the client. A hop without an address ends the search at the one that wrote it.
    //= rfc7239#trust
    pub(crate) fn client(
        &self,
        request: &RequestHead<'_>,
        proxies: &Networks,
        header: ForwardedHeader,
    ) -> IpAddr {
        let mut known = self.ip;
        if self.state != State::Known || !proxies.contains(known) {
            return known;
        }
        for hop in request.forwarded_addresses(header) {
            let Some(ip) = hop else { return known };
            known = ip;
            if !proxies.contains(known) {
                return known;
            }
        }
        known
    }
}

/// Returns the key in a request's URL: the one of its path, `in_path`, or on a private listener the one
/// of its query. On other listeners `key` in a query has another meaning.
#[inline]
pub(crate) fn user_key<'a>(
    is_private: bool,
    in_path: Option<&'a [u8]>,
    query: &'a [u8],
) -> Option<&'a [u8]> {
    match in_path {
        None if is_private => query_key(query),
        key => key,
    }
}

/// Whether a client that is not public has reached an address that is not public either. `local` is
/// asked for that address, unless the answer is clear without; of public clients it is always false.
#[inline]
pub(crate) fn is_via_local_address(ip: IpAddr, local: impl FnOnce() -> Option<IpAddr>) -> bool {
    if Scope::of(ip) == Scope::Public {
        return false;
    }
    // Nobody comes from this host's loopback addresses but this host.
    ip.is_loopback() || local().is_some_and(|local| Scope::of(local) != Scope::Public)
}

#[cfg(test)]
mod tests;
