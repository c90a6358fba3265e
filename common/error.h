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

/* The analyzer sees one file at a time: tell it that these return the code that they are given, so
 * that it does not follow a failure as a success. */
#if defined(__clang_analyzer__) && !defined(SW_ERROR_IMPLEMENTATION)
#define sw_fail(e, code, ...) ((void)sw_fail(e, code, __VA_ARGS__), (code))
#define sw_fail_errno(e, code, ...) ((void)sw_fail_errno(e, code, __VA_ARGS__), (code))
#define sw_error_context(e, code, ...) ((void)sw_error_context(e, code, __VA_ARGS__), (code))
#endif

#endif
