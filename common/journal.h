/* SPDX-License-Identifier: Apache-2.0 */
/* Native journal entries. journal.c with libsystemd, journal-none.c without. Used by log.c. */
#ifndef SW_COMMON_JOURNAL_H
#define SW_COMMON_JOURNAL_H

#include "common/log.h"

/* Whether native entries can be sent: by this build, and from where this process runs. */
bool sw_journal_available(void);

/* False when the entry could not be handed over; the caller writes it elsewhere then. */
bool sw_journal_send(const char *program, int priority, const char *text,
    const struct sw_log_field *fields, size_t n);

#endif
