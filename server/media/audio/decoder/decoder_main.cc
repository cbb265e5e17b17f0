// A program that decodes audio; decoder_protocol.h has its purpose and its
// requests. One thread, one request at a time.

#include <soxr.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/helper_program.h"
#include "server/media/audio/decoder/audio_input.h"
#include "server/media/audio/decoder/decoder_protocol.h"

namespace ballast::audio_decoder {
namespace {

// Sums in numpy's order: eight at a time from eight channels on.
float Sum(const float* values, uint32_t count) {
  if (count < 8) {
    float sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += values[i];
    return sum;
  }
  float r[8];
  for (uint32_t i = 0; i < 8; ++i) r[i] = values[i];
  uint32_t at = 8;
  for (; at + 8 <= count; at += 8) {
    for (uint32_t i = 0; i < 8; ++i) r[i] += values[at + i];
  }
  float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; at < count; ++at) sum += values[at];
  return sum;
}

// Far above what 32 bits of integers hold. From 1e15 on the features that
// models compute of float32 are infinite.
constexpr float kMaxLevel = 1e10F;

// Replaces *mono by the mean of the channels of `frames` interleaved frames,
// which follow `before` others. False: a mean is no number, so that a sample is
// none, or beyond kMaxLevel.
bool MixDown(const float* interleaved, size_t frames, uint32_t channels,
             uint64_t before, std::vector<float>* mono, Fault* fault) {
  mono->resize(frames);
  for (size_t i = 0; i < frames; ++i) {
    (*mono)[i] = Sum(interleaved + i * channels, channels) /
                 static_cast<float>(channels);
    if (std::abs((*mono)[i]) <= kMaxLevel) continue;
    const std::string sample = "sample " + std::to_string(before + i);
    *fault = {Outcome::kRefused,
              std::isfinite((*mono)[i])
                  ? sample +
                        " is beyond 1e10, where features are infinite; "
                        "wanted samples from -1 to 1"
                  : sample +
                        " is not a finite number (nan or inf); wanted "
                        "finite samples alone: was the file written by a "
                        "program that divided by 0?"};
    return false;
  }
  return true;
}

// A stream's samples at the models' rate, as librosa.load gives them: float32,
// soxr HQ. Thread-compatible.
class MonoResampler {
 public:
  explicit MonoResampler(uint32_t rate);
  ~MonoResampler();
  MonoResampler(const MonoResampler&) = delete;
  MonoResampler& operator=(const MonoResampler&) = delete;

  // Replaces *out by what follows from the next samples. False: soxr has
  // failed.
  bool Add(const std::vector<float>& mono, std::vector<float>* out);
  // Likewise from the end of the stream.
  bool Finish(std::vector<float>* out);

 private:
  bool Resample(const float* samples, size_t count, std::vector<float>* out);

  const uint32_t rate_;
  soxr_t soxr_ = nullptr;  // null where the rates are equal
  bool is_open_ = true;
};

MonoResampler::MonoResampler(uint32_t rate) : rate_(rate) {
  if (rate == kModelRate) return;
  const soxr_io_spec_t form = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  soxr_ = soxr_create(rate, kModelRate, 1, &error, &form, &quality, &runtime);
  is_open_ = error == nullptr && soxr_ != nullptr;
}

MonoResampler::~MonoResampler() { soxr_delete(soxr_); }

bool MonoResampler::Add(const std::vector<float>& mono,
                        std::vector<float>* out) {
  if (rate_ == kModelRate) {
    *out = mono;
    return true;
  }
  return mono.empty() || Resample(mono.data(), mono.size(), out);
}

bool MonoResampler::Finish(std::vector<float>* out) {
  out->clear();
  return rate_ == kModelRate || Resample(nullptr, 0, out);
}

bool MonoResampler::Resample(const float* samples, size_t count,
                             std::vector<float>* out) {
  out->clear();
  if (!is_open_) return false;
  // More than one call can give; the rest of the delay comes at the end.
  constexpr size_t kStep = 4096;
  size_t used = 0;
  while (true) {
    const size_t before = out->size();
    out->resize(before + kStep);
    size_t read = 0;
    size_t made = 0;
    const soxr_error_t error =
        soxr_process(soxr_, samples == nullptr ? nullptr : samples + used,
                     count - used, &read, out->data() + before, kStep, &made);
    out->resize(before + made);
    if (error != nullptr) return false;
    used += read;
    if (used == count && made < kStep) return true;
  }
}

// Frames decoded at a time.
constexpr size_t kFrames = 8192;

bool SendFault(const Fault& fault) {
  if (fault.outcome == Outcome::kNoMemory) ExitForMemory(kLargestAllocation);
  return WriteAnswer(static_cast<uint32_t>(fault.outcome),
                     fault.reason.substr(0, kMaxReasonBytes));
}

bool SendEnd(const Facts& facts) {
  const HelperBytes bytes = {&facts, sizeof(facts)};
  return WriteAnswer(static_cast<uint32_t>(Outcome::kEnd), &bytes, 1);
}

// Sends the samples of a range out of all.
class RangeWriter {
 public:
  RangeWriter(uint64_t first, uint64_t samples)
      : first_(first), end_(first + samples) {}

  bool is_done() const { return at_ >= end_; }
  uint64_t at() const { return at_; }
  // The next samples of all. False: the server is gone.
  bool Write(const float* samples, uint64_t count) {
    const uint64_t from = std::clamp(first_, at_, at_ + count);
    const uint64_t to = std::clamp(end_, at_, at_ + count);
    for (uint64_t next = from; next < to; next += kMaxSamplesInAnswer) {
      const HelperBytes bytes = {
          samples + (next - at_),
          std::min<uint64_t>(to - next, kMaxSamplesInAnswer) * sizeof(float)};
      if (!WriteAnswer(static_cast<uint32_t>(Outcome::kOk), &bytes, 1)) {
        return false;
      }
    }
    at_ += count;
    return true;
  }

 private:
  const uint64_t first_;
  const uint64_t end_;
  uint64_t at_ = 0;
};

Fault OtherCount(uint64_t found, uint64_t wanted) {
  return {Outcome::kRefused, "the stream has " + std::to_string(found) +
                                 " samples a channel, the header says " +
                                 std::to_string(wanted) +
                                 ": it was damaged or cut short"};
}

// False: the server is gone, or `fault`.
bool AnswerRead(const Request& request, AudioInput* input, Fault* fault) {
  Facts facts = input->facts();
  MonoResampler resampler(facts.rate);
  RangeWriter writer(request.first, request.samples);
  std::vector<float> frames(kFrames * facts.channels);
  std::vector<float> mixed;
  std::vector<float> mono;  // at the models' rate
  const Fault no_resampler = {Outcome::kRefused, "soxr cannot resample it"};
  facts.frames = 0;
  while (!writer.is_done()) {
    const size_t got = input->Read(frames.data(), kFrames, fault);
    if (fault->outcome != Outcome::kOk) return false;
    if (got == 0) break;
    if (!MixDown(frames.data(), got, facts.channels, facts.frames, &mixed,
                 fault)) {
      return false;
    }
    facts.frames += got;
    if (facts.frames > request.frames) break;
    if (!resampler.Add(mixed, &mono)) {
      *fault = no_resampler;
      return false;
    }
    if (!writer.Write(mono.data(), mono.size())) return false;
  }
  if (!writer.is_done()) {
    if (facts.frames != request.frames) {
      *fault = OtherCount(facts.frames, request.frames);
      return false;
    }
    if (!resampler.Finish(&mono)) {
      *fault = no_resampler;
      return false;
    }
    // librosa gives soxr's output the length that follows from the rates.
    const uint64_t all = ResampledCount(facts.frames, facts.rate);
    mono.resize(all - std::min(all, writer.at()));
    if (!writer.Write(mono.data(), mono.size())) return false;
  }
  return SendEnd(facts);
}

bool AnswerCount(AudioInput* input, Fault* fault) {
  Facts facts = input->facts();
  std::vector<float> frames(kFrames * facts.channels);
  std::vector<float> mono;
  facts.frames = 0;
  while (const size_t got = input->Read(frames.data(), kFrames, fault)) {
    if (!MixDown(frames.data(), got, facts.channels, facts.frames, &mono,
                 fault)) {
      return false;
    }
    facts.frames += got;
  }
  return fault->outcome == Outcome::kOk && SendEnd(facts);
}

bool AnswerRequest(uint32_t task, int file, const Request& request,
                   Fault* fault) {
  const std::unique_ptr<AudioInput> input =
      OpenAudio(file, request.offset, request.bytes, fault);
  if (input == nullptr) return false;
  const Facts facts = input->facts();
  if (facts.rate < kMinRate || facts.rate > kMaxRate || facts.channels == 0 ||
      facts.channels > kMaxChannels) {
    *fault = {Outcome::kRefused,
              std::to_string(facts.rate) + " samples a second and " +
                  std::to_string(facts.channels) + " channels; wanted " +
                  std::to_string(kMinRate) + " to " + std::to_string(kMaxRate) +
                  " and 1 to " + std::to_string(kMaxChannels)};
    return false;
  }
  switch (task) {
    case kFacts:
      return SendEnd(facts);
    case kCount:
      return AnswerCount(input.get(), fault);
    default:
      return AnswerRead(request, input.get(), fault);
  }
}

// Returns false at the end of the stream of requests.
bool AnswerNext() {
  uint32_t task = 0;
  std::string body;
  int file = -1;
  size_t count = 0;
  const bool is_read = ReadRequest(&task, &body, &file, 1, &count);
  Request request;
  if (!is_read || count == 0 || body.size() != sizeof(request)) return false;
  memcpy(&request, body.data(), sizeof(request));
  LimitProcessorTime(request.cpu_seconds);
  Fault fault;
  const bool done = AnswerRequest(task, file, request, &fault);
  LimitProcessorTime(0);
  close(file);
  if (done) return true;
  // Without a fault the socket is gone.
  return fault.outcome != Outcome::kOk && SendFault(fault);
}

}  // namespace
}  // namespace ballast::audio_decoder

int main() {
  ballast::EnterBox({.memory = ballast::audio_decoder::kMaxMemory});
  while (ballast::audio_decoder::AnswerNext()) {
  }
  return 0;
}
