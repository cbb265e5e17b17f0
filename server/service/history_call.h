#ifndef BALLAST_SERVER_SERVICE_HISTORY_CALL_H_
#define BALLAST_SERVER_SERVICE_HISTORY_CALL_H_

#include "common/channel_security.h"
#include "server/service/compared_servers.h"

namespace ballast {

// Calls MetricsService.GetHistory over gRPC, secured by `security`, on a
// connection of its own. Blocks for at most two seconds and takes at most 1
// MiB. Errors: as the call, with advice where a server does not know it or
// refuses the credentials; as ChannelCredentialsFor. For any number of threads.
ComparedServers::Call GrpcHistoryCall(ChannelSecurity security);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_HISTORY_CALL_H_
