#ifndef BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_
#define BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// In whose block a sample stands. Servers and shims go by the same rule, so
// that a rank knows what its peers have pulled.
//
//   exchange, off   the reader's
//   direct          the owner's
//   hybrid          the owner's where one server reads for both ranks, else the
//                   reader's: only what must cross between servers is exchanged
//
// A plain value. A mode alone is a rule, too; `hybrid` alone is that of a job
// with one server.
struct DeliveryRule {
  DeliveryRule() = default;
  DeliveryRule(v1::Delivery mode) : mode(mode) {}  // NOLINT: see above

  // The data-parallel rank, of the module whose ranks these are, that pulls the
  // sample. With `server_of_rank`, both are below its length.
  uint32_t PullerOf(uint32_t reader, uint32_t owner) const {
    switch (mode) {
      case v1::DELIVERY_DIRECT:
        return owner;
      case v1::DELIVERY_HYBRID:
        return server_of_rank.empty() ||
                       server_of_rank[reader] == server_of_rank[owner]
                   ? owner
                   : reader;
      default:
        return reader;
    }
  }

  // Whether any sample may stand in another block than its owner's and is to
  // move there. Under `off` readers own what they read.
  bool moves() const {
    return mode == v1::DELIVERY_EXCHANGE ||
           (mode == v1::DELIVERY_HYBRID && !server_of_rank.empty());
  }

  v1::Delivery mode = v1::DELIVERY_EXCHANGE;
  // `hybrid` alone: the number of the server that reads for each data-parallel
  // rank. Empty: one server reads for all.
  std::vector<uint32_t> server_of_rank;
};

// The rule of the job's ranks of `module`. Errors: INVALID_ARGUMENT (the job
// says no delivery, has no such module, or names the servers of another number
// of ranks than the module has).
absl::StatusOr<DeliveryRule> RuleOf(const v1::Job& job, v1::Module module);

// The rule of `role`: `direct` if it asks for that, else its module's. Errors:
// INVALID_ARGUMENT (it asks for another delivery; as above).
absl::StatusOr<DeliveryRule> RuleOf(const v1::Job& job, const v1::Role& role);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_DELIVERY_RULE_H_
