//! Why packets are dropped and connections closed.

use types::labelled;

labelled! {
    /// Why a packet was dropped without a reply, or a connection closed.
    pub enum DropReason {
        /// UDP: shorter than any request.
        TooShort = "too_short",
        /// UDP: longer than any request.
        TooLong = "too_long",
        /// UDP: a connect without the protocol id of BEP 15.
        WrongMagic = "wrong_magic",
        /// UDP: a connection id that was not issued to the source address, or has expired.
        BadConnectionId = "bad_connection_id",
        /// UDP: BEP 41 options that run past the packet. The announce is served all the same.
        MalformedOptions = "malformed_options",
        /// The reply could not be sent.
        SendFailed = "send_failed",
        /// The reply was dropped because the socket's send buffer was full.
        SendBufferFull = "send_buffer_full",
        /// A PROXY or Simple Proxy header from an address that is not a trusted proxy.
        UntrustedProxy = "untrusted_proxy",
        /// A trusted proxy sent no such header, or a malformed one.
        BadProxyHeader = "bad_proxy_header",
        /// HTTP: the request line or the headers are over the limit.
        HeadTooLarge = "head_too_large",
        /// HTTP: not a request, or one that this server does not accept.
        BadHttp = "bad_http",
        /// HTTP: the client was silent, or slower than allowed.
        TimedOut = "timed_out",
        /// TCP: a connection over the limit.
        ConnectionLimit = "connection_limit",
        /// TCP: a connection over the limit of its client's prefix.
        PrefixConnectionLimit = "prefix_connection_limit",
        /// TCP: a connection over the limit of its client's network, an IPv4 /24 or an IPv6 /48.
        NetworkConnectionLimit = "network_connection_limit",
        /// TCP: a connection over the rate of its client's prefix.
        ConnectionRate = "connection_rate",
        /// TLS: a handshake over the rate of its client's prefix.
        HandshakeRate = "handshake_rate",
        /// TLS: a handshake over the limit of those in progress of its client's prefix.
        HandshakeLimit = "handshake_limit",
        /// TCP: the connection made room for that of another network, while its own network held the most.
        Displaced = "displaced",
        /// UDP: a connect over the rate of its prefix.
        ConnectRate = "connect_rate",
        /// UDP: an announce or scrape over the rate of its prefix. HTTP: a connection that was closed over
        /// another request, or one that is refused, over that rate.
        RequestRate = "request_rate",
        /// UDP: an announce with a token that was not verified, because too many others were or there are no
        /// keys.
        TokenUnverified = "token_unverified",
        /// UDP: a request of a banned network. TCP: a connection of one, new or a WebSocket that was open.
        Banned = "banned",
        /// TCP: the connection broke.
        Reset = "reset",
        /// TLS: the client broke the protocol, has no version or cipher in common, left in the
        /// handshake because it does not trust the certificate, or speaks something else.
        BadTls = "bad_tls",
        /// WebSocket: an upgrade request that violates RFC 6455.
        BadUpgrade = "bad_upgrade",
        /// WebSocket: a page of a site that may not use the tracker.
        ForbiddenOrigin = "forbidden_origin",
        /// WebSocket: the client violated RFC 6455.
        BadFrame = "bad_frame",
        /// WebSocket: a message over the limit.
        MessageTooLarge = "message_too_large",
        /// WebSocket: a message did not end in time.
        SlowMessage = "slow_message",
        /// TCP: the connection held the most of the worker's memory for unfinished requests and
        /// messages, and that was used up.
        ReadMemory = "read_memory",
        /// TCP: the connection held the most of the worker's memory for unsent output, and that was
        /// used up.
        UnsentMemory = "unsent_memory",
        /// WebSocket: the connection had announced the most torrents, and the worker's memory for
        /// torrents of connections was used up.
        TorrentMemory = "torrent_memory",
        /// WebSocket: the client did not read what was sent to it.
        SlowReader = "slow_reader",
        /// WebTorrent: an answer to an offer that is not outstanding.
        UnmatchedAnswer = "unmatched_answer",
        /// WebTorrent: an offer or answer for a client that has not read earlier ones.
        RelayUnread = "relay_unread",
        /// WebTorrent: an offer over the rate of its sender's prefix. The announce is answered all the same.
        OfferRate = "offer_rate",
        /// WebTorrent: an offer over the budget of its sender's connection. The announce is answered all the same.
        OfferBudget = "offer_budget",
        /// WebSocket: closed because the client's key or token was revoked, was changed or has expired.
        AccessEnded = "access_ended",
        /// WebTorrent: a message to a client of another worker whose mailbox was full, or of another node
        /// of the cluster while too many waited to be published.
        MailboxFull = "mailbox_full",
    }
}
