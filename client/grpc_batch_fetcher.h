#ifndef BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
#define BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_

#include <memory>
#include <string>

#include "client/batch_fetcher.h"
#include "proto/loader_service.grpc.pb.h"

namespace ballast {

// Blocks through LoaderService.Pull. The server is granted request.max_bytes at
// the start and each block's bytes again when it is destroyed. Messages are
// read only inside Fetch, so that beside the blocks no more is held than gRPC's
// flow-control window. Blocks lie in buffers that are used again; they may
// outlive the fetcher. Beyond what BatchFetcher says, Fetch gives INTERNAL for
// a server that overdraws its credit or breaks the protocol otherwise; errors
// name `address`.
std::unique_ptr<BatchFetcher> MakeGrpcBatchFetcher(
    v1::LoaderService::Stub* stub, const FetchRequest& request,
    const std::string& address);

}  // namespace ballast

#endif  // BALLAST_CLIENT_GRPC_BATCH_FETCHER_H_
