/* EAL, and ports of frames: flat buffers out of mbufs and into them. Burst functions and mbufs are inline in DPDK's headers. */

#include "shim.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

/* Descriptors of a queue, unless the driver has fewer. */
#define DESCRIPTORS 2048
/* IEEE 802.3: the shortest frame, without its check sequence. */
#define SHORTEST 60u
/* Buffers that a thread keeps for itself. */
#define CACHE 256

static struct rte_mempool *pools[RTE_MAX_ETHPORTS];

/* The ABI changes each November. */
static uint32_t abi(uint32_t year, uint32_t month)
{
	return month >= 11 ? year + 1 : year;
}

PUBLIC void postern_identify(struct postern_identity *identity)
{
	unsigned int year = 0, month = 0;

	sscanf(rte_version(), "%*[^0-9]%u.%u", &year, &month);
	memset(identity, 0, sizeof(*identity));
	identity->interface = POSTERN_INTERFACE;
	identity->built = abi(RTE_VER_YEAR, RTE_VER_MONTH);
	identity->running = abi(year, month);
	snprintf(identity->version, sizeof(identity->version), "%s", rte_version());
}

PUBLIC int32_t postern_start(int32_t count, char **words)
{
	/* Standard output is for reports. */
	rte_openlog_stream(stderr);
	return rte_eal_init(count, words) < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

PUBLIC int32_t postern_enter_thread(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

PUBLIC void postern_leave_thread(void)
{
	rte_thread_unregister();
}

PUBLIC int32_t postern_add_device(const char *bus, const char *name, const char *arguments)
{
	uint16_t port;
	int outcome = rte_eal_hotplug_add(bus, name, arguments);

	/* A port that was closed is gone, and its device is still there, which is no failure: it has to come anew. */
	if (outcome == 0 && rte_eth_dev_get_port_by_name(name, &port) != 0) {
		outcome = rte_eal_hotplug_remove(bus, name);
		if (outcome == 0)
			outcome = rte_eal_hotplug_add(bus, name, arguments);
	}
	return outcome;
}

PUBLIC int32_t postern_next_port(uint16_t from)
{
	uint64_t port = rte_eth_find_next_owned_by(from, RTE_ETH_DEV_NO_OWNER);

	return port < RTE_MAX_ETHPORTS ? (int32_t)port : -ENODEV;
}

PUBLIC int32_t postern_describe_port(uint16_t port, struct postern_port *facts)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr address;
	int outcome;

	memset(facts, 0, sizeof(*facts));
	outcome = rte_eth_dev_info_get(port, &info);
	if (outcome == 0)
		outcome = rte_eth_macaddr_get(port, &address);
	if (outcome == 0)
		outcome = rte_eth_dev_get_mtu(port, &facts->mtu);
	if (outcome != 0)
		return outcome;
	rte_eth_dev_get_name_by_port(port, facts->name);
	snprintf(facts->driver, sizeof(facts->driver), "%s", info.driver_name ? info.driver_name : "");
	memcpy(facts->address, address.addr_bytes, sizeof(facts->address));
	facts->most_receive_queues = info.max_rx_queues;
	facts->most_transmit_queues = info.max_tx_queues;
	return 0;
}

static int set_up_queues(uint16_t port, const struct postern_open *options, uint16_t receive, uint16_t transmit)
{
	int socket = rte_eth_dev_socket_id(port);
	int outcome;
	uint16_t queue;

	for (queue = 0; queue < options->receive_queues; queue++) {
		outcome = rte_eth_rx_queue_setup(port, queue, receive, socket, NULL, pools[port]);
		if (outcome != 0)
			return outcome;
	}
	for (queue = 0; queue < options->transmit_queues; queue++) {
		outcome = rte_eth_tx_queue_setup(port, queue, transmit, socket, NULL);
		if (outcome != 0)
			return outcome;
	}
	return 0;
}

/* Buffers for all descriptors, for what threads keep, and for a burst of each of them. */
static int make_pool(uint16_t port, const struct postern_open *options, uint16_t receive, uint16_t transmit)
{
	uint32_t threads = options->receive_queues + options->transmit_queues;
	uint32_t count = options->receive_queues * receive + options->transmit_queues * transmit +
			 threads * (CACHE + CACHE / 2 + POSTERN_FRAMES);
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "postern port %u", port);
	pools[port] = rte_pktmbuf_pool_create(name, count, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
					      rte_eth_dev_socket_id(port));
	return pools[port] ? 0 : -rte_errno;
}

/* Several queues get flows by their addresses and ports, as far as the driver can. */
static void spread(const struct rte_eth_dev_info *info, struct rte_eth_conf *configuration)
{
	uint64_t by = (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP) & info->flow_type_rss_offloads;

	if (by == 0)
		return;
	configuration->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	configuration->rx_adv_conf.rss_conf.rss_hf = by;
}

/* The mtu that the driver has at most; net_memif, which says only how long frames are, takes longer ones all the same. */
static uint16_t longest(const struct rte_eth_dev_info *info)
{
	if (info->max_mtu != 0 && info->max_mtu != UINT16_MAX)
		return info->max_mtu;
	if (info->max_rx_pktlen <= RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
		return UINT16_MAX;
	return RTE_MIN(info->max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN, (uint32_t)UINT16_MAX);
}

PUBLIC int32_t postern_open_port(uint16_t port, const struct postern_open *options)
{
	struct rte_eth_conf configuration;
	struct rte_eth_dev_info info;
	uint16_t receive = DESCRIPTORS, transmit = DESCRIPTORS;
	int outcome = rte_eth_dev_info_get(port, &info);

	if (outcome != 0)
		return outcome;
	memset(&configuration, 0, sizeof(configuration));
	configuration.rxmode.mtu = RTE_MIN(options->mtu, longest(&info));
	if (options->receive_queues > 1)
		spread(&info, &configuration);
	outcome = rte_eth_dev_configure(port, options->receive_queues, options->transmit_queues, &configuration);
	if (outcome == 0)
		outcome = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
	if (outcome == 0)
		outcome = make_pool(port, options, receive, transmit);
	if (outcome == 0)
		outcome = set_up_queues(port, options, receive, transmit);
	if (outcome == 0)
		outcome = rte_eth_dev_start(port);
	if (outcome == 0 && options->is_promiscuous)
		/* A driver without it takes all frames. */
		rte_eth_promiscuous_enable(port);
	return outcome;
}

struct closing {
	uint16_t port;
	sem_t done;
};

static void close_and_tell(void *argument)
{
	struct closing *closing = argument;

	rte_eth_dev_close(closing->port);
	sem_post(&closing->done);
}

/*
 * net_memif frees a port in its interrupt handler too, when the other side closes, and does not lock what both free.
 * Alarms run in the thread of interrupts, one after the other.
 */
static void close_between_interrupts(uint16_t port)
{
	struct closing closing = {.port = port};

	sem_init(&closing.done, 0, 0);
	if (rte_eal_alarm_set(1, close_and_tell, &closing) != 0) {
		rte_eth_dev_close(port);
	} else {
		while (sem_wait(&closing.done) != 0)
			;
	}
	sem_destroy(&closing.done);
}

PUBLIC void postern_close_port(uint16_t port)
{
	struct rte_eth_dev_info info;
	int outcome = rte_eth_dev_info_get(port, &info);

	/* net_af_xdp leaves its interface promiscuous. */
	rte_eth_promiscuous_disable(port);
	rte_eth_dev_stop(port);
	if (outcome == 0 && strcmp(info.driver_name, "net_memif") == 0)
		close_between_interrupts(port);
	else
		rte_eth_dev_close(port);
	rte_mempool_free(pools[port]);
	pools[port] = NULL;
}

PUBLIC int32_t postern_is_up(uint16_t port)
{
	struct rte_eth_link link;
	int outcome = rte_eth_link_get_nowait(port, &link);

	return outcome < 0 ? outcome : link.link_status == RTE_ETH_LINK_UP;
}

PUBLIC int32_t postern_count_port(uint16_t port, uint64_t counts[6])
{
	struct rte_eth_stats statistics;
	int outcome = rte_eth_stats_get(port, &statistics);

	if (outcome != 0)
		return outcome;
	counts[0] = statistics.ipackets;
	counts[1] = statistics.opackets;
	counts[2] = statistics.imissed;
	counts[3] = statistics.ierrors;
	counts[4] = statistics.oerrors;
	counts[5] = statistics.rx_nombuf;
	return 0;
}

PUBLIC uint32_t postern_receive(uint16_t port, uint16_t queue, struct postern_frame *frames, void **held, uint32_t most)
{
	struct rte_mbuf **mbufs = (struct rte_mbuf **)held;
	uint16_t count = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(most, POSTERN_FRAMES));
	uint16_t i;

	for (i = 0; i < count; i++) {
		frames[i].data = rte_pktmbuf_mtod(mbufs[i], const uint8_t *);
		frames[i].length = mbufs[i]->nb_segs == 1 ? rte_pktmbuf_data_len(mbufs[i]) : 0;
	}
	return count;
}

PUBLIC void postern_release(void **held, uint32_t count)
{
	rte_pktmbuf_free_bulk((struct rte_mbuf **)held, count);
}

PUBLIC uint32_t postern_send(uint16_t port, uint16_t queue, const struct postern_frame *frames, uint32_t count)
{
	struct rte_mbuf *mbufs[POSTERN_FRAMES];
	uint32_t i, sent;

	count = RTE_MIN(count, POSTERN_FRAMES);
	if (rte_pktmbuf_alloc_bulk(pools[port], mbufs, count) != 0)
		return 0;
	for (i = 0; i < count; i++) {
		uint32_t length = RTE_MAX(frames[i].length, SHORTEST);
		char *data = rte_pktmbuf_append(mbufs[i], length);

		if (data == NULL)
			break;
		memcpy(data, frames[i].data, frames[i].length);
		memset(data + frames[i].length, 0, length - frames[i].length);
	}
	sent = rte_eth_tx_burst(port, queue, mbufs, i);
	rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
	return sent;
}
