#ifndef BALLAST_SERVER_SERVE_SERVICE_RENDEZVOUS_H_
#define BALLAST_SERVER_SERVE_SERVICE_RENDEZVOUS_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/channel_security.h"
#include "common/mutex.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/loader_service.pb.h"
#include "server/serve/pull/pull_limits.h"

namespace ballast {

// Forwards Rendezvous calls to the server where all groups of the job meet, so
// that the ranks of a group meet whichever servers they call. Thread-safe. Must
// outlive the gRPC server.
class RendezvousForwarder {
 public:
  // `address` is the server where groups meet. `fingerprint` is the hash of
  // this server's fingerprint, which the other server compares with its own.
  // `calls` counts the open calls; it is not owned and must outlive this.
  RendezvousForwarder(std::string address, PeerSecurity security,
                      std::string fingerprint, CallCount* calls);
  ~RendezvousForwarder();

  // Never returns null. The call ends with the other server's answer, at its
  // own deadline, or when the client leaves; or with UNAVAILABLE, naming the
  // address, if the other server cannot be reached.
  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context,
                                 const v1::RendezvousRequest& request,
                                 v1::RendezvousResponse* response);

  // Ends all calls, present and future, with UNAVAILABLE. Does not wait.
  void Drain();

 private:
  class Call;

  absl::Status Annotated(const grpc::Status& status) const;
  void Forget(Call* call);
  // Connects anew once this server's certificate is another.
  absl::StatusOr<std::shared_ptr<v1::LoaderService::Stub>> GetStub()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string address_;
  const PeerSecurity security_;
  const std::string fingerprint_;
  CallCount* const calls_;
  mutable Mutex mutex_;
  std::shared_ptr<v1::LoaderService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
  std::string cert_ ABSL_GUARDED_BY(mutex_);  // of stub_'s connection
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Call*> open_ ABSL_GUARDED_BY(mutex_);
};

// Passes the data that rank 0 of a group gives to all ranks of the group, in
// whatever order they arrive (proto/loader_service.proto).
//
// A group meets when all its ranks wait at the same time; all are then answered
// together. A rank that leaves earlier takes no part, so a start of the job
// that was aborted leaves no state. Groups with the same name and different
// runs are different groups.
//
// Bounds: kMaxGroups groups and kMaxWaiters waiting ranks; the last kMaxMet
// rendezvous, of kMaxMetMembers ranks in all, are kept for ranks whose answer
// was lost. Thread-safe.
class Rendezvous {
 public:
  static constexpr size_t kMaxGroups = 1024;
  static constexpr size_t kMaxWaiters = size_t{1} << 18;
  static constexpr size_t kMaxMet = 1024;
  static constexpr size_t kMaxMetMembers = size_t{1} << 18;
  static constexpr uint32_t kMaxSize = 1u << 20;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMaxIdBytes = 4096;
  static constexpr size_t kMaxMemberBytes = 64;
  static constexpr int kMaxMissing = 16;

  // Called once, with no lock held, from any thread. Errors in addition to the
  // RPC's: ABORTED (the same rank came again while this one waited),
  // UNAVAILABLE (Drain).
  using Answer = std::function<void(absl::StatusOr<v1::RendezvousResponse>)>;

  // Brings a rank to its group. `answer` may run before this returns. Returns a
  // ticket for Leave.
  uint64_t Join(const v1::RendezvousRequest& request, Answer answer);

  // Which ranks of the request's group and run wait, and which do not
  // (RendezvousRequest.asks). At most kMaxMissing are named.
  v1::RendezvousResponse WhoWaits(const v1::RendezvousRequest& request) const;

  // Records that the rank has gone. Returns true if its answer will not run,
  // false if it has been answered or is being answered.
  bool Leave(uint64_t ticket);

  // Answers all waiting and all later ranks with UNAVAILABLE.
  void Drain();

 private:
  using Key = std::pair<std::string, std::string>;  // group, run
  struct Waiter {
    uint64_t ticket = 0;
    std::string member;
    std::string id;  // from rank 0
    Answer answer;
  };
  struct Group {
    uint32_t size = 0;
    std::map<uint32_t, Waiter> waiting;  // by rank
  };
  struct Met {
    Key key;
    v1::RendezvousResponse response;
    std::vector<std::string> members;  // by rank
  };
  struct Reply {
    Answer answer;
    absl::StatusOr<v1::RendezvousResponse> response;
  };
  using Replies = std::vector<Reply>;

  // Returns Join's errors, before it changes anything.
  absl::Status Check(const v1::RendezvousRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The answer already given to this member; null if not answered.
  const v1::RendezvousResponse* FindAnswered(
      const v1::RendezvousRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when all ranks of the group wait: answers them and forgets the
  // group.
  void Meet(const Key& key, Replies* replies)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(Met met) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(std::list<Met>::iterator met)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<Key, Group> groups_ ABSL_GUARDED_BY(mutex_);  // each has waiters
  // The group and rank of every waiting ticket.
  std::map<uint64_t, std::pair<Key, uint32_t>> tickets_ ABSL_GUARDED_BY(mutex_);
  std::list<Met> met_ ABSL_GUARDED_BY(mutex_);  // oldest first, one a key
  std::map<Key, std::list<Met>::iterator> met_by_key_ ABSL_GUARDED_BY(mutex_);
  size_t met_members_ ABSL_GUARDED_BY(mutex_) = 0;  // members of met_, in all
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_RENDEZVOUS_H_
