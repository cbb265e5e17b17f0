#ifndef BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
#define BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "client/arena_mapping.h"
#include "client/batch_fetcher.h"
#include "client/buffer_pool.h"

namespace ballast {

// Blocks through LoaderService.Pull: in the server's shared memory where that
// can be mapped (and request.accept_shared_memory), else in chunks, which is
// what `arenas`, shared by the fetchers of one server, finds out and logs. The
// server is granted request.max_bytes at the start and each block's bytes again
// when it is destroyed. Messages are read only inside Fetch, so that beside the
// blocks no more is held than gRPC's flow-control window. Blocks that came in
// chunks lie in one region, from `pools`, whose places are used again. Blocks
// may outlive the fetcher: while one in shared memory does, its RPC stays open;
// the last of them, and the fetcher, must not be destroyed on one of gRPC's
// threads. Beyond what BatchFetcher says, Fetch gives INTERNAL for a server
// that overdraws its credit or breaks the protocol otherwise; errors name
// `address`.
//
// `channels`: the Pull's and those of its further lanes, over which chunks come
// in turn; at least one, and each a connection of its own.
std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    std::vector<std::shared_ptr<grpc::Channel>> channels,
    const FetchRequest& request, const std::string& address,
    std::shared_ptr<ArenaCache> arenas, BufferPools* pools);

}  // namespace ballast

#endif  // BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
