/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Mounts, from the text of /proc/PID/mountinfo, and what kinds of file systems there are. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "check/gather.h"

/* A field, with space, tab, newline and backslash written as octal escapes. */
static void take(char *to, size_t sz, const char *from, size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < len && at + 1 < sz; i++) {
		if (from[i] == '\\' && i + 3 < len) {
			to[at++] = (char)((from[i + 1] - '0') << 6 | (from[i + 2] - '0') << 3 | (from[i + 3] - '0'));
			i += 3;
		} else {
			to[at++] = from[i];
		}
	}
	to[at] = '\0';
}

/* "36 35 98:0 /root /dir rw,noatime master:1 - type source superoptions" */
static bool parse(const char *line, size_t len, struct ck_mount *ret)
{
	enum { ID, DIR_FIELD = 4, BEHIND = 6 };
	struct ck_mount m = {};
	int field = 0, after = -1;

	for (const char *p = line; p < line + len;) {
		const char *space = memchr(p, ' ', (size_t)(line + len - p));
		const size_t n = space ? (size_t)(space - p) : (size_t)(line + len - p);

		if (field == ID)
			m.id = strtoull(p, NULL, 10);
		else if (field == DIR_FIELD)
			take(m.dir, sizeof(m.dir), p, n);
		if (after == 0)
			take(m.fs, sizeof(m.fs), p, n);
		else if (after == 1)
			take(m.source, sizeof(m.source), p, n);
		else if (after == 2)
			take(m.options, sizeof(m.options), p, n);
		if (after >= 0)
			after++;
		else if (field >= BEHIND && n == 1 && *p == '-')
			after = 0;
		field++;
		p += n + 1;
	}
	*ret = m;
	return after >= 2;
}

static bool is_below(const char *path, const char *dir)
{
	const size_t len = strcmp(dir, "/") ? strlen(dir) : 0;

	return !strncmp(path, dir, len) && (!path[len] || path[len] == '/');
}

bool ck_mount_find(const char *mountinfo, uint64_t id, const char *path, struct ck_mount *ret)
{
	bool found = false;
	size_t best = 0;

	for (const char *line = mountinfo; *line;) {
		const size_t len = strcspn(line, "\n");
		struct ck_mount m;

		if (parse(line, len, &m)) {
			if (!id && !path) {
				*ret = m;
				return true;
			}
			if (id && m.id == id) {
				*ret = m;
				return true;
			}
			/* Of mounts on one directory, the last is on top. */
			if (!id && is_below(path, m.dir) && (!found || strlen(m.dir) >= best)) {
				*ret = m;
				best = strlen(m.dir);
				found = true;
			}
		}
		line += len + (line[len] == '\n');
	}
	return found;
}

enum dl_ck_fs_class ck_fs_class(const char *type)
{
	static const struct {
		const char *prefix;
		enum dl_ck_fs_class class;
	} classes[] = {
		{ "nfs", DL_CK_FS_NETWORK }, { "cifs", DL_CK_FS_NETWORK }, { "smb", DL_CK_FS_NETWORK },
		{ "ceph", DL_CK_FS_NETWORK }, { "lustre", DL_CK_FS_NETWORK }, { "beegfs", DL_CK_FS_NETWORK },
		{ "gpfs", DL_CK_FS_NETWORK }, { "glusterfs", DL_CK_FS_NETWORK }, { "afs", DL_CK_FS_NETWORK },
		{ "9p", DL_CK_FS_NETWORK }, { "virtiofs", DL_CK_FS_NETWORK }, { "wekafs", DL_CK_FS_NETWORK },
		{ "orangefs", DL_CK_FS_NETWORK }, { "ocfs2", DL_CK_FS_NETWORK }, { "fuseblk", DL_CK_FS_FUSE },
		{ "fuse", DL_CK_FS_FUSE }, { "overlay", DL_CK_FS_OVERLAY }, { "aufs", DL_CK_FS_OVERLAY },
		{ "tmpfs", DL_CK_FS_MEMORY }, { "ramfs", DL_CK_FS_MEMORY }, { "hugetlbfs", DL_CK_FS_MEMORY },
		{ "ext", DL_CK_FS_LOCAL }, { "xfs", DL_CK_FS_LOCAL }, { "btrfs", DL_CK_FS_LOCAL },
		{ "zfs", DL_CK_FS_LOCAL }, { "f2fs", DL_CK_FS_LOCAL }, { "bcachefs", DL_CK_FS_LOCAL },
		{ "vfat", DL_CK_FS_LOCAL }, { "exfat", DL_CK_FS_LOCAL }, { "ntfs", DL_CK_FS_LOCAL },
		{ "squashfs", DL_CK_FS_LOCAL }, { "erofs", DL_CK_FS_LOCAL }, { "iso9660", DL_CK_FS_LOCAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (!strncmp(type, classes[i].prefix, strlen(classes[i].prefix)))
			return classes[i].class;
	return DL_CK_FS_UNKNOWN;
}
