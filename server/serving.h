// A server's life in a process: serve, until a signal or the device ends it.

#ifndef SERVER_SERVING_H_
#define SERVER_SERVING_H_

#include "server/device.h"
#include "server/server_config.h"

namespace flash {

// Leaves SIGTERM and SIGINT to ServeUntilStopped(). Call before there are other
// threads, which would be ended by them.
void HoldStopSignals();

// Serves until SIGTERM or SIGINT, drains, and returns the exit code: 0 when it
// was told to stop, 1 when it could not begin or the device failed. Says why on
// stderr. A second signal ends the process at once. Call once, after
// HoldStopSignals().
int ServeUntilStopped(const ServerConfig& config, Device device);

}  // namespace flash

#endif  // SERVER_SERVING_H_
