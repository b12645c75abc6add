/* The test double: crypto.c with faults on request, and a device of crypto_null that pretends to have every algorithm. */

#define ALLOW_EXPERIMENTAL_API

#include "shim.h"

#include <string.h>

#include <rte_cryptodev.h>
#include <rte_mbuf.h>

enum fault { WORKS, REFUSES, STALLS, FAILS, WRONG, CREDULOUS };

static int32_t fault;
/* That have come back from devices. */
static uint64_t operations_done;

PUBLIC void postern_set_fault(int32_t chosen)
{
	__atomic_store_n(&fault, chosen, __ATOMIC_RELAXED);
}

PUBLIC uint64_t postern_count_operations(void)
{
	return __atomic_load_n(&operations_done, __ATOMIC_RELAXED);
}

static int is(enum fault asked)
{
	return __atomic_load_n(&fault, __ATOMIC_RELAXED) == (int32_t)asked;
}

static uint16_t enqueue(uint8_t device, uint16_t pair, struct rte_crypto_op **ops, uint16_t count)
{
	return is(REFUSES) ? 0 : rte_cryptodev_enqueue_burst(device, pair, ops, count);
}

static uint16_t dequeue(uint8_t device, uint16_t pair, struct rte_crypto_op **ops, uint16_t most)
{
	uint16_t count = is(STALLS) ? 0 : rte_cryptodev_dequeue_burst(device, pair, ops, most);

	__atomic_fetch_add(&operations_done, count, __ATOMIC_RELAXED);
	for (uint16_t i = 0; i < count; i++) {
		if (is(FAILS))
			ops[i]->status = RTE_CRYPTO_OP_STATUS_ERROR;
		if (is(CREDULOUS) && ops[i]->status == RTE_CRYPTO_OP_STATUS_AUTH_FAILED)
			ops[i]->status = RTE_CRYPTO_OP_STATUS_SUCCESS;
		if (is(WRONG))
			*rte_pktmbuf_mtod(ops[i]->sym->m_src, uint8_t *) ^= 1;
	}
	return count;
}

static int is_null(uint8_t device)
{
	return strncmp(rte_cryptodev_name_get(device), "crypto_null", 11) == 0;
}

static void *create(uint8_t device, struct rte_crypto_sym_xform *forms, struct rte_mempool *pool)
{
	struct rte_crypto_sym_xform nothing = {
		.type = RTE_CRYPTO_SYM_XFORM_CIPHER,
		.cipher.algo = RTE_CRYPTO_CIPHER_NULL,
	};

	return rte_cryptodev_sym_session_create(device, is_null(device) ? &nothing : forms, pool);
}

static int has_algorithms(uint8_t device, const struct rte_crypto_sym_xform *forms);

static int claims_algorithms(uint8_t device, const struct rte_crypto_sym_xform *forms)
{
	return is_null(device) || has_algorithms(device, forms);
}

#define POSTERN_ENQUEUE enqueue
#define POSTERN_DEQUEUE dequeue
#define POSTERN_CREATE create
#define POSTERN_HAS claims_algorithms

#include "crypto.c"

/* Keys in devices. */
PUBLIC uint64_t postern_count_keys(void)
{
	uint64_t count = 0;

	for (int device = 0; device < RTE_CRYPTO_MAX_DEVS; device++)
		if (devices[device].sessions != NULL)
			count += rte_mempool_in_use_count(devices[device].sessions);
	return count;
}
