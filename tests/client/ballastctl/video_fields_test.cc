// What `ballastctl status` says of videos, over made-up answers.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(VideoFieldsTest, ShowsVideosAndWhyTheirDecodersEnded) {
  ServerReport report;
  report.now.emplace();
  EXPECT_THAT(StatusText(report), Not(HasSubstr("videos")));
  EXPECT_FALSE(json::parse(StatusJson(report)).contains("videos"));
  auto* videos = report.now->status.mutable_videos();
  videos->set_videos(1500);
  videos->set_frames(90'000);
  videos->set_videos_checked(10);
  videos->set_frames_checked(600);
  videos->set_decode_seconds(906);
  videos->set_decoder_starts(7);
  auto* end = videos->add_decoder_ends();
  end->set_reason("processor_time");
  end->set_count(3);
  const std::string text = StatusText(report);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  // 906 s for 90,600 frames.
  EXPECT_THAT(text, HasSubstr("videos       1.50 k decoded, 90.0 k frames, "
                              "10.0 ms each\n"));
  EXPECT_THAT(text, HasSubstr("  10 checked, 600 frames"));
  EXPECT_THAT(text, HasSubstr("  7 decoder processes started\n"));
  EXPECT_THAT(text, HasSubstr("  3 of them ended: processor time\n"));
  EXPECT_EQ(json::parse(StatusJson(report))["videos"],
            (json{{"videos", 1500},
                  {"frames", 90'000},
                  {"videos_checked", 10},
                  {"frames_checked", 600},
                  {"decode_seconds", 906.0},
                  {"decoder_starts", 7},
                  {"decoder_ends", {{"processor_time", 3}}}}));
}

}  // namespace
}  // namespace ballast
