/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on a byte stream: 'S' 'W', a format byte (1), the number of descriptors that came with the
 * frame, the payload's length (u32, big-endian), the payload (protobuf, shardwire.v1.Frame). Pure:
 * bytes in, frames out.
 */
#ifndef SW_COMMON_FRAME_H
#define SW_COMMON_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shardwire/error.h>

#define SW_FRAME_HEADER 8

/* Writes the header of a frame. `length` <= SW_FRAME_MAX, n_fds <= SW_FRAME_FDS_MAX. */
void sw_frame_header(uint8_t out[SW_FRAME_HEADER], uint32_t length, uint32_t n_fds);

/* Reads a header. SW_ERR_PROTOCOL for a wrong magic or format byte (the message guesses what spoke:
 * HTTP, TLS), SW_ERR_LIMIT for a length or a descriptor count over the limit. */
int sw_frame_parse(
    const uint8_t header[SW_FRAME_HEADER], uint32_t *length, uint32_t *n_fds, struct sw_error *e);

/* A splitter holds one unfinished frame; memory is taken only after the header was checked. */
struct sw_splitter;
struct sw_splitter *sw_splitter_new(void);
void sw_splitter_free(struct sw_splitter *s);

/* Takes bytes; *used tells how many (a call stops after a whole frame). When a frame is complete,
 * *payload, *length and *n_fds are set, valid until the next call; otherwise *payload is NULL. */
int sw_splitter_feed(struct sw_splitter *s, const uint8_t *bytes, size_t n, size_t *used,
    const uint8_t **payload, uint32_t *length, uint32_t *n_fds, struct sw_error *e);

/* True in the middle of a frame (an end of stream here is a truncated frame). */
bool sw_splitter_partial(const struct sw_splitter *s);

#endif
