// A program that decodes audio; decoder_protocol.h has its purpose and its
// requests. One thread, one request at a time.

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/helper_program.h"
#include "server/audio/decoder/audio_input.h"
#include "server/audio/decoder/decoder_protocol.h"
#include "server/audio/decoder/mono_resampler.h"

namespace ballast::audio_decoder {
namespace {

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
  MonoResampler resampler(facts.rate, facts.channels);
  RangeWriter writer(request.first, request.samples);
  std::vector<float> frames(kFrames * facts.channels);
  std::vector<float> mono;
  const Fault no_resampler = {Outcome::kRefused, "soxr cannot resample it"};
  facts.frames = 0;
  while (!writer.is_done()) {
    const size_t got = input->Read(frames.data(), kFrames, fault);
    if (fault->outcome != Outcome::kOk) return false;
    if (got == 0) break;
    facts.frames += got;
    if (facts.frames > request.frames) break;
    if (!resampler.Add(frames.data(), got, &mono)) {
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
  facts.frames = 0;
  while (const size_t got = input->Read(frames.data(), kFrames, fault)) {
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
