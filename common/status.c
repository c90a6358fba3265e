/* SPDX-License-Identifier: Apache-2.0 */
#include "common/status.h"

#include <stdlib.h>
#include <string.h>

#define PART_BYTES (256u << 10)

/* The end of a part: not in the middle of a UTF-8 sequence, since each part must decode by itself.
 */
static size_t part_end(const char *text, size_t at, size_t length)
{
    size_t end = length - at > PART_BYTES ? at + PART_BYTES : length;

    while (end < length && end > at + 1 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    return end;
}

json_t *sw_status_traffic(const struct sw_traffic *t)
{
    return json_pack(
        "{s:I, s:I}", "sent", (json_int_t)t->sent, "received", (json_int_t)t->received);
}

void sw_status_send(struct sw_conn *c, uint64_t request, json_t *document)
{
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    const char *from = text ? text : "{\"error\":\"the daemon is out of memory\"}";
    size_t length = strlen(from), at = 0;

    json_decref(document);
    do {
        size_t end = part_end(from, at, length);
        struct sw_msg *m = sw_msg_new(SW_MSG_STATUS_TEXT);

        if (!m) {
            sw_conn_close(c, "out of memory");
            break;
        }
        m->u.status_text.request = request;
        m->u.status_text.last = end == length;
        m->u.status_text.text = sw_arena_strndup(&m->arena, from + at, end - at);
        if (!m->u.status_text.text) { /* or a part would be missing in the middle */
            sw_msg_free(m);
            sw_conn_close(c, "out of memory");
            break;
        }
        sw_conn_send(c, m);
        at = end;
    } while (at < length);
    free(text);
}
