/* Crypto devices: jobs in flat buffers, copied into mbufs and operations of a device, and back.
 *
 * An operation that a device keeps beyond the limit stays its own, with its buffer. If it comes back later, it is freed. */

/* Pools of sessions are not yet of the stable ABI in 22.11. */
#define ALLOW_EXPERIMENTAL_API

#include "shim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_crypto.h>
#include <rte_cryptodev.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

/* A test double replaces these. */
#ifndef POSTERN_ENQUEUE
#define POSTERN_ENQUEUE rte_cryptodev_enqueue_burst
#define POSTERN_DEQUEUE rte_cryptodev_dequeue_burst
#define POSTERN_CREATE rte_cryptodev_sym_session_create
#define POSTERN_HAS has_algorithms
#endif

/* Operations of a queue pair, of all of them, and buffers. */
#define DESCRIPTORS 512
#define OPERATIONS 4096
#define SMALL_BUFFERS 4096
#define SMALL_ROOM 2048
#define LARGE_BUFFERS 128
#define LARGE_ROOM (UINT16_MAX - RTE_PKTMBUF_HEADROOM)
#define SESSIONS 2048
#define CACHE 256
#define QUEUE_PAIRS 64
#define LONGEST_AAD 64

/* Behind an operation: what a device reads, and whose it is. */
struct beside {
	uint8_t iv[16];
	uint8_t aad[LONGEST_AAD];
	struct postern_session *session;
	uint64_t run;
	uint32_t is_back;
};

#define BESIDE (sizeof(struct rte_crypto_op) + sizeof(struct rte_crypto_sym_op))
#define IV (BESIDE + offsetof(struct beside, iv))
#define AAD (BESIDE + offsetof(struct beside, aad))

struct postern_session {
	void *session;
	/* Operations that the device has. */
	int32_t in_device;
	uint8_t device;
	uint8_t is_aead;
	uint8_t has_cipher;
	uint8_t seals;
};

static struct {
	struct rte_mempool *sessions;
	uint64_t runs[QUEUE_PAIRS];
} devices[RTE_CRYPTO_MAX_DEVS];

static struct rte_mempool *operations, *small, *large;

PUBLIC int32_t postern_count_devices(void)
{
	return rte_cryptodev_count();
}

PUBLIC int32_t postern_describe_device(uint8_t device, struct postern_device *facts)
{
	const char *name = rte_cryptodev_name_get(device);
	struct rte_cryptodev_info info;

	memset(facts, 0, sizeof(*facts));
	if (name == NULL)
		return -ENODEV;
	rte_cryptodev_info_get(device, &info);
	snprintf(facts->name, sizeof(facts->name), "%s", name);
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name ? info.driver_name : "");
	facts->most_queue_pairs = RTE_MIN(info.max_nb_queue_pairs, (uint32_t)QUEUE_PAIRS);
	facts->is_hardware = (info.feature_flags & RTE_CRYPTODEV_FF_HW_ACCELERATED) != 0;
	return 0;
}

static int make_pools(void)
{
	if (operations == NULL)
		operations = rte_crypto_op_pool_create("postern operations", RTE_CRYPTO_OP_TYPE_SYMMETRIC, OPERATIONS,
						       CACHE, sizeof(struct beside), SOCKET_ID_ANY);
	if (small == NULL)
		small = rte_pktmbuf_pool_create("postern small", SMALL_BUFFERS, CACHE, 0,
						SMALL_ROOM + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	if (large == NULL)
		large = rte_pktmbuf_pool_create("postern large", LARGE_BUFFERS, 0, 0, UINT16_MAX, SOCKET_ID_ANY);
	return operations && small && large ? 0 : -rte_errno;
}

static int set_up(uint8_t device, uint16_t queue_pairs)
{
	int socket = rte_cryptodev_socket_id(device);
	struct rte_cryptodev_config configuration = {
		.socket_id = socket,
		.nb_queue_pairs = queue_pairs,
		.ff_disable = RTE_CRYPTODEV_FF_ASYMMETRIC_CRYPTO | RTE_CRYPTODEV_FF_SECURITY,
	};
	struct rte_cryptodev_qp_conf pair = {
		.nb_descriptors = DESCRIPTORS,
		.mp_session = devices[device].sessions,
	};
	int outcome = rte_cryptodev_configure(device, &configuration);

	for (uint16_t i = 0; outcome == 0 && i < queue_pairs; i++)
		outcome = rte_cryptodev_queue_pair_setup(device, i, &pair, socket);
	return outcome == 0 ? rte_cryptodev_start(device) : outcome;
}

PUBLIC int32_t postern_open_device(uint8_t device, uint16_t queue_pairs)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	int outcome = make_pools();

	if (outcome != 0)
		return outcome;
	snprintf(name, sizeof(name), "postern sessions %u", device);
	devices[device].sessions = rte_cryptodev_sym_session_pool_create(
		name, SESSIONS, rte_cryptodev_sym_get_private_session_size(device), 0, 0, SOCKET_ID_ANY);
	return devices[device].sessions ? set_up(device, queue_pairs) : -rte_errno;
}

static void fill_aead(const struct postern_transform *transform, struct rte_crypto_sym_xform *form)
{
	form->type = RTE_CRYPTO_SYM_XFORM_AEAD;
	form->aead.op = transform->seals ? RTE_CRYPTO_AEAD_OP_ENCRYPT : RTE_CRYPTO_AEAD_OP_DECRYPT;
	form->aead.algo = transform->cipher == POSTERN_AES_GCM ? RTE_CRYPTO_AEAD_AES_GCM :
								 RTE_CRYPTO_AEAD_CHACHA20_POLY1305;
	form->aead.key.data = transform->cipher_key;
	form->aead.key.length = transform->cipher_key_length;
	form->aead.iv.offset = IV;
	form->aead.iv.length = transform->iv_length;
	form->aead.digest_length = transform->tag_length;
	form->aead.aad_length = transform->aad_length;
}

static void fill_cipher(const struct postern_transform *transform, struct rte_crypto_sym_xform *form)
{
	static const enum rte_crypto_cipher_algorithm algorithms[] = {
		[POSTERN_AES_CBC] = RTE_CRYPTO_CIPHER_AES_CBC,
		[POSTERN_AES_CTR] = RTE_CRYPTO_CIPHER_AES_CTR,
		[POSTERN_3DES_CBC] = RTE_CRYPTO_CIPHER_3DES_CBC,
	};

	form->type = RTE_CRYPTO_SYM_XFORM_CIPHER;
	form->cipher.op = transform->seals ? RTE_CRYPTO_CIPHER_OP_ENCRYPT : RTE_CRYPTO_CIPHER_OP_DECRYPT;
	form->cipher.algo = algorithms[transform->cipher];
	form->cipher.key.data = transform->cipher_key;
	form->cipher.key.length = transform->cipher_key_length;
	form->cipher.iv.offset = IV;
	form->cipher.iv.length = transform->iv_length;
}

static void fill_mac(const struct postern_transform *transform, struct rte_crypto_sym_xform *form)
{
	static const enum rte_crypto_auth_algorithm algorithms[] = {
		[POSTERN_HMAC_SHA1] = RTE_CRYPTO_AUTH_SHA1_HMAC,
		[POSTERN_HMAC_SHA256] = RTE_CRYPTO_AUTH_SHA256_HMAC,
		[POSTERN_HMAC_SHA384] = RTE_CRYPTO_AUTH_SHA384_HMAC,
		[POSTERN_HMAC_SHA512] = RTE_CRYPTO_AUTH_SHA512_HMAC,
		[POSTERN_AES_XCBC] = RTE_CRYPTO_AUTH_AES_XCBC_MAC,
	};

	form->type = RTE_CRYPTO_SYM_XFORM_AUTH;
	form->auth.op = transform->seals ? RTE_CRYPTO_AUTH_OP_GENERATE : RTE_CRYPTO_AUTH_OP_VERIFY;
	form->auth.algo = algorithms[transform->mac];
	form->auth.key.data = transform->mac_key;
	form->auth.key.length = transform->mac_key_length;
	form->auth.digest_length = transform->tag_length;
}

/* RFC 4303: encrypts, then authenticates; and the reverse. Returns the first of the forms. */
static struct rte_crypto_sym_xform *fill(const struct postern_transform *transform, struct rte_crypto_sym_xform forms[2])
{
	memset(forms, 0, 2 * sizeof(forms[0]));
	if (transform->mac == POSTERN_NONE) {
		fill_aead(transform, &forms[0]);
		return &forms[0];
	}
	fill_mac(transform, &forms[1]);
	if (transform->cipher == POSTERN_NULL)
		return &forms[1];
	fill_cipher(transform, &forms[0]);
	if (transform->seals) {
		forms[0].next = &forms[1];
		return &forms[0];
	}
	forms[1].next = &forms[0];
	return &forms[1];
}

static int has_algorithm(uint8_t device, const struct rte_crypto_sym_xform *form)
{
	struct rte_cryptodev_sym_capability_idx index = { .type = form->type };
	const struct rte_cryptodev_symmetric_capability *capability;

	if (form->type == RTE_CRYPTO_SYM_XFORM_AEAD)
		index.algo.aead = form->aead.algo;
	else if (form->type == RTE_CRYPTO_SYM_XFORM_CIPHER)
		index.algo.cipher = form->cipher.algo;
	else
		index.algo.auth = form->auth.algo;
	capability = rte_cryptodev_sym_capability_get(device, &index);
	if (capability == NULL)
		return 0;
	if (form->type == RTE_CRYPTO_SYM_XFORM_AEAD)
		return rte_cryptodev_sym_capability_check_aead(capability, form->aead.key.length,
							       form->aead.digest_length, form->aead.aad_length,
							       form->aead.iv.length) == 0;
	if (form->type == RTE_CRYPTO_SYM_XFORM_CIPHER)
		return rte_cryptodev_sym_capability_check_cipher(capability, form->cipher.key.length,
								 form->cipher.iv.length) == 0;
	return rte_cryptodev_sym_capability_check_auth(capability, form->auth.key.length, form->auth.digest_length,
						       0) == 0;
}

static int has_algorithms(uint8_t device, const struct rte_crypto_sym_xform *forms)
{
	for (; forms != NULL; forms = forms->next)
		if (!has_algorithm(device, forms))
			return 0;
	return 1;
}

PUBLIC int32_t postern_load_key(uint8_t device, const struct postern_transform *transform, struct postern_session **session)
{
	struct rte_crypto_sym_xform forms[2];
	struct rte_crypto_sym_xform *first = fill(transform, forms);
	struct postern_session *made;

	if (transform->aad_length > LONGEST_AAD || !POSTERN_HAS(device, first))
		return -ENOTSUP;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->session = POSTERN_CREATE(device, first, devices[device].sessions);
	if (made->session == NULL) {
		free(made);
		return -(rte_errno ? rte_errno : EIO);
	}
	made->device = device;
	made->is_aead = transform->mac == POSTERN_NONE;
	made->has_cipher = transform->cipher != POSTERN_NULL;
	made->seals = transform->seals;
	*session = made;
	return 0;
}

PUBLIC int32_t postern_drop_key(struct postern_session *session)
{
	const struct rte_mempool *pool = devices[session->device].sessions;

	/* A device that still has operations of it reads it. */
	if (__atomic_load_n(&session->in_device, __ATOMIC_ACQUIRE) != 0)
		return -EBUSY;
	if (rte_cryptodev_sym_session_free(session->device, session->session) == 0)
		/* What the driver made of the key; nobody else takes the memory meanwhile. */
		explicit_bzero(session->session, pool->elt_size);
	free(session);
	return 0;
}

static struct beside *beside(struct rte_crypto_op *op)
{
	return rte_crypto_op_ctod_offset(op, struct beside *, BESIDE);
}

static void discard(struct rte_crypto_op *op)
{
	rte_pktmbuf_free(op->sym->m_src);
	rte_crypto_op_free(op);
}

/* Copies a job into a buffer: data, what is authenticated behind it, tag. */
static struct rte_mbuf *copy_in(const struct postern_session *session, const struct postern_job *job)
{
	uint32_t behind = session->is_aead ? 0 : job->beside_length;
	uint32_t length = job->length + behind + job->tag_length;
	struct rte_mbuf *mbuf;
	char *data;

	if (length > LARGE_ROOM)
		return NULL;
	mbuf = rte_pktmbuf_alloc(length > SMALL_ROOM ? large : small);
	if (mbuf == NULL)
		return NULL;
	data = rte_pktmbuf_append(mbuf, length);
	memcpy(data, job->data, job->length);
	if (behind != 0)
		memcpy(data + job->length, job->beside, behind);
	memcpy(data + job->length + behind, job->tag, job->tag_length);
	return mbuf;
}

static int prepare(struct postern_session *session, uint64_t run, const struct postern_job *job, struct rte_crypto_op *op)
{
	struct rte_mbuf *mbuf = copy_in(session, job);
	struct rte_crypto_sym_op *sym = op->sym;
	struct beside *own = beside(op);
	uint32_t authenticated = job->length + (session->is_aead ? 0 : job->beside_length);

	sym->m_src = mbuf;
	if (mbuf == NULL)
		return -ENOMEM;
	memcpy(own->iv, job->iv, sizeof(own->iv));
	own->session = session;
	own->run = run;
	own->is_back = 0;
	rte_crypto_op_attach_sym_session(op, session->session);
	if (session->is_aead) {
		memcpy(own->aad, job->beside, job->beside_length);
		sym->aead.data.offset = 0;
		sym->aead.data.length = job->length;
		sym->aead.aad.data = own->aad;
		sym->aead.aad.phys_addr = rte_crypto_op_ctophys_offset(op, AAD);
		sym->aead.digest.data = rte_pktmbuf_mtod_offset(mbuf, uint8_t *, authenticated);
		sym->aead.digest.phys_addr = rte_pktmbuf_iova_offset(mbuf, authenticated);
		return 0;
	}
	sym->cipher.data.offset = job->text;
	sym->cipher.data.length = session->has_cipher ? job->length - job->text : 0;
	sym->auth.data.offset = 0;
	sym->auth.data.length = authenticated;
	sym->auth.digest.data = rte_pktmbuf_mtod_offset(mbuf, uint8_t *, authenticated);
	sym->auth.digest.phys_addr = rte_pktmbuf_iova_offset(mbuf, authenticated);
	return 0;
}

/* Takes operations back; returns how many of them are of this run. */
static uint32_t take_back(uint8_t device, uint16_t pair, uint64_t run)
{
	struct rte_crypto_op *done[32];
	uint16_t count = POSTERN_DEQUEUE(device, pair, done, RTE_DIM(done));
	uint32_t ours = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct beside *own = beside(done[i]);

		__atomic_fetch_sub(&own->session->in_device, 1, __ATOMIC_RELEASE);
		if (own->run == run) {
			own->is_back = 1;
			ours++;
		} else {
			discard(done[i]);
		}
	}
	return ours;
}

/* Gives all operations to the device and waits for them. Those that it keeps are no longer among them. */
static int exchange(struct postern_session *session, uint16_t pair, uint64_t run, struct rte_crypto_op **ops, uint32_t count,
		    uint64_t limit_microseconds)
{
	uint64_t limit = limit_microseconds * rte_get_tsc_hz() / 1000000;
	uint64_t begun = rte_rdtsc();
	uint32_t given = 0, back = 0;

	while (back < count) {
		uint16_t taken = 0;
		uint32_t returned;

		if (given < count)
			taken = POSTERN_ENQUEUE(session->device, pair, ops + given, count - given);
		given += taken;
		__atomic_fetch_add(&session->in_device, taken, __ATOMIC_RELAXED);
		returned = take_back(session->device, pair, run);
		back += returned;
		if (taken != 0 || returned != 0)
			continue;
		if (rte_rdtsc() - begun > limit)
			break;
		rte_pause();
	}
	if (back == count)
		return 0;
	for (uint32_t i = 0; i < given; i++)
		if (!beside(ops[i])->is_back)
			ops[i] = NULL;
	return -ETIMEDOUT;
}

static int verify(const struct postern_session *session, struct rte_crypto_op **ops, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (ops[i]->status != RTE_CRYPTO_OP_STATUS_SUCCESS &&
		    (session->seals || ops[i]->status != RTE_CRYPTO_OP_STATUS_AUTH_FAILED))
			return -EIO;
	return 0;
}

static void copy_out(const struct postern_session *session, const struct rte_crypto_op *op, struct postern_job *job)
{
	const uint8_t *data = rte_pktmbuf_mtod(op->sym->m_src, const uint8_t *);
	uint32_t behind = session->is_aead ? 0 : job->beside_length;

	job->is_authentic = op->status == RTE_CRYPTO_OP_STATUS_SUCCESS;
	if (job->is_authentic)
		memcpy(job->data + job->text, data + job->text, job->length - job->text);
	if (session->seals)
		memcpy(job->tag, data + job->length + behind, job->tag_length);
}

PUBLIC int32_t postern_run(struct postern_session *session, uint16_t queue_pair, struct postern_job *jobs, uint32_t count,
			   uint64_t limit_microseconds)
{
	struct rte_crypto_op *ops[POSTERN_JOBS];
	uint64_t run = ++devices[session->device].runs[queue_pair];
	uint32_t ready = 0;
	int outcome = 0;

	if (count > POSTERN_JOBS)
		return -EINVAL;
	if (rte_crypto_op_bulk_alloc(operations, RTE_CRYPTO_OP_TYPE_SYMMETRIC, ops, count) == 0)
		return -ENOMEM;
	for (; outcome == 0 && ready < count; ready++)
		outcome = prepare(session, run, &jobs[ready], ops[ready]);
	for (uint32_t i = ready; i < count; i++)
		ops[i]->sym->m_src = NULL;
	if (outcome == 0)
		outcome = exchange(session, queue_pair, run, ops, count, limit_microseconds);
	if (outcome == 0)
		outcome = verify(session, ops, count);
	for (uint32_t i = 0; i < count; i++) {
		if (ops[i] == NULL)
			continue;
		if (outcome == 0)
			copy_out(session, ops[i], &jobs[i]);
		discard(ops[i]);
	}
	return outcome;
}
