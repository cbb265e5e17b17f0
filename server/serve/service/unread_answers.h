#ifndef BALLAST_SERVER_SERVE_SERVICE_UNREAD_ANSWERS_H_
#define BALLAST_SERVER_SERVE_SERVICE_UNREAD_ANSWERS_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/grpc_status.h"
#include "common/mutex.h"

namespace ballast {

// Bounds the large answers that gRPC holds until their clients have read them.
// Thread-safe.
class UnreadAnswers {
 public:
  struct Bounds {
    uint64_t bytes = uint64_t{192} << 20;
    uint64_t bytes_a_client = uint64_t{64} << 20;
  };

  UnreadAnswers() : UnreadAnswers(Bounds()) {}
  explicit UnreadAnswers(Bounds bounds) : bounds_(bounds) {}

  // The name under which the caller of `context` is counted: an IP address, or
  // a process at a Unix socket.
  static std::string ClientOf(const grpc::CallbackServerContext& context);

  // Room for an answer of `bytes`, with what it takes while it is sent. It is
  // free again once the result is destroyed, which may be after this. A client
  // that has no other gets room for one of any size. Errors:
  // RESOURCE_EXHAUSTED, with the bound.
  absl::StatusOr<std::shared_ptr<void>> Take(const std::string& client,
                                             uint64_t bytes);

 private:
  struct Counts {
    Mutex mutex;
    uint64_t bytes ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, uint64_t> by_client ABSL_GUARDED_BY(mutex);
  };

  const Bounds bounds_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// A call with one answer, which holds its room until the client has read it.
class RoomyReactor final : public grpc::ServerUnaryReactor {
 public:
  // Ends the call; once.
  void End(std::shared_ptr<void> room, const grpc::Status& status) {
    room_ = std::move(room);
    Finish(status);
  }
  // Ends it with its answer, or with the reason why there is no room.
  void EndWith(absl::StatusOr<std::shared_ptr<void>> room) {
    const grpc::Status status = ToGrpcStatus(room.status());
    End(room.ok() ? *std::move(room) : nullptr, status);
  }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<void> room_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_UNREAD_ANSWERS_H_
