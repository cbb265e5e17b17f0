#include "server/audio/clip_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/audio/log_mel.h"

namespace ballast {

struct ClipReader::Worker {
  explicit Worker(const AudioReader::Options& options) : reader(options) {}

  absl::StatusOr<std::vector<float>> ReadSamples(const RawVideo& file,
                                                 const IndexedVideo& clip,
                                                 const ClipPlan& plan) {
    auto samples = reader.ReadSamples({file.fd->get(), file.offset, file.size},
                                      GetAudioFacts(clip), plan.range);
    // What was read of a file that changed says nothing.
    BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
    return samples;
  }

  AudioReader reader;
  std::optional<LogMel> features;
};

ClipReader::ClipReader(int processes, const v1::AudioFamily* family,
                       const AudioReader::Options& options)
    : family_(family), workers_(processes, options) {}

ClipReader::~ClipReader() = default;

absl::StatusOr<IndexedVideo> ClipReader::ReadFacts(const RawVideo& file,
                                                   bool in_video) {
  const Workers::Loan worker(&workers_);
  const auto facts = worker->reader.ReadFacts(
      {file.fd->get(), file.offset, file.size}, in_video);
  BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
  if (!facts.ok()) return facts.status();
  return ToIndexedClip(*facts);
}

absl::StatusOr<std::vector<float>> ClipReader::ReadSamples(
    const RawVideo& file, const IndexedVideo& clip, const ClipPlan& plan) {
  return Workers::Loan(&workers_)->ReadSamples(file, clip, plan);
}

absl::Status ClipReader::ReadFeatures(const RawVideo& file,
                                      const IndexedVideo& clip,
                                      const ClipPlan& plan,
                                      absl::Span<float> out) {
  if (family_ == nullptr) {
    return absl::InternalError("audio, and the model takes none");
  }
  const Workers::Loan worker(&workers_);
  if (!worker->features.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(worker->features, LogMel::Create(*family_));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<float> samples,
                           worker->ReadSamples(file, clip, plan));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<float> values,
      worker->features->Compute(plan.plan, samples, plan.rows));
  if (values.size() != out.size()) {
    return absl::InternalError(absl::StrCat("a clip has ", values.size(),
                                            " features, and its place is for ",
                                            out.size()));
  }
  std::copy(values.begin(), values.end(), out.begin());
  return absl::OkStatus();
}

uint64_t ClipDecodeBytes(const ClipPlan& plan, uint32_t width) {
  constexpr uint64_t kProcess = uint64_t{16} << 20;
  return kProcess + plan.plan.samples * sizeof(float) +
         uint64_t{plan.rows} * width * sizeof(float);
}

}  // namespace ballast
