#include "client/ballastctl/video_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/ballastctl/quantities.h"

namespace ballast {

std::vector<std::pair<std::string, std::string>> VideoFields(
    const v1::GetStatusResponse::Videos& videos) {
  const uint64_t frames = videos.frames() + videos.frames_checked();
  std::vector<std::pair<std::string, std::string>> fields = {
      {"videos",
       absl::StrCat(CountText(videos.videos()), " decoded, ",
                    CountText(videos.frames()), " frames",
                    frames == 0
                        ? ""
                        : absl::StrCat(", ",
                                       SecondsText(videos.decode_seconds() /
                                                   static_cast<double>(frames)),
                                       " each"))}};
  if (videos.videos_checked() > 0) {
    fields.emplace_back(
        "", absl::StrCat(CountText(videos.videos_checked()), " checked, ",
                         CountText(videos.frames_checked()),
                         " frames: language had to know"));
  }
  fields.emplace_back(
      "", absl::StrCat(videos.decoder_starts(), " decoder processes started"));
  for (const auto& end : videos.decoder_ends()) {
    fields.emplace_back(
        "", absl::StrCat(
                end.count(), " of them ended: ",
                absl::StrReplaceAll(Printable(end.reason()), {{"_", " "}})));
  }
  return fields;
}

nlohmann::ordered_json VideosJson(const v1::GetStatusResponse::Videos& videos) {
  nlohmann::ordered_json ends = nlohmann::ordered_json::object();
  for (const auto& end : videos.decoder_ends()) {
    ends[end.reason()] = end.count();
  }
  return {{"videos", videos.videos()},
          {"frames", videos.frames()},
          {"videos_checked", videos.videos_checked()},
          {"frames_checked", videos.frames_checked()},
          {"decode_seconds", videos.decode_seconds()},
          {"decoder_starts", videos.decoder_starts()},
          {"decoder_ends", ends}};
}

}  // namespace ballast
