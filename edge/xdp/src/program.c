// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The XDP program: sees every frame of an interface before the kernel does. It answers connects, drops
// datagrams of banned and blocked networks and those with a bad connection id, and directs the rest of
// the listeners' datagrams to AF_XDP sockets, if there are any. Everything else is passed to the kernel
// as it came: frames that are not for a listener, and all forms of packets that are rare (IP options,
// extension headers, fragments). In doubt it passes: the kernel and the UDP sockets judge then.
//
// `cargo xtask bpf` compiles this file to program.bin and program.rs. It includes no headers, so that the
// result does not depend on the machine. The structures are those of maps.rs. Numbers of the protocol
// come from there, too; the program itself knows only where in a request and a reply they are.
//
//   request: 0 u64 connection id (connect: a constant) | 8 u32 action | 12 u32 transaction id | 16 ...
//   reply:   0 u32 action | 4 u32 transaction id | 8 u64 connection id
//
// Names that end in `_be` hold bytes in network order, loaded as a little-endian number.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
// Loops have constant bounds, which the verifier follows. Unrolled, they would only be longer.
#define LOOP _Pragma("clang loop unroll(disable)")

#define BE16(value) __builtin_bswap16(value)
#define BE32(value) __builtin_bswap32(value)
#define BE64(value) __builtin_bswap64(value)

// ---- The kernel's interface

enum { DROP = 1, PASS = 2, TX = 3, REDIRECT = 4 };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
};

static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

// ---- Maps: maps.rs has the same structures, and the documentation of their words

#define ID_ENTRIES 4
#define ENDPOINTS4 64
#define ENDPOINTS6 32
#define PASSED4 32
#define PASSED6 16
#define BLOCKED 32
#define ON_LINK 8
#define QUEUES 64
#define LISTENERS 16
#define RESULTS 16
#define WAYS 8
#define BUCKET_SETS (65536 / WAYS)

struct id_entry {
	u64 slice;
	u64 key0;
	u64 key1;
};

struct network4 {
	u32 address_be;
	u32 mask_be;
};

struct network6 {
	u64 address_be[2];
	u64 mask_be[2];
};

struct endpoint6 {
	u64 address_be[2];
	u64 endpoint; // as for IPv4, without the address
};

struct config {
	u64 steering;
	u64 steered_len_max;
	u64 connect_magic_be;
	u64 connect_action_be;
	u64 reply_action_be;
	u64 head_len;
	u64 bans;
	u64 current;
	struct id_entry ids[ID_ENTRIES];
	u64 rate_cost;
	u64 rate_tolerance;
	u64 rate_secret[3];
	u64 rate_mask6_be[2];
	u64 endpoints4_len;
	u64 endpoints6_len;
	u64 passed4_len;
	u64 passed6_len;
	u64 blocked4_len;
	u64 blocked6_len;
	u64 endpoints4[ENDPOINTS4]; // u32 address_be, u16 port_be, u8 listener, u8 flags: high to low
	struct endpoint6 endpoints6[ENDPOINTS6];
	struct network4 passed4[PASSED4];
	struct network6 passed6[PASSED6];
	struct network4 blocked4[BLOCKED];
	struct network6 blocked6[BLOCKED];
};

struct interface {
	u64 next_hop4; // kind << 48 | MAC
	u64 next_hop6;
	u64 on_link4_len;
	u64 on_link6_len;
	struct network4 on_link4[ON_LINK];
	struct network6 on_link6[ON_LINK];
	u64 vlans[64]; // a bit for each id
};

extern volatile struct config config;
extern volatile struct interface interface;
extern u64 counts[QUEUES][LISTENERS][RESULTS];
extern volatile u64 buckets[BUCKET_SETS][WAYS];
// Two values of 2^24 bits, one for each IPv4 /24.
extern u8 bans4;
// AF_XDP sockets by queue.
extern u8 xsks;

enum result {
	CONNECTS,
	STEERED,
	PASSED,
	BANNED,
	BLOCKED_SOURCE,
	OVER_RATE,
	BAD_ID,
	WRONG_MAGIC,
	TOO_SHORT,
	DROPPED_BYTES,
};

enum { ANSWERS = 1, VERIFIES = 2, FILTERS = 4 };

enum { SWAP = 0, ALWAYS = 1, OFF_LINK = 2, UNKNOWN = 3 };

// ---- A datagram for a listener

struct address6 {
	u64 high_be;
	u64 low_be;
};

struct datagram {
	u8 *ethernet;
	u8 *ip;
	u8 *udp;
	u8 *end; // of the frame
	u32 len; // of the payload
	u32 listener;
	u32 flags;
	u32 queue;
	u32 source4_be;
	struct address6 source6;
};

#define IPV4_LEN 20
#define IPV6_LEN 40
#define UDP_LEN 8
#define HEAD_LEN 16

#define LOAD16(at) (*(u16 *)(at))
#define LOAD32(at) (*(u32 *)(at))
#define LOAD64(at) (*(u64 *)(at))

INLINE void count(const struct datagram *datagram, enum result result)
{
	// One CPU serves a queue at a time, so a plain addition is enough.
	counts[datagram->queue % QUEUES][datagram->listener % LISTENERS][result] += 1;
}

INLINE int drop(const struct datagram *datagram, enum result result)
{
	u64 *results = counts[datagram->queue % QUEUES][datagram->listener % LISTENERS];
	results[result] += 1;
	results[DROPPED_BYTES] += datagram->len;
	return DROP;
}

// Passes a datagram to the listener's UDP socket.
INLINE int pass(const struct datagram *datagram)
{
	count(datagram, PASSED);
	return PASS;
}

// Directs a datagram to the AF_XDP socket of its queue. Passes it if there is none.
INLINE int steer(const struct datagram *datagram)
{
	if (!config.steering || datagram->len > config.steered_len_max)
		return pass(datagram);
	long action = redirect_map(&xsks, datagram->queue, PASS);
	count(datagram, action == REDIRECT ? STEERED : PASSED);
	return action;
}

// ---- Networks

INLINE int is_in4(volatile const struct network4 *networks, u64 len, const u32 max, u32 address_be)
{
	LOOP for (u32 i = 0; i < max; i++) {
		if (i >= len)
			break;
		if (!((address_be ^ networks[i].address_be) & networks[i].mask_be))
			return 1;
	}
	return 0;
}

INLINE int is_in6(volatile const struct network6 *networks, u64 len, const u32 max,
		  struct address6 address)
{
	LOOP for (u32 i = 0; i < max; i++) {
		if (i >= len)
			break;
		u64 high = (address.high_be ^ networks[i].address_be[0]) & networks[i].mask_be[0];
		u64 low = (address.low_be ^ networks[i].address_be[1]) & networks[i].mask_be[1];
		if (!(high | low))
			return 1;
	}
	return 0;
}

// Returns whether the whole /24 of a source is banned.
INLINE int is_banned(u32 address_be)
{
	// 0: nothing is banned. Otherwise the number of the half that is in force.
	u32 half = config.bans;
	if (!half)
		return 0;
	half -= 1;
	u64 *bits = map_lookup_elem(&bans4, &half);
	if (!bits)
		return 0;
	u32 network = BE32(address_be) >> 8;
	return bits[network / 64] >> (network % 64) & 1;
}

// ---- Connection ids: SipHash-2-4 over the slice (little-endian, 4 bytes) and the address

struct siphash {
	u64 v0, v1, v2, v3;
};

#define ROTATE(value, bits) ((value) << (bits) | (value) >> (64 - (bits)))

INLINE void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = ROTATE(s->v1, 13) ^ s->v0;
	s->v3 = ROTATE(s->v3, 16) ^ s->v2;
	s->v0 = ROTATE(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = ROTATE(s->v1, 17) ^ s->v2;
	s->v3 = ROTATE(s->v3, 21) ^ s->v0;
	s->v2 = ROTATE(s->v2, 32);
}

INLINE void siphash_absorb(struct siphash *s, u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	siphash_round(s);
	s->v0 ^= word;
}

INLINE u64 connection_id(u64 slice, u64 key0, u64 key1, const struct datagram *datagram,
			 const int is_v6)
{
	struct siphash s = {
		.v0 = key0 ^ 0x736f6d6570736575ull,
		.v1 = key1 ^ 0x646f72616e646f6dull,
		.v2 = key0 ^ 0x6c7967656e657261ull,
		.v3 = key1 ^ 0x7465646279746573ull,
	};
	if (is_v6) {
		struct address6 source = datagram->source6;
		siphash_absorb(&s, slice | source.high_be << 32);
		siphash_absorb(&s, source.high_be >> 32 | source.low_be << 32);
		siphash_absorb(&s, source.low_be >> 32 | 20ull << 56);
	} else {
		siphash_absorb(&s, slice | (u64)datagram->source4_be << 32);
		siphash_absorb(&s, 8ull << 56);
	}
	s.v2 ^= 0xff;
	siphash_round(&s);
	siphash_round(&s);
	siphash_round(&s);
	siphash_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

// Returns whether the id is that of the current slice, the one before, or the one after it, as far as
// their entries are in use.
INLINE int is_valid_id(u64 id, u64 current, const struct datagram *datagram, const int is_v6)
{
	// The entries in this order, counted from the current one modulo 4. Most ids are of the first.
	u32 order = 0x130;
	LOOP for (u32 i = 0; i < 3; i++) {
		order >>= i ? 4 : 0;
		volatile struct id_entry *entry = &config.ids[(current + order) % ID_ENTRIES];
		u64 slice = entry->slice;
		if (slice && id == connection_id(slice, entry->key0, entry->key1, datagram, is_v6))
			return 1;
	}
	return 0;
}

// ---- Rates of connects: see `Buckets` in maps.rs

#define TIME_BITS 44
#define TIME_MASK ((1ull << TIME_BITS) - 1)

// The upper half of 64:ff9b::/96, where IPv4 clients behind a translator are (RFC 6052).
#define TRANSLATED_BE BE64(0x0064ff9b00000000ull)

// Returns a keyed hash of the source's prefix. Nobody learns anything of it, so it need not be strong.
INLINE u64 prefix_hash(const struct datagram *datagram, const int is_v6)
{
	u64 hash;
	if (is_v6) {
		hash = (datagram->source6.high_be & config.rate_mask6_be[0]) + config.rate_secret[0];
		hash *= config.rate_secret[1];
		hash ^= hash >> 32;
		u64 low_mask_be = config.rate_mask6_be[1];
		// The last four bytes are an IPv4 address.
		if (datagram->source6.high_be == TRANSLATED_BE)
			low_mask_be = (u64)0xffffffff << 32;
		hash += datagram->source6.low_be & low_mask_be;
	} else {
		hash = datagram->source4_be + config.rate_secret[0];
	}
	hash *= config.rate_secret[1];
	hash ^= hash >> 32;
	hash *= config.rate_secret[2];
	return hash ^ hash >> 29;
}

// Counts a connect of the source's prefix. Returns 0, and counts nothing, if the prefix is over the rate.
INLINE int take(const struct datagram *datagram, const int is_v6)
{
	u64 cost = config.rate_cost;
	if (!cost)
		return 1;
	u64 tolerance = config.rate_tolerance;
	u64 hash = prefix_hash(datagram, is_v6);
	volatile u64 *set = buckets[hash % BUCKET_SETS];
	u64 tag = hash >> TIME_BITS;
	u64 now = ktime_get_ns() >> 8;
	u64 least_debt = ~0ull;
	u32 chosen = 0;
	LOOP for (u32 i = 0; i < WAYS; i++) {
		u64 bucket = set[i];
		u64 debt = (bucket - now) & TIME_MASK;
		// A time further ahead than a debt can be is in the past.
		if (debt > tolerance + cost)
			debt = 0;
		int is_own = bucket >> TIME_BITS == tag;
		if (is_own || debt < least_debt) {
			least_debt = debt;
			chosen = i;
		}
		if (is_own)
			goto found;
	}
	// The bucket's debt was another prefix's.
	least_debt = 0;
found:
	if (least_debt > tolerance)
		return 0;
	set[chosen % WAYS] = tag << TIME_BITS | ((now + least_debt + cost) & TIME_MASK);
	return 1;
}

// ---- Answers

// Adds the carries of a sum of words and returns its complement: the checksum.
INLINE u16 fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

INLINE u64 halves(u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

// Writes the destination of the reply in the link layer, which is known.
INLINE void address_frame(const struct datagram *datagram, const int is_v6)
{
	u8 *ethernet = datagram->ethernet;
	u64 next_hop = is_v6 ? interface.next_hop6 : interface.next_hop4;
	u64 kind = next_hop >> 48;
	if (kind == OFF_LINK) {
		int is_on_link = is_v6 ? is_in6(interface.on_link6, interface.on_link6_len, ON_LINK,
						datagram->source6)
				       : is_in4(interface.on_link4, interface.on_link4_len, ON_LINK,
						datagram->source4_be);
		if (is_on_link)
			kind = SWAP;
	}
	u32 own_first = LOAD32(ethernet);
	u16 own_rest = LOAD16(ethernet + 4);
	u32 first = LOAD32(ethernet + 6);
	u16 rest = LOAD16(ethernet + 10);
	if (kind != SWAP) {
		first = next_hop;
		rest = next_hop >> 32;
	}
	LOAD32(ethernet) = first;
	LOAD16(ethernet + 4) = rest;
	LOAD32(ethernet + 6) = own_first;
	LOAD16(ethernet + 10) = own_rest;
}

// Turns a connect of the source into the answer with its id.
INLINE int answer(const struct datagram *datagram, u64 current, const int is_v6)
{
	volatile struct id_entry *entry = &config.ids[current % ID_ENTRIES];
	u64 id_be =
		BE64(connection_id(entry->slice, entry->key0, entry->key1, datagram, is_v6));
	u8 *ip = datagram->ip, *udp = datagram->udp, *payload = udp + UDP_LEN;
	address_frame(datagram, is_v6);

	u64 sum;
	if (is_v6) {
		u64 from_high = LOAD64(ip + 8), from_low = LOAD64(ip + 16);
		u64 to_high = LOAD64(ip + 24), to_low = LOAD64(ip + 32);
		// Version 6; class and flow label 0. The lengths stay, next header and hop limit follow.
		LOAD32(ip) = BE32(0x60000000);
		LOAD16(ip + 6) = BE16(17 << 8 | 64);
		LOAD64(ip + 8) = to_high;
		LOAD64(ip + 16) = to_low;
		LOAD64(ip + 24) = from_high;
		LOAD64(ip + 32) = from_low;
		sum = halves(from_high) + halves(from_low) + halves(to_high) + halves(to_low);
	} else {
		u32 from = LOAD32(ip + 12), to = LOAD32(ip + 16);
		// Version 4, five words, class 0; id 0, "do not fragment"; lifetime 64, UDP.
		LOAD16(ip) = BE16(0x4500);
		LOAD32(ip + 4) = BE32(0x00004000);
		LOAD16(ip + 8) = BE16(64 << 8 | 17);
		LOAD32(ip + 12) = to;
		LOAD32(ip + 16) = from;
		sum = (u64)from + to;
		LOAD16(ip + 10) = fold(sum + BE16(0x4500) + LOAD16(ip + 2) + BE16(0x4000) +
				       BE16(64 << 8 | 17));
	}
	u16 port = LOAD16(udp);
	LOAD16(udp) = LOAD16(udp + 2);
	LOAD16(udp + 2) = port;
	u32 action_be = config.reply_action_be, transaction_id = LOAD32(payload + 12);
	LOAD32(payload) = action_be;
	LOAD32(payload + 4) = transaction_id;
	LOAD64(payload + 8) = id_be;
	// The length is in the pseudo-header, too.
	u16 checksum = fold(sum + BE16(17) + 2 * (u64)LOAD16(udp + 4) + LOAD32(udp) + action_be +
			    transaction_id + halves(id_be));
	LOAD16(udp + 6) = checksum ? checksum : 0xffff;
	count(datagram, CONNECTS);
	return TX;
}

// ---- In order

// Decides on a datagram for a listener, whose headers are checked.
INLINE int serve(const struct datagram *datagram, const int is_v6)
{
	// Only the kernel can find out where replies go.
	if ((is_v6 ? interface.next_hop6 : interface.next_hop4) >> 48 == UNKNOWN)
		return pass(datagram);
	if (is_v6 ? is_in6(config.passed6, config.passed6_len, PASSED6, datagram->source6)
		  : is_in4(config.passed4, config.passed4_len, PASSED4, datagram->source4_be))
		return pass(datagram);

	if (datagram->flags & FILTERS) {
		if (!is_v6 && is_banned(datagram->source4_be))
			return drop(datagram, BANNED);
		if (is_v6 ? is_in6(config.blocked6, config.blocked6_len, BLOCKED, datagram->source6)
			  : is_in4(config.blocked4, config.blocked4_len, BLOCKED,
				   datagram->source4_be))
			return drop(datagram, BLOCKED_SOURCE);
	}
	if (!(datagram->flags & (ANSWERS | VERIFIES)))
		return steer(datagram);

	u64 current = config.current;
	u8 *payload = datagram->udp + UDP_LEN;
	if (datagram->len < config.head_len)
		return datagram->flags & VERIFIES ? drop(datagram, TOO_SHORT) : steer(datagram);
	// Without ids there is nothing to compare with.
	if (!config.ids[current % ID_ENTRIES].slice || payload + HEAD_LEN > datagram->end)
		return steer(datagram);

	u64 id_be = LOAD64(payload);
	if (LOAD32(payload + 8) == (u32)config.connect_action_be) {
		if (id_be != config.connect_magic_be)
			return datagram->flags & VERIFIES ? drop(datagram, WRONG_MAGIC)
							   : steer(datagram);
		// The sockets accept longer ones.
		if (!(datagram->flags & ANSWERS) || datagram->len != HEAD_LEN)
			return steer(datagram);
		if (!take(datagram, is_v6))
			return drop(datagram, OVER_RATE);
		return answer(datagram, current, is_v6);
	}
	if (datagram->flags & VERIFIES && !is_valid_id(BE64(id_be), current, datagram, is_v6))
		return drop(datagram, BAD_ID);
	return steer(datagram);
}

// Sets the length of the payload. Returns 0 unless the datagram fills the IP packet and has a source
// port.
INLINE int read_udp(struct datagram *datagram, u32 ip_payload_len)
{
	u8 *udp = datagram->udp;
	u32 udp_len = BE16(LOAD16(udp + 4));
	if (!LOAD16(udp) || udp_len < UDP_LEN || udp_len != ip_payload_len ||
	    udp + udp_len > datagram->end)
		return 0;
	datagram->len = udp_len - UDP_LEN;
	return 1;
}

INLINE void set_endpoint(struct datagram *datagram, u64 endpoint)
{
	datagram->listener = endpoint >> 8 & 0xff;
	datagram->flags = endpoint & 0xff;
}

INLINE int read_ipv4(struct datagram *datagram)
{
	u8 *ip = datagram->ip;
	datagram->udp = ip + IPV4_LEN;
	if (datagram->udp + UDP_LEN > datagram->end)
		return PASS;
	// Version 4 without options, UDP, no fragment.
	if (ip[0] != 0x45 || ip[9] != 17 || LOAD16(ip + 6) & BE16(0x3fff))
		return PASS;
	u64 destination = (u64)LOAD32(ip + 16) << 16 | LOAD16(datagram->udp + 2);
	u64 endpoint = 0;
	u64 len = config.endpoints4_len;
	LOOP for (u32 i = 0; i < ENDPOINTS4; i++) {
		if (i >= len)
			return PASS;
		endpoint = config.endpoints4[i];
		if (endpoint >> 16 == destination)
			break;
	}
	if (endpoint >> 16 != destination)
		return PASS;
	set_endpoint(datagram, endpoint);
	u32 source_be = LOAD32(ip + 12);
	u32 first = source_be & 0xff;
	// Not in these: hosts that an answer can reach. Nor this one itself.
	if (first == 0 || first == 127 || first >= 224 || source_be == LOAD32(ip + 16))
		return pass(datagram);
	if (!read_udp(datagram, BE16(LOAD16(ip + 2)) - IPV4_LEN))
		return pass(datagram);
	datagram->source4_be = source_be;
	return serve(datagram, 0);
}

INLINE int read_ipv6(struct datagram *datagram)
{
	u8 *ip = datagram->ip;
	datagram->udp = ip + IPV6_LEN;
	if (datagram->udp + UDP_LEN > datagram->end)
		return PASS;
	if (ip[0] >> 4 != 6 || ip[6] != 17)
		return PASS;
	u64 high_be = LOAD64(ip + 24), low_be = LOAD64(ip + 32);
	u64 port_be = LOAD16(datagram->udp + 2);
	u64 endpoint = 0;
	u64 len = config.endpoints6_len;
	LOOP for (u32 i = 0; i < ENDPOINTS6; i++) {
		if (i >= len)
			return PASS;
		volatile struct endpoint6 *candidate = &config.endpoints6[i];
		endpoint = candidate->endpoint;
		if (endpoint >> 16 == port_be && candidate->address_be[0] == high_be &&
		    candidate->address_be[1] == low_be)
			goto found;
	}
	return PASS;
found:
	set_endpoint(datagram, endpoint);
	struct address6 source = { LOAD64(ip + 8), LOAD64(ip + 16) };
	// Not in these: hosts that an answer can reach (::/64 has the unspecified address, the loopback
	// address and IPv4 addresses; ff00::/8 is multicast). Nor this one itself.
	if (source.high_be == 0 || (source.high_be & 0xff) == 0xff ||
	    (source.high_be == high_be && source.low_be == low_be))
		return pass(datagram);
	// A datagram over IPv6 must have a checksum.
	if (!LOAD16(datagram->udp + 6) || !read_udp(datagram, BE16(LOAD16(ip + 4))))
		return pass(datagram);
	datagram->source6 = source;
	return serve(datagram, 1);
}

__attribute__((section("program"))) int process(struct xdp_md *context)
{
	u8 *data = (u8 *)(long)context->data;
	struct datagram datagram = {
		.ethernet = data,
		.end = (u8 *)(long)context->data_end,
		.queue = context->rx_queue_index,
	};
	// The Ethernet header, and room for a tag: no datagram is shorter.
	if (data + 18 > datagram.end)
		return PASS;
	// To many hosts, not to one.
	if (data[0] & 1)
		return PASS;
	u16 type_be = LOAD16(data + 12);
	datagram.ip = data + 14;
	if (type_be == BE16(0x8100)) {
		u32 id = BE16(LOAD16(data + 14)) & 0xfff;
		if (!(interface.vlans[id / 64] >> (id % 64) & 1))
			return PASS;
		type_be = LOAD16(data + 16);
		datagram.ip = data + 18;
	}
	if (type_be == BE16(0x0800))
		return read_ipv4(&datagram);
	if (type_be == BE16(0x86dd))
		return read_ipv6(&datagram);
	return PASS;
}
