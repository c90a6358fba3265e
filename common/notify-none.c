/* SPDX-License-Identifier: Apache-2.0 */
/* For builds without libsystemd: there is no manager to tell. */
#include "common/notify.h"

void sw_notify_ready(const char *status)
{
}

void sw_notify_stopping(const char *reason)
{
}

void sw_notify_status(const char *status)
{
}

void sw_notify_watchdog(void)
{
}

uint64_t sw_notify_watchdog_ms(void)
{
    return 0;
}
