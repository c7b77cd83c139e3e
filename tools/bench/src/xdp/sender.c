// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The generator's XDP program: writes the next frame of a load into the frame that it is given, and sends it to the
// device's peer. Frames that are ahead of the pace are dropped.
//
// `cargo xtask bpf` compiles this file to sender.bin and sender.rs. It includes no headers, so that the result does
// not depend on the machine. The structures are those of maps.rs, and the documentation of their words is there.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")

enum { ABORTED = 0, DROP = 1 };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
};

static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const adjust_tail)(struct xdp_md *context, int delta) = (void *)65;

#define SLOTS 16384
#define FRAME_MAX 160
#define CLASSES 8
// The generator may fall this far behind its pace, and catches up.
#define BEHIND_NS 1000000

struct slot {
	u16 len;
	u8 class;
	u8 unused[5];
	u8 frame[FRAME_MAX];
};

struct control {
	u64 interval_ns;
	u64 burst;
	u64 len;
	u64 device;
};

struct state {
	u64 next_slot;
	u64 next_burst_ns;
	u64 burst_left;
	u64 sent[CLASSES];
};

// Slots by number.
extern u8 slots;
extern volatile struct control control;
extern volatile struct state state;

// Bytes of the headers before a payload, of a connect, and of an announce.
#define HEADERS4 42
#define HEADERS6 62
#define CONNECT 16
#define ANNOUNCE 98

INLINE int is_early(void)
{
	if (control.interval_ns == 0)
		return 0;
	if (state.burst_left == 0) {
		u64 now = ktime_get_ns();
		u64 next = state.next_burst_ns;
		if (now < next)
			return 1;
		if (next < now - BEHIND_NS)
			next = now - BEHIND_NS;
		state.next_burst_ns = next + control.interval_ns;
		state.burst_left = control.burst;
	}
	state.burst_left -= 1;
	return 0;
}

// Copies words, not bytes: `len` is known to the compiler.
INLINE void copy(u8 *to, const u8 *from, const u32 len)
{
	u32 at = 0;
	UNROLL for (; at + 8 <= len; at += 8)
		*(u64 *)(to + at) = *(const u64 *)(from + at);
	if (len & 4) {
		*(u32 *)(to + at) = *(const u32 *)(from + at);
		at += 4;
	}
	if (len & 2)
		*(u16 *)(to + at) = *(const u16 *)(from + at);
}

// Returns whether the slot's frame was written. Frames are written as long as the longest of the load.
INLINE int write(u8 *data, u8 *end, const struct slot *slot, const u32 headers, const u32 payload)
{
	if (data + headers + payload > end)
		return 0;
	copy(data, slot->frame, headers + payload);
	// Counted once it is certain to leave.
	state.sent[slot->class % CLASSES] += 1;
	return 1;
}

__attribute__((section("program"))) int process(struct xdp_md *context)
{
	if (is_early())
		return DROP;
	u64 number = state.next_slot;
	state.next_slot = number + 1;
	u32 key = number % SLOTS;
	const struct slot *slot = map_lookup_elem(&slots, &key);
	if (!slot)
		return ABORTED;
	u8 *data = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;
	u32 len = control.len;
	int is_written = 0;
	if (len == HEADERS4 + ANNOUNCE)
		is_written = write(data, end, slot, HEADERS4, ANNOUNCE);
	else if (len == HEADERS6 + ANNOUNCE)
		is_written = write(data, end, slot, HEADERS6, ANNOUNCE);
	else if (len == HEADERS4 + CONNECT)
		is_written = write(data, end, slot, HEADERS4, CONNECT);
	else if (len == HEADERS6 + CONNECT)
		is_written = write(data, end, slot, HEADERS6, CONNECT);
	if (!is_written)
		return ABORTED;
	int cut = slot->len - (int)len;
	if (cut != 0 && adjust_tail(context, cut) != 0)
		return ABORTED;
	return redirect(control.device, 0);
}
