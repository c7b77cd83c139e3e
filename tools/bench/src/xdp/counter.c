// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The XDP program of the generator's end: it counts and drops replies to the generator's frames, and passes all else.
//
// `cargo xtask bpf` compiles this file to counter.bin and counter.rs. It includes no headers, so that the result does
// not depend on the machine. maps.rs has the same constants, and the documentation of the counters.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline __attribute__((always_inline))
#define BE16(value) __builtin_bswap16(value)
#define BE32(value) __builtin_bswap32(value)
#define LOAD16(at) (*(u16 *)(at))
#define LOAD32(at) (*(u32 *)(at))

enum { DROP = 1, PASS = 2 };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
};

static u32 (*const get_smp_processor_id)(void) = (void *)8;

// The tracker's port, and the first port of ordinary sockets.
#define PORT 6969
#define SOCKET_PORTS 16384
#define PROCESSORS 8
#define CLASSES 8
#define CLASS_SHIFT 11

enum { CONNECT, ANNOUNCE, ERROR, OTHER, BYTES, COUNTS = 8 };

extern u64 counts[PROCESSORS][CLASSES][COUNTS];

#define IPV4 14
#define UDP4 34
#define UDP6 54
#define UDP_LEN 8
// An action and a transaction id.
#define HEAD 8
#define IS_UDP 17

// Returns the kind of a reply, whose length includes the UDP header.
INLINE u32 kind(u32 action_be, u32 len)
{
	if (action_be == BE32(0) && len == UDP_LEN + 16)
		return CONNECT;
	if (action_be == BE32(1) && len >= UDP_LEN + 20)
		return ANNOUNCE;
	return action_be == BE32(3) ? ERROR : OTHER;
}

__attribute__((section("program"))) int process(struct xdp_md *context)
{
	u8 *data = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;
	if (data + UDP4 + UDP_LEN + HEAD > end)
		return PASS;
	u8 *udp = data + UDP4;
	u16 type_be = LOAD16(data + 12);
	if (type_be == BE16(0x0800)) {
		// No options.
		if (data[IPV4] != 0x45 || data[IPV4 + 9] != IS_UDP)
			return PASS;
	} else {
		udp = data + UDP6;
		if (type_be != BE16(0x86dd) || udp + UDP_LEN + HEAD > end || data[IPV4 + 6] != IS_UDP)
			return PASS;
	}
	u32 to = BE16(LOAD16(udp + 2));
	if (LOAD16(udp) != BE16(PORT) || to >= SOCKET_PORTS)
		return PASS;
	u32 class = to >> CLASS_SHIFT;
	u32 len = BE16(LOAD16(udp + 4));
	// No two processors write the same word.
	u64 *counted = counts[get_smp_processor_id() % PROCESSORS][class % CLASSES];
	counted[BYTES] += len;
	counted[kind(LOAD32(udp + UDP_LEN), len)] += 1;
	return DROP;
}
