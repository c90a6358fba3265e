/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon tells its service manager. notify.c with libsystemd, notify-none.c without; both do
 * nothing when nobody asked (no NOTIFY_SOCKET). Never fails: the daemon serves on all the same.
 */
#ifndef SW_COMMON_NOTIFY_H
#define SW_COMMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Serving from now on; `status` is shown by systemctl status. */
void sw_notify_ready(const char *status);
/* Ending from now on. */
void sw_notify_stopping(const char *reason);
/* One line on what the daemon does at the moment. Control characters are escaped. */
void sw_notify_status(const char *status);
/* I am alive. */
void sw_notify_watchdog(void);
/* How often sw_notify_watchdog must be called at least, in milliseconds: half of what the manager
 * waits; 0 = it does not watch this process. */
uint64_t sw_notify_watchdog_ms(void);

#endif
