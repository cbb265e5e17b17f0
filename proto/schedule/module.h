#ifndef BALLAST_PROTO_SCHEDULE_MODULE_H_
#define BALLAST_PROTO_SCHEDULE_MODULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The modules of a model are a list: encoders, each for one kind of media, and
// the language model, which trains on the text of every sample. Messages and
// block headers hold a module's number (v1::Module); everything else about it
// follows from its row in ModuleKinds(). Code asks for the kind of media that a
// module takes, or walks the list, and never compares names.

// The media of a sample that a module takes.
enum class Media {
  kNone,    // no module takes this: for a number without a row
  kText,    // tokens of every sample: the language model alone
  kImages,  // pictures, also the frames of videos: an encoder
  // Media that travel as rows of numbers, audio or another kind: an encoder. A
  // job has at most one such module, whose media are the columns of clips.
  kRows,
};

// A module that a configuration may have.
struct ModuleKind {
  v1::Module module;
  // In YAML, JSON, metrics and messages. Its coefficients are the field of this
  // name in v1::Balance::Cost.
  absl::string_view name;
  Media media;
  // Plural of what its cost counts in a sample.
  absl::string_view unit;
};

// All rows, in the order of MicroBatchSchedule.modules and of every other list
// of modules: encoders before the language model.
const std::vector<ModuleKind>& ModuleKinds();

// Adds the row of v1::MODULE_OTHER, an encoder of media that travel as rows.
// The texts live for ever. Call it before main (AddRowsKind in
// server/media/rows_rule.h), at most once.
void AddRowsModule(absl::string_view name, absl::string_view unit);

// The media that the module takes; kNone for a number without a row.
inline Media GetMedia(v1::Module module) {
  for (const ModuleKind& kind : ModuleKinds()) {
    if (kind.module == module) return kind.media;
  }
  return Media::kNone;
}

// Whether the module is the language model, of which a job has at most one.
inline bool IsLanguage(v1::Module module) {
  return GetMedia(module) == Media::kText;
}

// Whether the module is an encoder: a job may have any number of them.
inline bool IsEncoder(v1::Module module) {
  return GetMedia(module) != Media::kNone && !IsLanguage(module);
}

// The name of a module; "unspecified" for a number without a row.
absl::string_view ModuleName(v1::Module module);

// The unit of its cost; "units" for a number without a row.
absl::string_view CostUnit(v1::Module module);

// The module of that name, or nullopt.
std::optional<v1::Module> ParseModule(absl::string_view name);

// The names in the order of ModuleKinds().
std::vector<std::string> ModuleNames();

// The loads of each rank, summed over modules; empty if these differ in ranks
// or there is one module. `loads`: load_before or load_after.
std::vector<double> SumOfModules(
    const v1::MicroBatchSchedule& columns,
    const google::protobuf::RepeatedField<double>& (
        v1::ModuleSchedule::*loads)() const);

// The module's columns in a micro-batch, or null if it is not configured.
const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module);

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

#endif  // BALLAST_PROTO_SCHEDULE_MODULE_H_
