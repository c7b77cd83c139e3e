//! The two roles by which peers are stored and counted.

use std::ops::{Index, IndexMut};

use bytemuck::{Pod, Zeroable};
use replication::PeerMeta;
use types::Role;

/// The peers that a set holds. Partial seeds (BEP 21) lack a part of the torrent, so they are leechers here; their
/// metadata marks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum SetRole {
    #[default]
    Seeders,
    Leechers,
}

impl SetRole {
    pub(crate) const BOTH: [Self; 2] = [Self::Seeders, Self::Leechers];

    #[inline]
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Seeders => Self::Leechers,
            Self::Leechers => Self::Seeders,
        }
    }

    /// Returns the role of a peer of this set.
    #[inline]
    pub(crate) fn of_peer(self, meta: PeerMeta) -> Role {
        match self {
            Self::Seeders => Role::Seeder,
            Self::Leechers if meta.is_partial() => Role::PartialSeed,
            Self::Leechers => Role::Leecher,
        }
    }
}

impl From<Role> for SetRole {
    #[inline]
    fn from(role: Role) -> Self {
        match role {
            Role::Seeder => Self::Seeders,
            Role::Leecher | Role::PartialSeed => Self::Leechers,
        }
    }
}

/// A value for each role: of seeders, then of leechers.
// An array, because only transparent generic structs can be viewed as bytes without unsafe code.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct ByRole<T>([T; 2]);

impl<T> ByRole<T> {
    #[inline]
    pub(crate) fn new(seeders: T, leechers: T) -> Self {
        Self([seeders, leechers])
    }

    /// Returns the value of seeders, then that of leechers.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T> Index<SetRole> for ByRole<T> {
    type Output = T;

    #[inline]
    fn index(&self, role: SetRole) -> &T {
        &self.0[role as usize]
    }
}

impl<T> IndexMut<SetRole> for ByRole<T> {
    #[inline]
    fn index_mut(&mut self, role: SetRole) -> &mut T {
        &mut self.0[role as usize]
    }
}
