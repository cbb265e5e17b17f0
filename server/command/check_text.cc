#include "server/command/check_text.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/image/engine_jpeg.h"

namespace ballast {

std::string MarksText(const ImageMarkCounts& marks) {
  std::vector<std::string> checks;
  const auto add = [&](ImageCheckResult check, const char* name) {
    const uint64_t count = marks.with(check);
    if (count > 0) checks.push_back(absl::StrCat(count, " ", name));
  };
  add(ImageCheckResult::kClean, "clean");
  add(ImageCheckResult::kUnsound, "unsound");
  add(ImageCheckResult::kChanged, "changed since they were indexed");
  add(ImageCheckResult::kUnchecked, "not checked");
  std::string text = absl::StrCat(
      "  JPEG engines may decode ", marks.marked(), " of ", marks.images,
      " images", checks.empty() ? "" : ": ", absl::StrJoin(checks, ", "), "\n");
  std::vector<std::string> refusals;
  for (size_t i = 0; i < marks.refusals.size(); ++i) {
    if (marks.refusals[i] == 0) continue;
    refusals.push_back(absl::StrCat(
        marks.refusals[i], " ",
        i == 0 ? "not judged"
               : EngineRefusalText(static_cast<EngineRefusal>(i))));
  }
  if (!refusals.empty()) {
    absl::StrAppend(
        &text, "  the server decodes: ", absl::StrJoin(refusals, ", "), "\n");
  }
  return text;
}

std::string CheckText(const SourceCheck& check, const Shard& shard) {
  const CheckReport& report = check.report;
  std::string text = absl::StrCat(check.source, ": ");
  if (shard.count > 1) {
    absl::StrAppend(&text, "shard ", shard.number, "/", shard.count, ": ");
  }
  absl::StrAppend(&text, report.images, " images checked");
  if (report.resumed > 0) {
    absl::StrAppend(&text, ", ", report.resumed, " of them by earlier runs");
  }
  absl::StrAppend(&text, ": ", report.clean, " clean, ", report.unsound,
                  " unsound, ", report.changed, " changed\n");
  for (const UncleanImage& image : report.unclean) {
    absl::StrAppend(&text, "  left to the server: ", image.reason, "\n");
  }
  if (report.unclean.size() == CheckReport::kMostListed) {
    absl::StrAppend(&text, "  and perhaps more\n");
  }
  if (check.is_merged) return text + MarksText(check.marks);
  absl::StrAppend(&text,
                  "  once all shards are checked, `ballast-server index "
                  "--merge` enters their results in the index\n");
  return text;
}

}  // namespace ballast
