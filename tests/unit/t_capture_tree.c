/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Looks at processes that are due later, where very many are born and die. */
#include <sys/prctl.h>
#include <sys/wait.h>

#include "capture/tree.h"
#include "unit/test.h"

enum { LOOKS = 1 << 14, EACH = 4 };	/* as many as the queue holds */

static struct dl_tree tree;

/* Short lives fill the queue; a process that lives gets its look all the same. */
TEST(the_dead_make_room_for_the_living)
{
	struct dl_look look;
	pid_t pid = fork();
	uint64_t now = 0;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	CHECK(dl_tree_add(&tree, (uint32_t)getpid(), 1));
	dl_tree_look_later(&tree, (uint32_t)getpid(), 0, ++now);
	for (int i = 0; i < LOOKS / EACH - 1; i++) {
		CHECK(dl_tree_add(&tree, (uint32_t)pid, (uint32_t)getpid()));
		for (int j = 0; j < EACH; j++)
			dl_tree_look_later(&tree, (uint32_t)pid, 0, ++now);
		dl_tree_remove(&tree, (uint32_t)pid);
	}
	for (int i = 1; i < EACH; i++)
		dl_tree_look_later(&tree, (uint32_t)getpid(), 0, ++now);
	CHECK_EQ(tree.not_followed, 0);	/* full now */
	dl_tree_look_later(&tree, (uint32_t)getpid(), 77, ++now);
	CHECK_EQ(tree.not_followed, 0);
	/* the one that was asked for first comes first, in both queues; the last one is among them */
	CHECK(dl_tree_next_look(&tree, UINT64_MAX, &look));
	CHECK_EQ(look.pid, getpid());
	CHECK_EQ(look.tid, 0);
	for (int last = 0; last < 2;) {
		CHECK(dl_tree_next_look(&tree, UINT64_MAX, &look));
		last += look.tid == 77;
	}
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	dl_tree_fini(&tree);
}

/* Of the living none is forgotten: those that there is no room for are counted. */
TEST(what_does_not_fit_is_counted)
{
	tree = (struct dl_tree){};
	CHECK(dl_tree_add(&tree, (uint32_t)getpid(), 1));
	for (int i = 0; i < LOOKS + 5; i++)
		dl_tree_look_later(&tree, (uint32_t)getpid(), 0, (uint64_t)i);
	CHECK_EQ(tree.not_followed, 2 * 5);
	dl_tree_fini(&tree);
}
