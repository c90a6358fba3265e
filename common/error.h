/* SPDX-License-Identifier: Apache-2.0 */
/* Filling struct sw_error. See shardwire/error.h for the rule that every fallible function keeps.
 */
#ifndef SW_COMMON_ERROR_H
#define SW_COMMON_ERROR_H

#include <shardwire/error.h>

/* Sets code and text; `e` may be NULL. Returns `code`, so that `return sw_fail(e, ...)` reads well.
 */
int sw_fail(struct sw_error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like sw_fail, with ": <strerror(err)>" appended. `err` is a positive errno value. */
int sw_fail_errno(struct sw_error *e, int code, int err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "context: " in front of the text that is there. Returns e->code (or `code` if e is NULL). */
int sw_error_context(struct sw_error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
