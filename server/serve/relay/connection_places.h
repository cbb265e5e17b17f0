#ifndef BALLAST_SERVER_SERVE_RELAY_CONNECTION_PLACES_H_
#define BALLAST_SERVER_SERVE_RELAY_CONNECTION_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/instruments.h"
#include "common/mutex.h"

namespace ballast {

// The connections that a server may have, over all its addresses, and what has
// become of all so far. Thread-safe.
class ConnectionPlaces {
 public:
  // A relayed connection has the client's socket and both ends of a pair.
  static constexpr size_t kDescriptors = 3;

  // `most` for all peers, of which TCP gets three quarters and one peer half.
  explicit ConnectionPlaces(size_t most) : most_(most) {}

  // As many as fit half of so many descriptors, of which data files get the
  // other half; 16 to 16,384.
  static size_t OfDescriptors(uint64_t limit);

  // A place for a connection of `peer`; it is free again once the result is
  // destroyed, which may be after this. Errors: RESOURCE_EXHAUSTED, with the
  // bound.
  absl::StatusOr<std::shared_ptr<void>> Take(const std::string& peer,
                                             bool is_unix, absl::Time now);

  size_t most() const { return most_; }
  size_t open() const;
  // Why a connection was refused since `since`; empty: none was.
  std::string RefusedSince(absl::Time since) const;

  Counter accepted;  // all that arrived
  Counter refused;   // of these, for want of a place
  Counter expelled;  // against the bounds on frames, or silent
  Counter reopened;  // times that an address was opened again

 private:
  struct Counts {
    mutable Mutex mutex;
    size_t open ABSL_GUARDED_BY(mutex) = 0;
    size_t tcp ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, size_t> by_peer ABSL_GUARDED_BY(mutex);
    std::string refusal ABSL_GUARDED_BY(mutex);  // the last one
    absl::Time refused_at ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
  };

  const size_t most_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_RELAY_CONNECTION_PLACES_H_
