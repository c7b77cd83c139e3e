//! Datagrams on their way through a handler, with room for the replies.

#[cfg(target_os = "linux")]
use super::control::ControlMessage;
use super::{BATCH_MAX, REPLY_MAX, REQUEST_MAX};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes from one request's place to the next: one more than a request may have, so that an engine
/// that is not told about truncation can see it, rounded up to whole cache lines.
const STRIDE: usize = REQUEST_MAX + 64;

/// Up to [`BATCH_MAX`] datagrams of one socket and a place for a reply to each. Allocated once by
/// the engine and used again for every batch.
pub struct Batch {
    len: usize,
    /// Where the socket is bound.
    local: SocketAddr,
    slots: Box<[Slot; BATCH_MAX]>,
    requests: Box<[u8]>,
    replies: Box<[u8]>,
    /// For sockets that are told destinations.
    #[cfg(target_os = "linux")]
    controls: Box<[ControlMessage; BATCH_MAX]>,
}

/// All about a datagram but its bytes.
#[derive(Clone, Copy)]
struct Slot {
    from: SocketAddr,
    request: u16,
    reply: u16,
    truncated: bool,
}

const _: () = assert!(STRIDE <= u16::MAX as usize);
const _: () = assert!(REPLY_MAX <= u16::MAX as usize);

impl Batch {
    pub(crate) fn new() -> Self {
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let empty = Slot { from: unspecified, request: 0, reply: 0, truncated: false };
        Self {
            len: 0,
            local: unspecified,
            slots: Box::new([empty; BATCH_MAX]),
            requests: vec![0; BATCH_MAX * STRIDE].into_boxed_slice(),
            replies: vec![0; BATCH_MAX * REPLY_MAX].into_boxed_slice(),
            #[cfg(target_os = "linux")]
            controls: Box::new([ControlMessage::EMPTY; BATCH_MAX]),
        }
    }

    /// How many datagrams there are; they are numbered from 0.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none. Engines never hand over an empty batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Who sent datagram `i`.
    #[inline]
    pub fn from(&self, i: usize) -> SocketAddr {
        self.slots[i].from
    }

    /// The address of this host that datagram `i` was sent to. Not known (`None`) where the socket is
    /// bound to a wildcard address and the engine is [`Portable`](crate::Engine::Portable).
    #[inline]
    pub fn to(&self, i: usize) -> Option<IpAddr> {
        Some(self.local.ip()).filter(|ip| !ip.is_unspecified()).or_else(|| self.destination_info(i))
    }

    /// The bytes of datagram `i`, at most [`REQUEST_MAX`].
    #[inline]
    pub fn bytes(&self, i: usize) -> &[u8] {
        &self.requests[i * STRIDE..][..usize::from(self.slots[i].request)]
    }

    /// Whether datagram `i` was longer than [`REQUEST_MAX`], and lost its end.
    #[inline]
    pub fn is_truncated(&self, i: usize) -> bool {
        self.slots[i].truncated
    }

    /// Where a reply of up to [`REPLY_MAX`] bytes to datagram `i` goes; say its length with
    /// [`Batch::set_reply`]. Holds whatever an earlier reply left there.
    #[inline]
    pub fn reply_buffer(&mut self, i: usize) -> &mut [u8] {
        &mut self.replies[i * REPLY_MAX..][..REPLY_MAX]
    }

    /// The bytes of datagram `i` together with its [`Batch::reply_buffer`].
    #[inline]
    pub fn exchange(&mut self, i: usize) -> (&[u8], &mut [u8]) {
        (
            &self.requests[i * STRIDE..][..usize::from(self.slots[i].request)],
            &mut self.replies[i * REPLY_MAX..][..REPLY_MAX],
        )
    }

    /// The reply to datagram `i` is the first `len` bytes of its buffer; 0 sends nothing, as does
    /// not calling this.
    ///
    /// # Panics
    ///
    /// When `len` is more than [`REPLY_MAX`].
    #[inline]
    pub fn set_reply(&mut self, i: usize, len: usize) {
        assert!(len <= REPLY_MAX);
        self.slots[i].reply = len as u16;
    }

    /// Bytes of the reply to datagram `i`; 0 when there is none.
    #[inline]
    pub fn reply_len(&self, i: usize) -> usize {
        self.slots[i].reply.into()
    }

    /// Forgets everything; what comes next comes to a socket bound to `local`.
    #[inline]
    pub(crate) fn clear(&mut self, local: SocketAddr) {
        self.len = 0;
        self.local = local;
    }

    /// Every place for a request, in order, of [`REQUEST_MAX`] bytes and then some, and the one for
    /// its control message.
    #[cfg(target_os = "linux")]
    pub(super) fn request_slots(
        &mut self,
    ) -> impl Iterator<Item = (&mut [u8], &mut ControlMessage)> {
        self.requests.chunks_exact_mut(STRIDE).zip(self.controls.iter_mut())
    }

    /// The control message of datagram `i`.
    #[cfg(target_os = "linux")]
    pub(super) fn control(&mut self, i: usize) -> &mut ControlMessage {
        &mut self.controls[i]
    }

    /// The place of the next datagram, or `None` when the batch is full.
    pub(crate) fn next_request_slot(&mut self) -> Option<&mut [u8]> {
        (self.len < BATCH_MAX).then(|| &mut self.requests[self.len * STRIDE..][..STRIDE])
    }

    /// Takes in the datagram whose `len` bytes lie at the next place. Longer than [`REQUEST_MAX`]
    /// or `truncated` means that it has lost its end.
    #[inline]
    pub(crate) fn push(&mut self, from: SocketAddr, len: usize, truncated: bool) {
        self.slots[self.len] = Slot {
            from,
            request: len.min(REQUEST_MAX) as u16,
            reply: 0,
            truncated: truncated || len > REQUEST_MAX,
        };
        self.len += 1;
    }

    /// What the kernel has told of where datagram `i` was sent to.
    #[cfg(target_os = "linux")]
    fn destination_info(&self, i: usize) -> Option<IpAddr> {
        Some(self.controls[i].destination(self.local.is_ipv4())).filter(|ip| !ip.is_unspecified())
    }

    #[cfg(not(target_os = "linux"))]
    fn destination_info(&self, _: usize) -> Option<IpAddr> {
        None
    }

    /// The reply to datagram `i`; empty when there is none.
    #[inline]
    pub(crate) fn reply(&self, i: usize) -> &[u8] {
        &self.replies[i * REPLY_MAX..][..usize::from(self.slots[i].reply)]
    }
}
