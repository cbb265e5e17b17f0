#ifndef BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_
#define BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// For each data-parallel rank of one module, the number in topology.servers of
// the server that reads for it. Empty: one server reads for all ranks.
using ServerOfRank = std::vector<uint32_t>;

// Returns whether one server reads for ranks `a` and `b`. With more than one
// server both are below the length of `servers`.
inline bool ShareServer(const ServerOfRank& servers, uint32_t a, uint32_t b) {
  return servers.empty() || servers[a] == servers[b];
}

// Decides whose block holds a sample. Servers and shims use the same rule, so
// that a rank knows which samples its peers have pulled.
//
//   exchange, off   the reader's
//   direct          the owner's
//   hybrid          the owner's if one server reads for both ranks, else the
//                   reader's: only samples that must cross servers are
//                   exchanged
//
// A plain value. A mode converts to a rule; a bare `hybrid` is the rule of a
// job with one server.
struct DeliveryRule {
  DeliveryRule() = default;
  DeliveryRule(v1::Delivery mode) : mode(mode) {}  // NOLINT: see above

  // The data-parallel rank that pulls the sample; all ranks are of the same
  // module. With `server_of_rank`, both arguments are below its length.
  uint32_t GetPuller(uint32_t reader, uint32_t owner) const {
    switch (mode) {
      case v1::DELIVERY_DIRECT:
        return owner;
      case v1::DELIVERY_HYBRID:
        return ShareServer(server_of_rank, reader, owner) ? owner : reader;
      default:
        return reader;
    }
  }

  // Returns whether a sample may be in another block than its owner's, so that
  // it must be exchanged. Under `off` readers own what they read.
  bool moves() const {
    return mode == v1::DELIVERY_EXCHANGE ||
           (mode == v1::DELIVERY_HYBRID && !server_of_rank.empty());
  }

  v1::Delivery mode = v1::DELIVERY_EXCHANGE;
  // Only used by `hybrid`.
  ServerOfRank server_of_rank;
};

// The rule for the job's ranks of `module`. Errors: INVALID_ARGUMENT (the job
// has no delivery or no such module, or the number of ranks in its list of
// servers differs from the module's).
absl::StatusOr<DeliveryRule> GetRule(const v1::Job& job, v1::Module module);

// The rule of `role`: `direct` if the role requests that, else its module's.
// Errors: INVALID_ARGUMENT (it requests another delivery; as above).
absl::StatusOr<DeliveryRule> GetRule(const v1::Job& job, const v1::Role& role);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_
