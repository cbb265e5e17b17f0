#ifndef BALLAST_TESTS_FAKES_READ_SAMPLE_H_
#define BALLAST_TESTS_FAKES_READ_SAMPLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

// The files of a sample's images, in order; its videos and its clips.
inline std::vector<std::string> Images(const RawSample& sample) {
  std::vector<std::string> files;
  for (const RawMedium* image : sample.of(MediumKind::kImage)) {
    files.emplace_back(image->file());
  }
  return files;
}
inline std::vector<RawMedium> MediaOf(const RawSample& sample,
                                      MediumKind kind) {
  std::vector<RawMedium> media;
  for (const RawMedium* medium : sample.of(kind)) media.push_back(*medium);
  return media;
}
inline std::vector<RawMedium> Videos(const RawSample& sample) {
  return MediaOf(sample, MediumKind::kVideo);
}
inline std::vector<RawMedium> Clips(const RawSample& sample) {
  return MediaOf(sample, MediumKind::kAudio);
}

// What an index has of a sample's videos, and of its clips.
inline std::vector<StreamFacts> StreamsOf(const IndexedSample& sample,
                                          MediumKind kind) {
  std::vector<StreamFacts> streams;
  for (const IndexedMedium& medium : sample.media) {
    if (medium.kind == kind) streams.push_back(*medium.stream);
  }
  return streams;
}
inline std::vector<StreamFacts> Videos(const IndexedSample& sample) {
  return StreamsOf(sample, MediumKind::kVideo);
}
inline std::vector<StreamFacts> Clips(const IndexedSample& sample) {
  return StreamsOf(sample, MediumKind::kAudio);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_READ_SAMPLE_H_
