/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers alone, as a strict C99 program sees them. Each one first, and then again. */
#include <shardwire/trainer.h>
#include <shardwire/engine.h>
#include <shardwire/error.h>
#include <shardwire/dtype.h>
#include <shardwire/api.h>
#include <shardwire/engine.h>
#include <shardwire/trainer.h>
#include <string.h>

int main(void)
{
    struct sw_trainer_options trainer = {sizeof(trainer), "/nonexistent/t", NULL, 0, 0, 0, 1};
    struct sw_engine_options engine = {sizeof(engine)};
    struct sw_error e;
    sw_trainer *t = NULL;
    sw_engine *en = NULL;

    engine.socket = "/nonexistent/e";
    engine.engine = "A";
    if (strcmp(sw_version_string(), EXPECTED) != 0)
        return 1;
    if (sw_trainer_open(&trainer, &t, &e) != SW_ERR_CLOSED || e.code != SW_ERR_CLOSED || t)
        return 2;
    if (sw_engine_open(&engine, &en, NULL) != SW_ERR_CLOSED || en)
        return 3;
    if (strcmp(sw_code_name(SW_ERR_CLOSED), "closed") != 0 || sw_dtype_bits(SW_BF16) != 16)
        return 4;
    return 0;
}
