// What files and processes may do to a reader: damage, crashes, hangs, length.

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/media/video/decoder/decoder_process.h"
#include "server/media/video/video_reader.h"
#include "tests/fakes/read_file.h"
#include "tests/server/media/video/made_videos.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The ends that were counted, by their names.
std::map<std::string, uint64_t> EndsOf(const HelperCounters& counters) {
  std::map<std::string, uint64_t> ends;
  for (size_t i = 0; i < kHelperEnds; ++i) {
    if (counters.ends[i].value() == 0) continue;
    ends[kHelperEndNames[i]] = counters.ends[i].value();
  }
  return ends;
}

class DamagedVideoTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "needs the program ffmpeg";
  }
};

// Plans and decodes a few frames.
absl::Status ReadSome(VideoReader* reader, const OpenVideo& video) {
  const auto facts = reader->ReadFacts(video.bytes);
  if (!facts.ok()) return facts.status();
  const uint32_t last = facts->frames() - 1;
  FrameForm form;
  form.width = form.height = 28;
  std::vector<uint8_t> out(3 * 28 * 28 * 3);
  return reader->ReadFrames(video.bytes, *facts, {0, last / 2, last}, form,
                            absl::MakeSpan(out));
}

TEST_F(DamagedVideoTest, FiveHundredDamagedFilesEndWithAReason) {
  const std::vector<std::string> paths = MakeVideosToDamage();
  HelperCounters counters;
  VideoReader reader(1, {.counters = &counters});
  std::mt19937_64 random(23);
  std::map<std::string, int> reasons;
  int sound = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string& path = paths[i % paths.size()];
    const std::string damaged = VideoPath("damaged");
    std::ofstream(damaged, std::ios::binary)
        << Damaged(ReadFile(path), &random);
    SCOPED_TRACE(absl::StrCat("damaged file ", i, " of ", path));
    const absl::Status status = ReadSome(&reader, OpenVideo(damaged));
    if (status.ok()) {
      ++sound;  // where it hit nothing that these frames need
      continue;
    }
    // A fault of the bytes: every server says the same.
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    ASSERT_FALSE(status.message().empty());
    const std::string message(status.message());
    ++reasons[message.substr(0, message.find_first_of(":;0123456789"))];
  }
  for (const auto& [reason, count] : reasons) {
    std::cout << count << " x " << reason << "\n";
  }
  std::cout << sound << " without an effect, " << counters.starts.value()
            << " processes\n";
  EXPECT_LT(sound, 400);
  EXPECT_GT(reasons.size(), 3u);
  for (const std::string& path : paths) {
    EXPECT_TRUE(ReadSome(&reader, OpenVideo(path)).ok());
  }
}

TEST_F(DamagedVideoTest, ThingsThatAreNoVideosAreRefused) {
  VideoReader reader(1);
  const std::vector<std::pair<std::string, std::string>> files = {
      {"", "no video that can be read"},
      {"no video at all", "no video that can be read"},
      // A playlist names other files, which are never opened.
      {"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n",
       "no video that can be read"},
      {"ffconcat version 1.0\nfile /etc/passwd\n", "no video that can be read"},
  };
  for (const auto& [bytes, reason] : files) {
    const std::string path = VideoPath("strange");
    std::ofstream(path, std::ios::binary) << bytes;
    const absl::Status status = ReadSome(&reader, OpenVideo(path));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(reason));
  }
  const std::string audio = VideoPath("audio.mp4");
  RunFfmpeg(absl::StrCat("-f lavfi -i sine=duration=1 -c:a aac ", audio));
  EXPECT_THAT(ReadSome(&reader, OpenVideo(audio)).message(),
              HasSubstr("no video stream"));
}

TEST_F(DamagedVideoTest, AFileThatWasCutShortIsNoShorterVideo) {
  VideoReader reader(1);
  const auto read = [&](const std::string& bytes, size_t lost) {
    const std::string path = VideoPath("cut");
    std::ofstream(path, std::ios::binary)
        << bytes.substr(0, bytes.size() - lost);
    return reader.ReadFacts(OpenVideo(path).bytes).status();
  };
  constexpr char kH264[] = "-c:v libx264 -g 30 -pix_fmt yuv420p";
  const std::string fragments = absl::StrCat(kH264, " -movflags ");
  for (const auto& [name, arguments] :
       std::vector<std::pair<std::string, std::string>>{
           {"whole.mp4", absl::StrCat(kH264, " -movflags faststart")},
           {"whole.mov", absl::StrCat(fragments, "frag_keyframe+empty_moov")},
           {"indexed.mp4",
            absl::StrCat(fragments,
                         "frag_keyframe+empty_moov+default_base_moof"
                         "+global_sidx+skip_trailer")},
           {"whole.mkv", kH264},
           {"whole.webm", "-c:v libvpx -b:v 100k"},
           {"whole.avi", "-c:v mpeg4"}}) {
    const std::string whole =
        ReadFile(MakeVideo(name, "64x48", "2", arguments));
    EXPECT_EQ(read(whole, 0), absl::OkStatus()) << name;
    for (const size_t lost : {whole.size() / 10, whole.size() / 5}) {
      const absl::Status status = read(whole, lost);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << name << " " << status;
      EXPECT_THAT(status.message(), HasSubstr("the file was cut short"))
          << name;
    }
    // Between two fragments, the index alone shows it.
    if (name != "indexed.mp4") continue;
    EXPECT_THAT(read(whole, whole.size() - (whole.rfind("moof") - 4)).message(),
                HasSubstr("the file was cut short"));
  }
  // They say no length. What is there is the video.
  const std::string stream =
      ReadFile(MakeVideo("whole.ts", "64x48", "2", kH264));
  EXPECT_TRUE(read(stream, stream.size() / 3).ok());
  const std::string live = ReadFile(
      MakeVideo("live.mkv", "64x48", "2", absl::StrCat(kH264, " -live 1")));
  EXPECT_TRUE(read(live, live.size() / 3).ok());
}

TEST_F(DamagedVideoTest, AProcessThatDiedIsReplaced) {
  const OpenVideo video(
      MakeVideo("killed.mp4", "64x48", "1", "-c:v libx264 -pix_fmt yuv420p"));
  HelperCounters counters;
  DecoderProcess process({.counters = &counters});
  ASSERT_TRUE(process.ReadFacts(video.bytes).ok());
  EXPECT_EQ(process.starts(), 1u);
  kill(process.process(), SIGSEGV);
  const auto facts = process.ReadFacts(video.bytes);
  EXPECT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(process.starts(), 2u);
  // The list of packets died with it, and is made again.
  kill(process.process(), SIGSEGV);
  int frames = 0;
  const absl::Status decoded = process.Decode(
      video.bytes, *facts, {0, 29},
      [&](uint32_t, const DecodedFrame&) {
        ++frames;
        return absl::OkStatus();
      },
      /*is_listed=*/true);
  EXPECT_TRUE(decoded.ok()) << decoded;
  EXPECT_EQ(frames, 2);
  EXPECT_EQ(process.starts(), 3u);
  // Killed from outside: nothing is known of the file.
  kill(process.process(), SIGKILL);
  EXPECT_TRUE(process.ReadFacts(video.bytes).ok());
  // Too much processor time: another machine may be faster.
  kill(process.process(), SIGPROF);
  const absl::Status slow = process.ReadFacts(video.bytes).status();
  EXPECT_EQ(slow.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(slow.message(), HasSubstr("processor time"));
  const auto facts_again = process.ReadFacts(video.bytes);
  ASSERT_TRUE(facts_again.ok());
  // Frames that the caller gives up.
  const uint32_t first = 0;
  EXPECT_EQ(process
                .Decode(video.bytes, *facts_again, {&first, 1},
                        [](uint32_t, const DecodedFrame&) {
                          return absl::CancelledError("enough");
                        })
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(process.process(), -1);
  EXPECT_EQ(counters.starts.value(), 5u);
  EXPECT_EQ(process.starts(), 5u);
  EXPECT_THAT(
      EndsOf(counters),
      UnorderedElementsAre(Pair("crash", 2), Pair("killed", 1),
                           Pair("processor_time", 1), Pair("abandoned", 1)));
}

TEST_F(DamagedVideoTest, AProcessThatHangsIsEnded) {
  const OpenVideo video(
      MakeVideo("hangs.mp4", "64x48", "1", "-c:v libx264 -pix_fmt yuv420p"));
  DecoderProcess::Options options;
  options.patience = absl::Seconds(2);
  HelperCounters counters;
  options.counters = &counters;
  DecoderProcess process(options);
  ASSERT_TRUE(process.ReadFacts(video.bytes).ok());
  kill(process.process(), SIGSTOP);
  EXPECT_TRUE(process.ReadFacts(video.bytes).ok());
  EXPECT_EQ(process.starts(), 2u);
  EXPECT_THAT(EndsOf(counters), UnorderedElementsAre(Pair("silence", 1)));
}

TEST_F(DamagedVideoTest, LongVideosTakeNoMoreMemory) {
  const std::string minute =
      MakeVideo("minute.mp4", "64x48", "60",
                "-c:v libx264 -preset ultrafast -g 60 -pix_fmt yuv420p");
  const std::string hours = VideoPath("hours.mp4");
  RunFfmpeg(absl::StrCat("-stream_loop 119 -i ", minute, " -c copy ", hours));
  const OpenVideo video(hours);
  DecoderProcess process({});
  const auto facts = process.ReadFacts(video.bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->frames(), 120u * 60 * 30);
  EXPECT_NEAR(facts->seconds, 7200, 1);
  // Headers alone: the frames of the file are not read.
  EXPECT_LT(facts->bytes_read, video.bytes.bytes / 2);
  std::vector<uint32_t> wanted;
  for (uint32_t i = 0; i < 64; ++i) wanted.push_back(i * 3374);
  int taken = 0;
  const absl::Status status = process.Decode(
      video.bytes, *facts, wanted, [&](uint32_t, const DecodedFrame&) {
        ++taken;
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(taken, 64);
  EXPECT_LT(PacketsToDecode(facts->table, wanted), 64u * 61);
  std::ifstream file(absl::StrCat("/proc/", process.process(), "/status"));
  uint64_t most_kib = 0;
  for (std::string word; file >> word;) {
    if (word == "VmHWM:") file >> most_kib;
  }
  std::cout << "resident at most: " << most_kib << " KiB\n";
  EXPECT_GT(most_kib, 1000u);
#if !defined(BALLAST_ASAN)
  EXPECT_LT(most_kib, 150'000u);
#endif
}

}  // namespace
}  // namespace ballast
