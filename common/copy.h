/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcpy for memory that is not read soon by who writes it: large copies go past the caches, which
 * spares reading each line of the target first and leaves the caches to the program.
 */
#ifndef SW_COMMON_COPY_H
#define SW_COMMON_COPY_H

#include <stddef.h>

/* As memcpy. What was copied is visible to whoever sees a later release store of this thread. */
void sw_copy(void *dst, const void *src, size_t n);

#endif
