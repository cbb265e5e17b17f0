// Frames of the GPU's video engines against FFmpeg's: samples, and resized RGB.
#include "trainer_shim/cuda/nvdec_decoder.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "common/sha256.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/made_clips.h"
#include "trainer_shim/cuda/plane_kernels.h"

namespace ballast {
namespace {

// The codecs of which every sound clip must be exact.
constexpr VideoCodec kExact[] = {VideoCodec::kH264, VideoCodec::kHevc,
                                 VideoCodec::kVp8, VideoCodec::kVp9};

bool IsExact(const MadeClip& clip) {
  const auto codec = clip.engine_codec();
  return codec.has_value() && absl::c_linear_search(kExact, *codec);
}

class NvdecDecoderGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (MadeClips().empty()) {
      GTEST_SKIP() << "no clips: set BALLAST_VIDEO_CLIPS (docs/gpu_tests.md)";
    }
    OrDie(cudaSetDevice(0), "choosing the device");
    stream_ = OrDie(CudaStream::Create());
    std::vector<VideoBounds> bounds;
    for (const VideoCodec codec : kExact) bounds.push_back({codec, 1922, 1088});
    decoder_ = OrDie(NvdecDecoder::Create(stream_.get(), bounds));
    planes_ = OrDie(DeviceBuffer::Create(kMostPlanes));
    host_ = OrDie(PinnedBuffer::Create(kMostPlanes));
  }

  // Decodes a stretch of a clip and hashes its frames of `wanted`, ascending
  // indices into `packets`.
  absl::StatusOr<std::vector<std::string>> Hashes(
      const MadeClip& clip, absl::Span<const absl::string_view> packets,
      const std::vector<uint32_t>& wanted) {
    const uint64_t bytes = LayOutPlanes(clip.form).bytes;
    const uint64_t all = bytes * wanted.size();
    if (all > kMostPlanes) return absl::OutOfRangeError("too many frames");
    OrDie(cudaMemsetAsync(planes_.data(), 0x77, all, stream_.get()), "memset");
    OrDie(stream_.Synchronize());
    EncodedStretch stretch;
    stretch.codec = *clip.engine_codec();
    stretch.form = clip.form;
    stretch.packets = packets;
    stretch.wanted = wanted;
    stretch.planes = planes_.data();
    const absl::Status status = decoder_->Decode(stretch);
    if (!status.ok()) return status;
    OrDie(cudaMemcpyAsync(host_.data(), planes_.data(), all,
                          cudaMemcpyDeviceToHost, stream_.get()),
          "copy to the host");
    OrDie(stream_.Synchronize());
    std::vector<std::string> hashes;
    for (size_t i = 0; i < wanted.size(); ++i) {
      hashes.push_back(HashPlanes(clip.form, host_.data() + i * bytes));
    }
    return hashes;
  }

  // All frames of a clip, ascending by packet.
  static std::vector<MadeClip::Frame> ByPacket(const MadeClip& clip) {
    std::vector<MadeClip::Frame> frames = clip.frames;
    std::sort(frames.begin(), frames.end(),
              [](const auto& a, const auto& b) { return a.packet < b.packet; });
    return frames;
  }

  // Frames whose samples differ; an error of the decoder.
  absl::StatusOr<size_t> Differing(const MadeClip& clip) {
    const std::vector<MadeClip::Frame> frames = ByPacket(clip);
    std::vector<uint32_t> wanted;
    for (const MadeClip::Frame& frame : frames) wanted.push_back(frame.packet);
    const auto hashes = Hashes(clip, clip.packets, wanted);
    if (!hashes.ok()) return hashes.status();
    size_t differ = 0;
    for (size_t i = 0; i < frames.size(); ++i) {
      differ += (*hashes)[i] != frames[i].sha256;
    }
    return differ;
  }

  static constexpr uint64_t kMostPlanes = 128 << 20;

  CudaStream stream_;
  std::unique_ptr<NvdecDecoder> decoder_;
  // Of the last stretch. Made once: a capture allows no calls for the whole
  // device.
  DeviceBuffer planes_;
  PinnedBuffer host_;
};

TEST_F(NvdecDecoderGpuTest, EnginesMakeFfmpegsSamples) {
  struct Count {
    int exact = 0, differ = 0, error = 0, not_taken = 0;
  };
  std::map<std::string, Count> counts;
  int clips = 0;
  for (const MadeClip& clip : MadeClips()) {
    if (!clip.damage.empty()) continue;
    ++clips;
    Count& count = counts[clip.codec];
    if (!clip.engine_codec().has_value() ||
        !decoder_->Takes(*clip.engine_codec(), clip.form)) {
      ++count.not_taken;
      std::printf("not taken: %s %s %ux%u\n", clip.name.c_str(),
                  clip.pixel_format.c_str(), clip.form.width, clip.form.height);
      continue;
    }
    const absl::StatusOr<size_t> differ = Differing(clip);
    if (!differ.ok()) {
      ++count.error;
      std::printf("error: %s: %s\n", clip.name.c_str(),
                  differ.status().ToString().c_str());
    } else if (*differ > 0) {
      ++count.differ;
      std::printf("differs: %s: %zu of %zu frames\n", clip.name.c_str(),
                  *differ, clip.frames.size());
      if (IsExact(clip)) ADD_FAILURE() << clip.name;
    } else {
      ++count.exact;
    }
  }
  for (const auto& [codec, count] : counts) {
    std::printf("%s: %d exact, %d differ, %d errors, %d not taken\n",
                codec.c_str(), count.exact, count.differ, count.error,
                count.not_taken);
  }
  EXPECT_GE(clips, 200);
}

// Decoding begins at any key packet, and few frames are wanted.
TEST_F(NvdecDecoderGpuTest, StretchesBeginAtKeyPackets) {
  int stretches = 0;
  for (const MadeClip& clip : MadeClips()) {
    if (!clip.damage.empty() || !IsExact(clip) ||
        !decoder_->Takes(*clip.engine_codec(), clip.form)) {
      continue;
    }
    int errors = 0;
    for (const uint32_t key : clip.keys) {
      // Frames that are shown before the key refer to what precedes it.
      const auto shown =
          std::find_if(clip.frames.begin(), clip.frames.end(),
                       [&](const auto& frame) { return frame.packet == key; });
      if (shown == clip.frames.end()) continue;
      std::map<uint32_t, std::string> want;
      for (auto frame = shown; frame < clip.frames.end(); ++frame) {
        if ((frame - shown) % 5 < 2 && frame->packet >= key) {
          want[frame->packet] = frame->sha256;
        }
      }
      // As the server leaves them out.
      const auto is_before = [&](uint32_t packet) {
        return std::any_of(clip.frames.begin(), shown, [&](const auto& frame) {
          return frame.packet == packet;
        });
      };
      std::vector<absl::string_view> packets;
      std::vector<uint32_t> wanted;
      std::vector<uint32_t> numbers;
      for (uint32_t packet = key; packet <= want.rbegin()->first; ++packet) {
        if (is_before(packet)) continue;
        if (want.count(packet) != 0) {
          wanted.push_back(packets.size());
          numbers.push_back(packet);
        }
        packets.push_back(clip.packets[packet]);
      }
      const auto hashes = Hashes(clip, packets, wanted);
      ++stretches;
      if (!hashes.ok()) {
        if (errors++ == 0) {
          std::printf("error: %s from packet %u: %s\n", clip.name.c_str(), key,
                      hashes.status().ToString().c_str());
        }
        continue;
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ((*hashes)[i], want[numbers[i]])
            << clip.name << " from packet " << key << ", packet " << numbers[i];
      }
    }
  }
  std::printf("%d stretches\n", stretches);
  EXPECT_GE(stretches, 200);
}

// Whatever FFmpeg decodes without a word, engines decode alike, or say that
// they do not; and damage ends nothing.
TEST_F(NvdecDecoderGpuTest, DamagedCopies) {
  // By codec and by what FFmpeg said: nothing with all checks, nothing by
  // default, something.
  std::map<std::string, std::map<std::string, int>> counts;
  int copies = 0;
  const MadeClip* sound = nullptr;
  for (const MadeClip& clip : MadeClips()) {
    if (!clip.engine_codec().has_value() ||
        !decoder_->Takes(*clip.engine_codec(), clip.form)) {
      continue;
    }
    if (clip.damage.empty()) {
      const absl::StatusOr<size_t> differ = Differing(clip);
      sound = differ.ok() ? &clip : nullptr;
      continue;
    }
    ++copies;
    const char* said = clip.more_complaints == 0 ? "silent with all checks"
                       : clip.complaints == 0    ? "silent by default"
                                                 : "complains";
    const absl::StatusOr<size_t> differ = Differing(clip);
    const char* what = !differ.ok()   ? "error"
                       : *differ == 0 ? "equal"
                                      : "differs";
    ++counts[clip.codec][std::string(said) + ", " + what];
    ++counts[clip.codec + " " + clip.damage][std::string(said) + ", " + what];
    if (clip.complaints == 0 && differ.ok() && *differ > 0) {
      std::printf("silent but differs: %s %s: %zu of %zu frames%s\n",
                  clip.name.c_str(), clip.damage.c_str(), *differ,
                  clip.frames.size(),
                  clip.more_complaints == 0 ? ", with all checks" : "");
    }
    if (copies % 16 == 0 && sound != nullptr && IsExact(*sound)) {
      const absl::StatusOr<size_t> after = Differing(*sound);
      ASSERT_TRUE(after.ok()) << sound->name << ": " << after.status();
      EXPECT_EQ(*after, 0u) << sound->name << " after " << clip.name;
    }
  }
  for (const auto& [codec, by] : counts) {
    for (const auto& [what, count] : by) {
      std::printf("%s: %s: %d\n", codec.c_str(), what.c_str(), count);
    }
  }
}

// From packets to the pixels of a batch: as PyAV and Pillow make them.
TEST_F(NvdecDecoderGpuTest, ResizedFramesArePyavs) {
  const PlaneKernels kernels = OrDie(PlaneKernels::Create());
  ResamplePlanner planner;  // Pillow's bicubic filter
  int frames = 0;
  for (const MadeClip& clip : MadeClips()) {
    // libswscale's other code converts an odd number of rows, and each field of
    // an interlaced frame alone.
    if (!clip.damage.empty() || !IsExact(clip) || clip.form.height % 2 != 0 ||
        clip.is_interlaced ||
        !decoder_->Takes(*clip.engine_codec(), clip.form)) {
      continue;
    }
    for (const MadeClip::Resized& want : clip.resized) {
      if (!Hashes(clip, clip.packets, {want.packet}).ok()) continue;
      const ResampleRequest request = {clip.form, want.width, want.height, 0,
                                       0};
      OrDie(planner.Plan({&request, 1}));
      const ResamplePlan& plan = planner.plan();
      const DeviceBuffer images = ToDevice(plan.images);
      const DeviceBuffer taps = ToDevice(plan.taps);
      const DeviceBuffer weights = ToDevice(plan.weights);
      const DeviceBuffer narrow = Filled<uint8_t>(plan.narrow_bytes, 0x55);
      const uint64_t bytes = uint64_t{3} * want.width * want.height;
      const DeviceBuffer out = Filled<uint8_t>(bytes, 0x66);
      PlaneBatch batch;
      batch.plan = &plan;
      batch.images = reinterpret_cast<const ResampleImage*>(images.data());
      batch.taps = reinterpret_cast<const AxisTaps*>(taps.data());
      batch.weights = reinterpret_cast<const int32_t*>(weights.data());
      batch.planes = planes_.data();
      batch.narrow = narrow.data();
      batch.out = out.data();
      OrDie(cudaDeviceSynchronize(), "wait for the tables");
      OrDie(kernels.Launch(batch, stream_.get()));
      EXPECT_EQ(Sha256Hex(ToHost<uint8_t>(out, 0, bytes)), want.sha256)
          << clip.name << " packet " << want.packet << " to " << want.width
          << "x" << want.height;
      ++frames;
    }
  }
  std::printf("%d frames\n", frames);
  EXPECT_GE(frames, 300);
}

// A stretch that is not what it is said to be is refused by name.
TEST_F(NvdecDecoderGpuTest, OtherFormsAreRefused) {
  for (const MadeClip& clip : MadeClips()) {
    if (clip.name != "h264-high-b1-r4.mp4" || !clip.damage.empty()) continue;
    MadeClip other = clip;
    other.form.width -= 2;
    EXPECT_THAT(Differing(other).status().ToString(),
                ::testing::HasSubstr("; wanted "));
    other = clip;
    other.packets.erase(other.packets.begin());
    const absl::Status status = Differing(other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(OrDie(Differing(clip)), 0u);
    return;
  }
  FAIL() << "no clip h264-high-b1-r4.mp4";
}

// Engines work while the trainer captures a CUDA graph in mode `global`.
TEST_F(NvdecDecoderGpuTest, CapturesSucceedWhileEnginesDecode) {
  const CudaStream capture = OrDie(CudaStream::Create());
  const DeviceBuffer memory = Filled<uint8_t>(4096, 0);
  std::vector<const MadeClip*> clips;
  for (const MadeClip& clip : MadeClips()) {
    if (clip.damage.empty() && IsExact(clip) && clip.form.width >= 146 &&
        clip.form.height >= 146) {
      clips.push_back(&clip);
    }
  }
  ASSERT_FALSE(clips.empty());
  std::atomic<uint64_t> decoded = 0;
  std::atomic<bool> ended = false;
  std::thread engine([&] {
    OrDie(UseDevice(0));
    for (size_t i = 0; i < 200; ++i) {
      const MadeClip& clip = *clips[i % clips.size()];
      const absl::StatusOr<size_t> differ = Differing(clip);
      if (differ.ok()) EXPECT_EQ(*differ, 0u) << clip.name;
      ++decoded;
    }
    ended = true;
  });
  int captures = 0;
  while (!ended) {
    const uint64_t before = decoded;
    OrDie(cudaStreamBeginCapture(capture.get(), cudaStreamCaptureModeGlobal),
          "beginning a capture");
    OrDie(cudaMemsetAsync(memory.data(), 1, 4096, capture.get()),
          "capturing work");
    while (decoded == before && !ended) std::this_thread::yield();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(capture.get(), &graph), cudaSuccess)
        << "capture " << captures;
    if (graph != nullptr) cudaGraphDestroy(graph);
    ++captures;
  }
  engine.join();
  std::printf("%d captures\n", captures);
  EXPECT_GE(captures, 50);
}

}  // namespace
}  // namespace ballast
