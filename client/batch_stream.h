#ifndef BALLAST_CLIENT_BATCH_STREAM_H_
#define BALLAST_CLIENT_BATCH_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "client/batch_fetcher.h"
#include "proto/job.pb.h"

namespace ballast {

// A role's blocks, in order, fetched ahead of demand by a thread of its own and
// resumed at the next block when the fetcher fails with UNAVAILABLE.
// Thread-safe; Next is meant for one consumer.
class BatchStream {
 public:
  // Makes a fetcher that begins where `request` says; called again, with the
  // position moved on, after a failure.
  using Connect =
      std::function<absl::StatusOr<std::unique_ptr<BatchFetcher>>(
          const FetchRequest& request)>;

  struct Options {
    FetchRequest request;
    // Attempts in a row without a block between them, then the error stands.
    int max_attempts = 5;
  };

  static absl::StatusOr<std::unique_ptr<BatchStream>> Create(Connect connect,
                                                             Options options);
  virtual ~BatchStream() = default;  // cancels, then joins

  // Blocks until the next block is there. At most request.max_bytes of blocks
  // (or one block) are held at a time, counting those that the caller has not
  // destroyed. Errors as BatchFetcher::Fetch; an error is final and repeated at
  // every further call.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() = 0;

  // Ends a Next that is blocking, and every later one, with CANCELLED.
  virtual void Cancel() = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_STREAM_H_
