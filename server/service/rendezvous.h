#ifndef BALLAST_SERVER_SERVICE_RENDEZVOUS_H_
#define BALLAST_SERVER_SERVICE_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// Hands what rank 0 of a group gives to all its ranks, in whichever order they
// come (proto/loader_service.proto). A group is forgotten when each of its
// ranks has been answered, or when none is left waiting before rank 0 has come.
//
// Bounded: kMaxGroups groups (one that rank 0 has come to and nobody waits in
// makes room for a new one) and kMaxWaiters members that wait. Thread-safe.
class Rendezvous {
 public:
  static constexpr size_t kMaxGroups = 1024;
  static constexpr size_t kMaxWaiters = size_t{1} << 18;
  static constexpr uint32_t kMaxSize = 1u << 20;
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMaxIdBytes = 4096;

  // Called once, with no lock held, from any thread, with rank 0's id. Errors
  // beside those of the RPC: ABORTED (the same rank came again while this one
  // waited), UNAVAILABLE (Drain).
  using Answer = std::function<void(absl::StatusOr<std::string> id)>;

  // Brings a member to its group. `answer` may run before this returns. Returns
  // a ticket for Leave.
  uint64_t Join(const v1::RendezvousRequest& request, Answer answer);

  // The member has gone. True: its answer will not run. False: it has been
  // answered, or is just being.
  bool Leave(uint64_t ticket);

  // Answers all who wait, and all who come, with UNAVAILABLE.
  void Drain();

 private:
  struct Waiter {
    uint64_t ticket;
    Answer answer;
  };
  struct Group {
    uint32_t size = 0;
    std::string id;                      // empty before rank 0 has come
    std::map<uint32_t, Waiter> waiting;  // by rank
    std::set<uint32_t> answered;
    std::list<std::string>::iterator age;
  };
  struct Reply {
    Answer answer;
    absl::StatusOr<std::string> id;
  };
  using Replies = std::vector<Reply>;

  // The errors of Join, before it changes anything.
  absl::Status Check(const v1::RendezvousRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The request's group, new if need be; null when there are too many.
  Group* FindOrAdd(const v1::RendezvousRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(mutex_);
  // Names of the groups; the one used longest ago first.
  std::list<std::string> ages_ ABSL_GUARDED_BY(mutex_);
  // The group and rank of every member that waits.
  std::map<uint64_t, std::pair<std::string, uint32_t>> tickets_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_RENDEZVOUS_H_
