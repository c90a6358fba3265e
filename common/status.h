/* SPDX-License-Identifier: Apache-2.0 */
/* Status as JSON over a control connection: STATUS in, STATUS_TEXT parts out. Daemons only. */
#ifndef SW_COMMON_STATUS_H
#define SW_COMMON_STATUS_H

#include <jansson.h>
#include "common/conn.h"

/* {"sent": .., "received": ..} */
json_t *sw_status_traffic(const struct sw_traffic *t);

/* Sends the document (the reference is taken; NULL = out of memory, said so) as the answer to
 * `request`. */
void sw_status_send(struct sw_conn *c, uint64_t request, json_t *document);

#endif
