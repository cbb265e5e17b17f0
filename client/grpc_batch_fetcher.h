#ifndef BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
#define BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_

#include <memory>
#include <string>

#include "client/batch_fetcher.h"
#include "client/buffer_pool.h"
#include "client/pull_channel.h"

namespace ballast {

// Fetches blocks through LoaderService.Pull. Blocks are in the server's shared
// memory if request.accept_shared_memory allows it and `arenas`, shared by the
// fetchers of one server, can map it; otherwise they come in chunks, which are
// assembled in one region of `pools`. The server is granted request.max_bytes
// at the start, and each block's bytes again when the block is destroyed.
// Messages are read only inside Fetch, so that in addition to the blocks at
// most gRPC's flow-control window is held. Blocks may outlive the fetcher:
// while a block in shared memory does, its RPC stays open. Neither the last
// block nor the fetcher must be destroyed on one of gRPC's threads. Fetch also
// returns INTERNAL for a server that overdraws its credit or otherwise breaks
// the protocol; errors name `address`.
//
// `channel`: the connections of the Pull and its further lanes, which carry
// chunks in turn.
std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    std::shared_ptr<PullChannel> channel, const FetchRequest& request,
    const std::string& address, std::shared_ptr<ArenaCache> arenas,
    BufferPools* pools);

}  // namespace ballast

#endif  // BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
