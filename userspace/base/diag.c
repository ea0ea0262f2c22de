/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int dl_fail(struct dl_diag *d, int err, const char *fmt, ...)
{
	va_list ap;

	if (d) {
		va_start(ap, fmt);
		vsnprintf(d->msg, sizeof(d->msg), fmt, ap);
		va_end(ap);
	}
	return err;
}

int dl_fail_errno(struct dl_diag *d, int err, const char *fmt, ...)
{
	va_list ap;
	size_t len;

	if (d) {
		va_start(ap, fmt);
		vsnprintf(d->msg, sizeof(d->msg), fmt, ap);
		va_end(ap);
		len = strlen(d->msg);
		snprintf(d->msg + len, sizeof(d->msg) - len, ": %s", strerror(-err));
	}
	return err;
}

int dl_oom(struct dl_diag *d)
{
	return dl_fail(d, -ENOMEM, "out of memory");
}
