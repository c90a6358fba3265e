/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sw_msg <-> bytes (protobuf, proto/shardwire.proto). The only module that sees generated
 * protobuf types. Pure. Decoding checks, before it copies: known kind and enum values, counts and
 * string lengths against limits.h, box and shape ranks, part ranges (first + n <= total), no NUL in
 * a string, valid UTF-8; protobuf-c runs under an allocator with a budget (SW_DECODE_*).
 */
#ifndef SW_COMMON_CODEC_H
#define SW_COMMON_CODEC_H

#include <stddef.h>
#include <stdint.h>
#include <shardwire/error.h>
#include "common/message.h"

/* Encodes into a malloc'ed buffer (the caller frees). SW_ERR_LIMIT when over SW_FRAME_MAX. */
int sw_codec_encode(const struct sw_msg *msg, uint8_t **bytes, size_t *length, struct sw_error *e);

/* Decodes; the caller owns *msg. The message has no descriptors yet: the connection adds them. */
int sw_codec_decode(const uint8_t *bytes, size_t length, struct sw_msg **msg, struct sw_error *e);

#endif
