/* What libpostern_dpdk.so exports, in types that no version of DPDK changes. `dpdk/src/library.rs` has the same.
 *
 * All functions that can fail return 0 or more, or a negative errno. Functions of a queue are for one thread at a time;
 * others must not overlap for one port or one device. */

#ifndef POSTERN_SHIM_H
#define POSTERN_SHIM_H

#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

/* Counts changes of this file: a program refuses another number. */
#define POSTERN_INTERFACE 2

/* The most frames of a call, and the most jobs. */
#define POSTERN_FRAMES 32u
#define POSTERN_JOBS 256u

struct postern_identity {
	uint32_t interface;
	/* The ABI of the DPDK that it was built with, and of the one that is loaded. */
	uint32_t built;
	uint32_t running;
	char version[64];
};

struct postern_port {
	char name[64];
	char driver[64];
	uint8_t address[6];
	uint16_t mtu;
	uint16_t most_receive_queues;
	uint16_t most_transmit_queues;
};

struct postern_open {
	uint16_t receive_queues;
	uint16_t transmit_queues;
	uint16_t mtu;
	uint16_t is_promiscuous;
};

struct postern_frame {
	const uint8_t *data;
	uint32_t length;
};

struct postern_device {
	char name[64];
	char driver[64];
	uint16_t most_queue_pairs;
	uint16_t is_hardware;
};

enum postern_cipher {
	POSTERN_NULL,
	POSTERN_AES_GCM,
	POSTERN_CHACHA20_POLY1305,
	POSTERN_AES_CBC,
	POSTERN_AES_CTR,
	POSTERN_3DES_CBC,
};

/* None for a cipher that authenticates. */
enum postern_mac {
	POSTERN_NONE,
	POSTERN_HMAC_SHA1,
	POSTERN_HMAC_SHA256,
	POSTERN_HMAC_SHA384,
	POSTERN_HMAC_SHA512,
	POSTERN_AES_XCBC,
};

struct postern_transform {
	uint32_t cipher;
	uint32_t mac;
	const uint8_t *cipher_key;
	const uint8_t *mac_key;
	uint16_t cipher_key_length;
	uint16_t mac_key_length;
	uint16_t iv_length;
	/* Of the additional data; 0 if there is a MAC. */
	uint16_t aad_length;
	uint16_t tag_length;
	uint16_t seals;
};

struct postern_job {
	uint8_t iv[16];
	/* What is authenticated; its part from `text` on is also encrypted. */
	uint8_t *data;
	/* The additional data; with a MAC, what is authenticated behind the data. */
	const uint8_t *beside;
	uint8_t *tag;
	uint32_t length;
	uint32_t text;
	uint32_t beside_length;
	/* That of the key. */
	uint32_t tag_length;
	uint32_t is_authentic;
};

struct postern_session;

void postern_identify(struct postern_identity *identity);

/* EAL: once a process. */
int32_t postern_start(int32_t count, char **words);
int32_t postern_enter_thread(void);
void postern_leave_thread(void);
/* A device of frames. `bus` is vdev, or pci. */
int32_t postern_add_device(const char *bus, const char *name, const char *arguments);

/* Ports of frames. `postern_next_port` returns the first one from a number on. */
int32_t postern_next_port(uint16_t from);
int32_t postern_describe_port(uint16_t port, struct postern_port *facts);
int32_t postern_open_port(uint16_t port, const struct postern_open *options);
void postern_close_port(uint16_t port);
int32_t postern_is_up(uint16_t port);
/* Received, sent; not taken in time, received wrong, not sent, without memory. */
int32_t postern_count_port(uint16_t port, uint64_t counts[6]);
/* Frames stay valid until they are released. Those in several pieces have no length. */
uint32_t postern_receive(uint16_t port, uint16_t queue, struct postern_frame *frames, void **held, uint32_t most);
void postern_release(void **held, uint32_t count);
/* Sends copies; returns how many were taken. */
uint32_t postern_send(uint16_t port, uint16_t queue, const struct postern_frame *frames, uint32_t count);

/* Crypto devices, from 0 on. */
int32_t postern_count_devices(void);
int32_t postern_describe_device(uint8_t device, struct postern_device *facts);
int32_t postern_open_device(uint8_t device, uint16_t queue_pairs);
/* -ENOTSUP if the device does not have the algorithms with these lengths. */
int32_t postern_load_key(uint8_t device, const struct postern_transform *transform, struct postern_session **session);
/* -EBUSY if the device still has jobs under the key: it is not dropped. */
int32_t postern_drop_key(struct postern_session *session);
/* All jobs are done, or none is changed: then -ETIMEDOUT if the device did not answer, -EIO if it failed. */
int32_t postern_run(struct postern_session *session, uint16_t queue_pair, struct postern_job *jobs, uint32_t count,
		    uint64_t limit_microseconds);

#endif
