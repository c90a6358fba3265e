/* SPDX-License-Identifier: Apache-2.0 */
/* For builds without libsystemd: stderr's "<N>" lines reach the journal too, without fields. */
#include "common/journal.h"

bool sw_journal_available(void)
{
    return false;
}

bool sw_journal_send(const char *program, int priority, const char *text,
    const struct sw_log_field *fields, size_t n)
{
    return false;
}
