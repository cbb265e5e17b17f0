#include "tests/server/data/fake_videos.h"

#include <unistd.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

constexpr absl::string_view kHead(
    "\0\0\0\x10"
    "ftypmp42",
    12);

}  // namespace

std::string FakeVideo(uint32_t frames, size_t behind) {
  std::string bytes(kHead);
  bytes.append(reinterpret_cast<const char*>(&frames), sizeof(frames));
  bytes.append(behind, 'v');
  return bytes;
}

std::string GetBytes(const RawMedium& video) {
  std::string bytes(video.size, '\0');
  EXPECT_NE(video.fd, nullptr);
  if (video.fd == nullptr) return "";
  EXPECT_EQ(pread(video.fd->get(), bytes.data(), bytes.size(),
                  static_cast<off_t>(video.offset)),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

absl::StatusOr<StreamFacts> ReadFakeVideo(const RawMedium& video) {
  const std::string bytes = GetBytes(video);
  if (bytes.size() < kHead.size() + sizeof(uint32_t) ||
      absl::string_view(bytes).substr(0, kHead.size()) != kHead) {
    return absl::InvalidArgumentError("no video");
  }
  StreamFacts facts = {};
  std::memcpy(&facts.frames, bytes.data() + kHead.size(), sizeof(facts.frames));
  facts.fps = 30;
  facts.width = 8;
  facts.height = 6;
  return facts;
}

absl::StatusOr<StreamFacts> ReadFakeAudio(const RawMedium& file) {
  absl::StatusOr<StreamFacts> facts = ReadFakeVideo(file);
  if (facts.ok()) facts->flags |= StreamFacts::kIsRows;
  return facts;
}

IndexOptions FakeVideoOptions() {
  IndexOptions options = FakeOptions();
  options.read[MediumKind::kVideo] = ReadFakeVideo;
  options.read[MediumKind::kAudio] = ReadFakeAudio;
  return options;
}

}  // namespace ballast
