#ifndef BALLAST_TESTS_FAKES_READ_SAMPLE_H_
#define BALLAST_TESTS_FAKES_READ_SAMPLE_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "server/sample/sample_source.h"

namespace ballast {

// Reads a sample of `source`. For tests only: a data fault is a status too,
// DATA_LOSS.
inline absl::StatusOr<RawSample> ReadSample(const SampleSource& source,
                                            uint64_t ordinal,
                                            ReadParts parts = {}) {
  absl::StatusOr<FaultOr<RawSample>> read = source.Read(ordinal, parts);
  if (!read.ok()) return read.status();
  if (!read->ok()) return absl::DataLossError(read->fault().reason());
  return **std::move(read);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_READ_SAMPLE_H_
