//! Runs of an array without one entry.

/// Pushes `count` of `entries` without the one at `skip`: from `start` to the end, then from the
/// beginning.
#[inline]
pub(super) fn sample_dense<E>(
    entries: &[E],
    count: usize,
    start: usize,
    skip: Option<usize>,
    mut push: impl FnMut(&[E]),
) {
    let mut left = count;
    let head_skip = skip.filter(|skip| *skip < start);
    let runs = [runs(entries, start, skip), runs(&entries[..start], 0, head_skip)];
    for part in runs.as_flattened() {
        let part = &part[..part.len().min(left)];
        if !part.is_empty() {
            push(part);
            left -= part.len();
        }
    }
    debug_assert!(left == 0);
}

/// Returns the runs of a page from `from` to its end without the entry at `skip`.
pub(super) fn runs<E>(entries: &[E], from: usize, skip: Option<usize>) -> [&[E]; 2] {
    match skip {
        Some(skip) if skip >= from => [&entries[from..skip], &entries[skip + 1..]],
        _ => [&entries[from..], &[]],
    }
}
