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

// Blocks through LoaderService.Pull: in the server's shared memory where
// request.accept_shared_memory allows it and `arenas`, shared by the fetchers
// of one server, can map it; otherwise in chunks. The server is granted
// request.max_bytes at the start and each block's bytes again when the block is
// destroyed. Messages are read only inside Fetch, so that beside the blocks at
// most gRPC's flow-control window is held. Chunks are assembled in one region
// of `pools`, whose places are used again. Blocks may outlive the fetcher:
// while one in shared memory does, its RPC stays open; the last of them, and
// the fetcher, must not be destroyed on one of gRPC's threads. In addition to
// BatchFetcher's errors, Fetch returns INTERNAL for a server that overdraws its
// credit or breaks the protocol otherwise; errors name `address`.
//
// `channels`: those of the Pull and its further lanes, over which chunks come
// in turn; at least one, each its own connection.
std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    std::vector<std::shared_ptr<grpc::Channel>> channels,
    const FetchRequest& request, const std::string& address,
    std::shared_ptr<ArenaCache> arenas, BufferPools* pools);

}  // namespace ballast

#endif  // BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
