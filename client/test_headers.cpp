// SPDX-License-Identifier: Apache-2.0
// The public headers as C++ sees them.
#include <shardwire/engine.h>
#include <shardwire/trainer.h>

int main()
{
    sw_trainer_options options = sw_trainer_options();
    sw_error error;
    sw_trainer *trainer = nullptr;

    options.size = sizeof(options);
    options.socket = "/nonexistent/socket";
    sw_engine_close(nullptr);
    sw_trainer_close(nullptr);
    return sw_trainer_open(&options, &trainer, &error) == SW_ERR_CLOSED ? 0 : 1;
}
