//! Both sides of rings in plain memory, against a queue.

use super::*;
use crate::test_kernel::{LAYOUT, zeros};
use primitives::Random;
use std::collections::VecDeque;

fn memory(len: u32, index: u32) -> Arc<MmapRaw> {
    let mapping = zeros(LAYOUT.entries + len as usize * size_of::<Descriptor>());
    let ring = RingMemory::<u64>::new(Arc::clone(&mapping), &LAYOUT, len);
    ring.producer().store(index, Ordering::Relaxed);
    ring.consumer().store(index, Ordering::Relaxed);
    mapping
}

/// Random operations of both sides. Indices start just before they wrap.
#[test]
fn rings_are_queues() {
    let operations = if cfg!(miri) { 300 } else { 100_000 };
    for len in [1, 2, 8, 64] {
        let mapping = memory(len, u32::MAX - 5);
        let mut producer = Producer::<u64>::new(Arc::clone(&mapping), &LAYOUT, len);
        let mut consumer = Consumer::<u64>::new(mapping, &LAYOUT, len);
        // Entries that are not published, that are, and that were taken but not released.
        let (mut written, mut shown) = (Vec::new(), VecDeque::new());
        let mut taken = 0;
        let mut random = Random::new(len.into());
        for number in 0..operations {
            match random.below(5) {
                0 | 1 => {
                    let is_full = written.len() + shown.len() + taken == len as usize;
                    assert_eq!(producer.push(number), !is_full);
                    written.extend((!is_full).then_some(number));
                }
                2 => {
                    producer.publish();
                    shown.extend(written.drain(..));
                }
                3 => {
                    let ahead = random.below(3);
                    assert_eq!(consumer.peek(ahead), shown.get(ahead as usize).copied());
                    let entry = consumer.pop();
                    assert_eq!(entry, shown.pop_front());
                    taken += usize::from(entry.is_some());
                }
                _ => {
                    consumer.release();
                    taken = 0;
                }
            }
            let pending = written.len() + shown.len() + taken;
            assert_eq!(producer.pending() as usize, pending);
        }
    }
}

#[test]
fn entries_cross_threads() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 1_000_000 };
    let mapping = memory(16, u32::MAX - 7);
    let mut producer = Producer::<Descriptor>::new(Arc::clone(&mapping), &LAYOUT, 16);
    let mut consumer = Consumer::<Descriptor>::new(mapping, &LAYOUT, 16);
    let writer = std::thread::spawn(move || {
        for at in 0..COUNT {
            while !producer.push(Descriptor { at, len: !at as u32, options: 0 }) {
                producer.publish();
                std::thread::yield_now();
            }
        }
        producer.publish();
    });
    for at in 0..COUNT {
        let entry = loop {
            match consumer.pop() {
                Some(entry) => break entry,
                None => {
                    consumer.release();
                    std::thread::yield_now();
                }
            }
        };
        assert_eq!(entry, Descriptor { at, len: !at as u32, options: 0 });
    }
    writer.join().unwrap();
}

#[test]
fn layouts_are_checked() {
    let refuses = |layout: RingLayout, len: u32| {
        let mapping = zeros(4096);
        std::panic::catch_unwind(|| RingMemory::<u64>::new(mapping, &layout, len)).is_err()
    };
    assert!(!refuses(LAYOUT, 8));
    assert!(refuses(LAYOUT, 7) && refuses(LAYOUT, 0) && refuses(LAYOUT, 512));
    assert!(refuses(RingLayout { producer: 4094, ..LAYOUT }, 8));
    assert!(refuses(RingLayout { consumer: 4096, ..LAYOUT }, 8));
    assert!(refuses(RingLayout { flags: 2, ..LAYOUT }, 8));
    assert!(refuses(RingLayout { entries: 188, ..LAYOUT }, 8));
}
