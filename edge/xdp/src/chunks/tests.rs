//! Chunks go round between the engine and a kernel that takes its time.

use super::*;
use crate::test_kernel::{COUNT, Kernel, Memory};
use primitives::Random;

/// A kernel that does its work by and by.
struct SlowKernel {
    kernel: Kernel,
    /// Chunks that it has taken from the fill ring, and of replies that it is sending.
    own: Vec<u64>,
    sending: Vec<u64>,
}

impl SlowKernel {
    /// Does a random part of what it could do.
    fn run(&mut self, random: &mut Random) {
        for _ in 0..random.below(20) {
            self.own.extend(self.kernel.fill.pop());
        }
        self.kernel.fill.release();
        for _ in 0..random.below(20) {
            let Some(at) = self.own.pop() else { break };
            let len = 60 + random.below(3000);
            assert!(self.kernel.rx.push(Descriptor { at: at + 256, len, options: 0 }));
        }
        self.kernel.rx.publish();
        for _ in 0..random.below(20) {
            self.sending.extend(self.kernel.tx.pop().map(|reply| reply.at));
        }
        self.kernel.tx.release();
        for _ in 0..random.below(20) {
            let Some(at) = self.sending.pop() else { break };
            assert!(self.kernel.completion.push(at));
        }
        self.kernel.completion.publish();
    }

    /// Takes all that is in rings. Returns the chunks, sorted.
    fn drain(mut self, mut rings: Rings, in_hand: Vec<Chunk>) -> Vec<u64> {
        rings.publish();
        in_hand.into_iter().for_each(|chunk| rings.recycle(chunk));
        rings.recycle_sent();
        while let Some((chunk, _)) = rings.receive() {
            rings.recycle(chunk);
        }
        rings.publish();
        let mut all: Vec<u64> = std::iter::from_fn(|| self.kernel.fill.pop()).collect();
        all.extend(std::iter::from_fn(|| self.kernel.tx.pop()).map(|reply| reply.at));
        all.extend(self.own);
        all.extend(self.sending);
        all.iter_mut().for_each(|at| *at &= !(CHUNK_LEN as u64 - 1));
        all.sort_unstable();
        all
    }
}

/// Chunks in rings and in hand are all that there are, whatever happens in which order.
#[test]
fn no_chunk_is_lost_or_doubled() {
    for seed in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut random = Random::new(seed);
        let memory = Memory::new();
        let mut rings = memory.rings();
        let mut kernel =
            SlowKernel { kernel: memory.kernel(), own: Vec::new(), sending: Vec::new() };
        rings.fill_all(COUNT);
        let mut in_hand = Vec::new();
        let mut refused = 0;
        for _ in 0..random.below(200) {
            match random.below(4) {
                0 => kernel.run(&mut random),
                1 => rings.recycle_sent(),
                2 => {
                    while let Some((chunk, frame)) = rings.receive() {
                        assert_eq!(frame.at % CHUNK_LEN as u32, 256);
                        assert!(usize::from(frame.len) + 256 <= HEADERS_AT);
                        in_hand.push(chunk);
                    }
                }
                _ => {
                    for _ in 0..random.below(30) {
                        let Some(chunk) = in_hand.pop() else { break };
                        let frame = chunk.reply_frame(200);
                        if random.below(4) == 0 {
                            rings.recycle(chunk);
                        } else {
                            refused += usize::from(!rings.transmit(chunk, frame, 24));
                        }
                    }
                }
            }
            rings.publish();
        }
        let all = kernel.drain(rings, in_hand);
        let expected: Vec<u64> = (0..COUNT).map(|number| u64::from(number) << 12).collect();
        assert_eq!(all, expected, "seed {seed}, {refused} refused");
    }
}
