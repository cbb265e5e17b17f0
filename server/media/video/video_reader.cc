#include "server/media/video/video_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image/strip_resampler.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

Orientation GetOrientation(const VideoFacts& facts, const FrameForm& form) {
  if (!form.apply_rotation) return kUpright;
  switch (facts.rotation) {
    case 90:
      return 6;
    case 180:
      return 3;
    case 270:
      return 8;
    default:
      return kUpright;
  }
}

absl::Status CheckWanted(const VideoFacts& facts,
                         absl::Span<const uint32_t> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] >= facts.frames() || (i > 0 && wanted[i] < wanted[i - 1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("frame ", wanted[i], " at place ", i,
                       "; wanted ascending numbers below ", facts.frames()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDecodedPixels(uint64_t packets, const VideoFacts& facts) {
  const uint64_t pixels = packets * facts.width * facts.height;
  if (pixels <= kMaxDecodedPixels) return absl::OkStatus();
  return DataFaultError(absl::StrCat(
      packets, " packets of ", facts.width, "x", facts.height,
      " pixels have to be decoded, since key frames are far apart; at most ",
      kMaxDecodedPixels, " pixels are decoded for a video"));
}

VideoReader::VideoReader(int processes, const DecoderProcess::Options& options)
    : workers_(processes, options) {}

absl::StatusOr<VideoFacts> VideoReader::ReadFacts(const VideoBytes& video) {
  const Workers::Loan worker(&workers_);
  return worker->process.ReadFacts(video);
}

absl::Status VideoReader::ReadFrames(const VideoBytes& video,
                                     const VideoFacts& facts,
                                     absl::Span<const uint32_t> wanted,
                                     const FrameForm& form,
                                     absl::Span<uint8_t> out) {
  const uint64_t frame_bytes = uint64_t{form.width} * form.height * 3;
  if (out.size() != frame_bytes * wanted.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.size(), " frames of ", form.width, "x", form.height,
                     " pixels in ", out.size(), " bytes; a pixel takes 3"));
  }
  return ReadFrames(video, facts, wanted, form, [&](size_t i) {
    return out.subspan(i * frame_bytes, frame_bytes);
  });
}

absl::Status VideoReader::ReadFrames(const VideoBytes& video,
                                     const VideoFacts& facts,
                                     absl::Span<const uint32_t> wanted,
                                     const FrameForm& form, Place out) {
  const Workers::Loan worker(&workers_);
  return Decode(worker.get(), video, facts, wanted, form, out,
                /*is_listed=*/false);
}

absl::Status VideoReader::ReadChecked(const VideoBytes& video, Check check,
                                      absl::Span<const uint32_t> wanted,
                                      const FrameForm& form, Place place) {
  const Workers::Loan worker(&workers_);
  BALLAST_ASSIGN_OR_RETURN(const VideoFacts facts,
                           worker->process.ReadFacts(video));
  BALLAST_RETURN_IF_ERROR(check(facts));
  return Decode(worker.get(), video, facts, wanted, form, place,
                /*is_listed=*/true);
}

absl::Status VideoReader::Decode(Worker* worker, const VideoBytes& video,
                                 const VideoFacts& facts,
                                 absl::Span<const uint32_t> wanted,
                                 const FrameForm& form, Place out,
                                 bool is_listed) {
  BALLAST_RETURN_IF_ERROR(CheckWanted(facts, wanted));
  std::vector<uint32_t> distinct(wanted.begin(), wanted.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  BALLAST_RETURN_IF_ERROR(
      CheckDecodedPixels(PacketsToDecode(facts.table, distinct), facts));
  const Orientation orientation = GetOrientation(facts, form);
  const auto place_of = [&](uint32_t frame) {
    return static_cast<size_t>(
        std::lower_bound(wanted.begin(), wanted.end(), frame) - wanted.begin());
  };
  return worker->process.Decode(
      video, facts, distinct,
      [&](uint32_t place, const DecodedFrame& frame) -> absl::Status {
        const size_t first = place_of(distinct[place]);
        const absl::Span<uint8_t> to = out(first);
        BALLAST_RETURN_IF_ERROR(worker->resizer.Resize(
            {frame.rows, frame.stride, facts.width, facts.height}, orientation,
            form.resampling, form.width, form.height, to));
        for (size_t i = first + 1;
             i < wanted.size() && wanted[i] == wanted[first]; ++i) {
          const absl::Span<uint8_t> same = out(i);
          if (same.data() == to.data()) continue;
          std::memcpy(same.data(), to.data(), to.size());
        }
        return absl::OkStatus();
      },
      is_listed);
}

absl::Status MakeListedFrame(absl::string_view picture, uint32_t width,
                             uint32_t height, const VideoPlan& plan,
                             ImageDecoder* decoder, absl::Span<uint8_t> out) {
  BALLAST_ASSIGN_OR_RETURN(RgbImage image, decoder->Decode(picture));
  if (image.width != width || image.height != height) {
    return DataFaultError(absl::StrCat(image.width, "x", image.height,
                                       " pixels instead of ", width, "x",
                                       height));
  }
  const Resampling& last = decoder->options().resampling;
  if (plan.first_width != 0) {
    Resampling pillow;
    if (last.library != ResampleLibrary::kTorchvision) {
      pillow.library = last.library;
    }
    RgbImage first = {plan.first_width, plan.first_height, {}};
    first.pixels.resize(size_t{first.width} * first.height * 3);
    BALLAST_RETURN_IF_ERROR(Resize(image, pillow, first.width, first.height,
                                   absl::MakeSpan(first.pixels)));
    image = std::move(first);
  }
  return Resize(image, last, plan.width, plan.height, out);
}

uint64_t ListedFrameBytes(uint32_t width, uint32_t height,
                          const VideoPlan& plan, const Resampling& resampling) {
  return uint64_t{plan.first_width} * plan.first_height * 3 +
         ResizeSink::MostBytes(resampling, width, height, plan.width,
                               plan.height) +
         (plan.first_width == 0
              ? 0
              : ResizeSink::MostBytes(Resampling(), width, height,
                                      plan.first_width, plan.first_height));
}

}  // namespace ballast
