//! A batch of datagrams, with room for the replies: a view of an engine's memory.

use super::area::{Area, Span};
#[cfg(target_os = "linux")]
use super::control::ControlMessage;
use super::{BATCH_MAX, REPLY_MAX, REQUEST_MAX};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The distance between request buffers: more than [`REQUEST_MAX`], so that an engine that is not
/// notified of truncation can detect it, and a whole number of cache lines.
const STRIDE: usize = REQUEST_MAX + 64;

/// Up to [`BATCH_MAX`] datagrams for one socket, with room for a reply to each. The engine allocates it
/// once and reuses it for every batch.
pub struct Batch {
    len: usize,
    /// The address that the socket is bound to.
    local: SocketAddr,
    slots: Box<[Slot; BATCH_MAX]>,
    /// The memory of requests and replies.
    area: Area,
    /// Used for sockets that report destinations.
    #[cfg(target_os = "linux")]
    controls: Box<[ControlMessage; BATCH_MAX]>,
}

/// A datagram's metadata, and where it and its reply are in the area.
#[derive(Clone, Copy)]
pub struct Slot {
    /// The source address.
    pub from: SocketAddr,
    /// The destination. `None` if that is known from elsewhere: the socket or a control message.
    pub to: Option<IpAddr>,
    /// The request.
    pub request: Span,
    /// The reply; its length is 0 until there is one.
    pub reply: Span,
    /// Maximum length of the reply.
    pub room: u16,
    /// True if the request was longer than [`REQUEST_MAX`].
    pub truncated: bool,
}

const _: () = assert!(STRIDE <= u16::MAX as usize);
const _: () = assert!(REPLY_MAX <= u16::MAX as usize);

impl Batch {
    /// Returns a batch in memory of its own, for engines that copy datagrams into it. Requests come
    /// first, at a distance of [`STRIDE`] bytes.
    pub(crate) fn new() -> Self {
        let mut batch = Self::over(Area::allocate(BATCH_MAX * (STRIDE + REPLY_MAX)));
        for (at, slot) in batch.slots.iter_mut().enumerate() {
            slot.request.at = (at * STRIDE) as u32;
            slot.reply.at = (BATCH_MAX * STRIDE + at * REPLY_MAX) as u32;
        }
        batch
    }

    /// Returns a batch in `area`, for engines that add datagrams where they are:
    /// [`Batch::push_slot`].
    pub fn over(area: Area) -> Self {
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let empty = Slot {
            from: unspecified,
            to: None,
            request: Span::default(),
            reply: Span::default(),
            room: REPLY_MAX as u16,
            truncated: false,
        };
        Self {
            len: 0,
            local: unspecified,
            slots: Box::new([empty; BATCH_MAX]),
            area,
            #[cfg(target_os = "linux")]
            controls: Box::new([ControlMessage::EMPTY; BATCH_MAX]),
        }
    }

    /// Returns the number of datagrams. They are numbered from 0.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch is empty. Handlers never see an empty batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the source address of datagram `i`.
    #[inline]
    pub fn from(&self, i: usize) -> SocketAddr {
        self.slots[i].from
    }

    /// Returns the address of this host that datagram `i` was sent to. `None` if the socket is bound to
    /// a wildcard address and the engine is [`Portable`](crate::Engine::Portable).
    #[inline]
    pub fn to(&self, i: usize) -> Option<IpAddr> {
        let slot = &self.slots[i];
        slot.to
            .or_else(|| Some(self.local.ip()).filter(|ip| !ip.is_unspecified()))
            .or_else(|| self.destination_info(i))
    }

    /// Returns whether datagram `i` was longer than [`REQUEST_MAX`] and has been truncated.
    #[inline]
    pub fn is_truncated(&self, i: usize) -> bool {
        self.slots[i].truncated
    }

    /// Returns the maximum length of the reply to datagram `i`, at most [`REPLY_MAX`].
    #[inline]
    pub fn room(&self, i: usize) -> usize {
        self.slots[i].room.into()
    }

    /// Returns the buffer of [`Batch::room`] bytes for the reply to datagram `i`. It contains bytes of
    /// earlier replies. Set the reply's length with [`Batch::set_reply`].
    #[inline]
    pub fn reply_buffer(&mut self, i: usize) -> &mut [u8] {
        self.area.get_mut(self.slots[i].buffer())
    }

    /// Returns the bytes of datagram `i` and its [`Batch::reply_buffer`].
    #[inline]
    pub fn exchange(&mut self, i: usize) -> (&[u8], &mut [u8]) {
        let slot = &self.slots[i];
        self.area.get_pair(slot.request, slot.buffer())
    }

    /// Sets the reply to datagram `i` to the first `len` bytes of its buffer. No reply is sent if `len`
    /// is 0 or if this is not called.
    ///
    /// # Panics
    ///
    /// Panics if `len` is more than [`Batch::room`].
    #[inline]
    pub fn set_reply(&mut self, i: usize, len: usize) {
        let slot = &mut self.slots[i];
        assert!(len <= usize::from(slot.room));
        slot.reply.len = len as u16;
    }

    /// Returns the length of the reply to datagram `i`, 0 if there is none.
    #[inline]
    pub fn reply_len(&self, i: usize) -> usize {
        self.slots[i].reply.len.into()
    }

    /// Empties the batch for datagrams of a socket bound to `local`.
    #[inline]
    pub fn clear(&mut self, local: SocketAddr) {
        self.len = 0;
        self.local = local;
    }

    /// Returns the buffer of every request, which is longer than [`REQUEST_MAX`], and of its control
    /// message.
    #[cfg(target_os = "linux")]
    pub(super) fn request_buffers(
        &mut self,
    ) -> impl Iterator<Item = (&mut [u8], &mut ControlMessage)> {
        let (requests, _) = self.area.all_mut().split_at_mut(BATCH_MAX * STRIDE);
        requests.chunks_exact_mut(STRIDE).zip(self.controls.iter_mut())
    }

    #[cfg(target_os = "linux")]
    pub(super) fn control(&mut self, i: usize) -> &mut ControlMessage {
        &mut self.controls[i]
    }

    /// Returns the buffer for the next datagram, or `None` if the batch is full.
    pub(crate) fn next_request_buffer(&mut self) -> Option<&mut [u8]> {
        let at = self.slots.get(self.len)?.request.at;
        Some(self.area.get_mut(Span { at, len: STRIDE as u16 }))
    }

    /// Adds the datagram in the next request buffer. It counts as truncated if `len` is more than
    /// [`REQUEST_MAX`] or if `truncated` is set.
    #[inline]
    pub(crate) fn push(&mut self, from: SocketAddr, len: usize, truncated: bool) {
        let slot = &mut self.slots[self.len];
        slot.from = from;
        slot.request.len = len.min(REQUEST_MAX) as u16;
        slot.reply.len = 0;
        slot.truncated = truncated || len > REQUEST_MAX;
        self.len += 1;
    }

    /// Adds a datagram that is in the area already.
    ///
    /// # Panics
    ///
    /// Panics if the batch is full.
    #[inline]
    pub fn push_slot(&mut self, slot: Slot) {
        self.slots[self.len] = slot;
        self.len += 1;
    }

    /// Returns the memory of requests and replies.
    pub fn area(&mut self) -> &mut Area {
        &mut self.area
    }

    /// Returns the destination of datagram `i` that the kernel reported.
    #[cfg(target_os = "linux")]
    fn destination_info(&self, i: usize) -> Option<IpAddr> {
        Some(self.controls[i].destination(self.local.is_ipv4())).filter(|ip| !ip.is_unspecified())
    }

    #[cfg(not(target_os = "linux"))]
    fn destination_info(&self, _: usize) -> Option<IpAddr> {
        None
    }

    /// Returns the reply to datagram `i`, empty if there is none.
    #[inline]
    pub(crate) fn reply(&self, i: usize) -> &[u8] {
        self.area.get(self.slots[i].reply)
    }
}

impl Slot {
    /// Returns where the reply may be written.
    #[inline]
    fn buffer(&self) -> Span {
        Span { at: self.reply.at, len: self.room }
    }
}
