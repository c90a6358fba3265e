/* SPDX-License-Identifier: Apache-2.0 */
/* What libshardwire exports; everything else in it is hidden. */
#ifndef SHARDWIRE_API_H
#define SHARDWIRE_API_H

#if defined(__GNUC__)
#define SW_API __attribute__((visibility("default")))
#else
#define SW_API
#endif

#endif
