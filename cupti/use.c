/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One session's calls to CUPTI, in the first or the second version of its interface.
 *
 * The first knows one subscriber, and its kinds and buffers are the process's. The second (13.3,
 * with a driver as new) gives each subscriber its own; a process cannot mix the two, and the first
 * subscriber decides. So the second is used where somebody has decided for it already, or where
 * nobody has and PyTorch, whose profiler speaks the first, is not in the process.
 */
#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME "dlbpf"
#define RECORDER "torch.profiler or the like, which records"

enum { SEVERAL_NO = 0, SEVERAL_YES = 1, SEVERAL_OPEN = 2 };

static struct {
	struct cupti_api_table t;
	void *subscriber;
	bool v2;
	char holder[CUPTI_ABI_OLD_NAME_SZ + 1];
} use;

static void on_callback(void *userdata, int domain, uint32_t cbid, const void *data)
{
	(void)userdata, (void)domain, (void)cbid, (void)data;	/* no callback is enabled */
}

static void request_v2(uint8_t **buf, size_t *size, size_t *max_records, const void *info)
{
	(void)info;
	pool_request(buf, size, max_records);
}

static void complete_v2(uint8_t *buf, size_t size, size_t valid, const void *info)
{
	(void)info;
	pool_complete(NULL, 0, buf, size, valid);
}

static bool has_v2(void)
{
	bool all = use.t.subscribe_v2 && use.t.unsubscribe;

#define CUPTI_FN(required, member, symbol, params) all = all && use.t.member;
	CUPTI_FUNCTIONS_V2(CUPTI_FN)
#undef CUPTI_FN
	return all;
}

static uint8_t state_of_several(void)
{
	uint8_t state = SEVERAL_NO;
	size_t sz = sizeof(state);

	if (!has_v2() || use.t.v2_get_attribute(NULL, CUPTI_ABI_ATTR_MULTIPLE_SUBSCRIBERS, &sz, &state))
		return SEVERAL_NO;
	return state;
}

static bool wants_v2(void)
{
	const char *env = getenv("DLBPF_CUPTI_V2");
	uint8_t state = state_of_several();

	if (env && !strcmp(env, "0"))
		return false;
	return state == SEVERAL_YES ||
	       (state == SEVERAL_OPEN && ((env && !strcmp(env, "1")) || !find_torch()));
}

/* A tool that takes no subscription, like torch.profiler, shows by the kinds that it has on. */
static bool others_record(void)
{
	uint32_t n = 0;

	return use.t.enabled_kinds && !use.t.enabled_kinds(NULL, NULL, NULL, &n) && n;
}

static cupti_result subscribe_v2(bool several)
{
	struct cupti_subscribe p = {
		.size = sizeof(p), .name = NAME, .old_name = use.holder,
		.old_name_sz = sizeof(use.holder) - 1, .allow_several = several,
	};
	cupti_result err;

	memset(use.holder, 0, sizeof(use.holder));
	err = use.t.subscribe_v2(&use.subscriber, on_callback, NULL, &p);
	if (err == CUPTI_ABI_ERR_PARAM && !several) {
		p.size = CUPTI_ABI_SUBSCRIBE_13_0_SZ;
		err = use.t.subscribe_v2(&use.subscriber, on_callback, NULL, &p);
	}
	if (err)
		use.subscriber = NULL;
	return err;
}

/* Who holds it, where this CUPTI would tell. */
static void ask_holder(void)
{
	use.holder[0] = '\0';
	if (!use.t.subscribe_v2 || subscribe_v2(false))
		return;
	/* It let go just now: the next try will do. */
	use_close();
	use.holder[0] = '\0';
}

cupti_result use_open(const struct cupti_api_table *cupti)
{
	cupti_result err;

	use.t = *cupti;
	use.subscriber = NULL;
	use.v2 = false;
	use.holder[0] = '\0';
	if (state_of_several() != SEVERAL_YES && others_record()) {
		memcpy(use.holder, RECORDER, sizeof(RECORDER));
		return CUPTI_ABI_ERR_SUBSCRIBERS;
	}
	use.v2 = wants_v2() && !subscribe_v2(true);
	if (use.v2 || !use.t.subscribe || !use.t.unsubscribe)
		return CUPTI_ABI_OK;
	err = use.t.subscribe(&use.subscriber, on_callback, NULL);
	if (!err)
		return CUPTI_ABI_OK;
	use.subscriber = NULL;
	/* Before 12.0 the answer was another one. */
	if (err == CUPTI_ABI_ERR_LIMIT)
		err = CUPTI_ABI_ERR_SUBSCRIBERS;
	if (err == CUPTI_ABI_ERR_SUBSCRIBERS)
		ask_holder();
	return err;
}

void use_close(void)
{
	if (use.subscriber)
		use.t.unsubscribe(use.subscriber);
	use.subscriber = NULL;
	use.v2 = false;
}

const char *use_holder(void)
{
	return use.holder;
}

bool use_is_v2(void)
{
	return use.v2;
}

void use_options(bool ours)
{
	uint32_t type = CUPTI_ABI_THREAD_ID_SYSTEM;
	size_t sz = sizeof(type), one = 1;
	uint8_t all = 0;

	/* Without it, thread ids are truncated pthread_self() values. Synchronisation records of polls
	 * that found the work unfinished are noise; the first interface gives them by default. */
	if (use.v2) {
		if (!ours)
			return;		/* they end with the subscription */
		use.t.v2_set_attribute(use.subscriber, CUPTI_ABI_ATTR_THREAD_ID_TYPE, &sz, &type);
		use.t.v2_set_attribute(use.subscriber, CUPTI_ABI_ATTR_ALL_SYNC, &one, &all);
		return;
	}
	if (ours)
		use.t.set_thread_id_type(CUPTI_ABI_THREAD_ID_SYSTEM);
	if (use.t.enable_all_sync)
		use.t.enable_all_sync(!ours);
}

cupti_result use_register(void)
{
	if (use.v2)
		return use.t.v2_register_callbacks(use.subscriber, request_v2, complete_v2);
	return use.t.register_callbacks(pool_request, pool_complete);
}

cupti_result use_kind(int kind, bool on)
{
	if (use.v2)
		return on ? use.t.v2_enable(use.subscriber, kind, NULL) :
			    use.t.v2_disable(use.subscriber, kind, NULL);
	return on ? use.t.enable(kind) : use.t.disable(kind);
}

bool use_has_call_filter(void)
{
	return use.v2 || (use.t.enable_runtime_api && use.t.enable_driver_api);
}

void use_call(unsigned int domain, uint32_t cbid, bool on)
{
	/* Numbers that this CUPTI does not know yet are refused, which is fine. */
	if (use.v2 && domain == DL_GPU_RUNTIME)
		use.t.v2_enable_runtime_api(use.subscriber, cbid, on);
	else if (use.v2)
		use.t.v2_enable_driver_api(use.subscriber, cbid, on);
	else if (domain == DL_GPU_RUNTIME)
		use.t.enable_runtime_api(cbid, on);
	else
		use.t.enable_driver_api(cbid, on);
}

cupti_result use_next_record(uint8_t *buf, size_t valid, uint8_t **rec)
{
	if (use.v2)
		return use.t.v2_next_record(use.subscriber, buf, valid, rec);
	return use.t.next_record(buf, valid, rec);
}

cupti_result use_timestamp(uint64_t *ret)
{
	return use.v2 ? use.t.v2_get_timestamp(use.subscriber, ret) : use.t.get_timestamp(ret);
}

cupti_result use_dropped(size_t *ret)
{
	return use.v2 ? use.t.v2_dropped(use.subscriber, NULL, 0, ret) : use.t.dropped(NULL, 0, ret);
}

bool use_kinds_left(const int *kinds, size_t cnt)
{
	uint32_t on[128], sz = sizeof(on), n = 0;

	/* The first interface's kinds are everybody's, and so is the answer. */
	if (use.v2 || !use.t.enabled_kinds || use.t.enabled_kinds(NULL, on, &sz, &n))
		return true;
	if (n > sizeof(on) / sizeof(on[0]))
		return true;
	for (size_t i = 0; i < cnt; i++) {
		bool there = false;

		for (uint32_t k = 0; k < n; k++)
			there |= on[k] == (uint32_t)kinds[i];
		if (!there)
			return false;
	}
	return true;
}

bool use_can_ask_kinds(void)
{
	uint32_t n = 0;

	return !use.v2 && use.t.enabled_kinds && !use.t.enabled_kinds(NULL, NULL, NULL, &n);
}
