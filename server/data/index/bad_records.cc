#include "server/data/index/bad_records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "server/files/file.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownRecords = 10;  // of a cause
constexpr size_t kShownCauses = 20;
constexpr int kSummedCauses = 3;
// Bytes of a reason of which a cause is made.
constexpr size_t kMaxCause = 100;

struct CauseCount {
  std::string cause;
  std::vector<const BadSample*> records;
};

// The commonest first; equal ones in the order of their first records.
std::vector<CauseCount> CountCauses(absl::Span<const BadSample> bad) {
  std::vector<CauseCount> causes;
  std::map<std::string, size_t> places;
  for (const BadSample& one : bad) {
    const auto [place, is_new] = places.emplace(GetCause(one), causes.size());
    if (is_new) causes.push_back({place->first, {}});
    causes[place->second].records.push_back(&one);
  }
  std::stable_sort(causes.begin(), causes.end(),
                   [](const CauseCount& a, const CauseCount& b) {
                     return a.records.size() > b.records.size();
                   });
  return causes;
}

// "chat.jsonl at byte 120, sample 3: REASON"
std::string Describe(const BadSample& bad) {
  return OneLine(
      absl::StrCat(bad.file, " at byte ", bad.offset,
                   bad.key.empty() ? "" : absl::StrCat(", sample ", bad.key),
                   ": ", bad.reason));
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace) +
         "\n";
}

// The records that are bad whatever their texts.
uint64_t CountUnreadable(const IndexFile& index) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < index.num_files(); ++i) {
    count += index.file_unreadable(i);
  }
  return count;
}

Json HeadJson(absl::string_view digest, absl::Span<const BadSample> bad) {
  const v1::LeftOut summary = SummariseBad("", 0, bad, 0);
  Json causes = Json::array();
  for (const v1::LeftOut::Cause& cause : summary.causes()) {
    causes.push_back({{"cause", cause.cause()},
                      {"records", cause.records()},
                      {"example", cause.example()}});
  }
  const auto unreadable =
      std::count_if(bad.begin(), bad.end(),
                    [](const BadSample& one) { return !one.has_record; });
  return {{"samples", std::string(digest)},
          {"bad", bad.size()},
          {"unreadable", unreadable},
          {"causes", std::move(causes)}};
}

// Opens the list and reads its head, which is of `index`.
absl::StatusOr<Json> ReadHead(const IndexFile& index, std::ifstream* file) {
  const std::string path = BadRecordsPath(index.path());
  file->open(path);
  if (!*file) return absl::NotFoundError(absl::StrCat(path, ": not there"));
  std::string line;
  std::getline(*file, line);
  Json head = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!head.is_object() || head.value("samples", "") != index.digest() ||
      head.value("unreadable", uint64_t{0}) != CountUnreadable(index)) {
    return absl::DataLossError(
        absl::StrCat(path, ": of another index, or damaged"));
  }
  return head;
}

// A share is never more than it says, but one bad record is no fault of the
// others.
uint64_t MostBad(double share, uint64_t samples, uint64_t bad) {
  // 0.29 * 100 is less than 29.
  constexpr double kRounding = 1e-6;
  const uint64_t most = static_cast<uint64_t>(
      std::floor(share * static_cast<double>(samples + bad) + kRounding));
  return share > 0 && samples > 0 ? std::max<uint64_t>(most, 1) : most;
}

}  // namespace

std::string GetCause(const BadSample& bad) {
  if (!bad.kind.empty()) return bad.kind;
  std::string cause;
  bool follows_own = false;  // a record's own words are one "…"
  for (absl::string_view word :
       absl::StrSplit(bad.reason.substr(0, 4 * kMaxCause), ' ')) {
    // A quoted text, a path, a number, or a name with an ending.
    const size_t dot = word.find('.');
    const bool is_own = word.find_first_of("0123456789/\"") != word.npos ||
                        (dot != word.npos && dot + 2 < word.size());
    if (!is_own) {
      absl::StrAppend(&cause, cause.empty() ? "" : " ", word);
    } else if (!follows_own) {
      absl::StrAppend(&cause, cause.empty() ? "" : " ", "…");
    }
    const bool ends = !word.empty() && absl::StrContains(":;,", word.back());
    if (is_own && ends) cause += word.back();
    follows_own = is_own && !ends;
    if (cause.size() > kMaxCause) break;
  }
  return cause;
}

std::string BadRecordsPath(absl::string_view path) {
  return absl::StrCat(path, ".bad");
}

absl::Status WriteBadRecords(const std::string& path, absl::string_view digest,
                             absl::Span<const BadSample> bad) {
  const std::string list = BadRecordsPath(path);
  if (bad.empty()) {
    std::error_code error;
    std::filesystem::remove(list, error);
    return error ? FileError(error.value(), "remove", list) : absl::OkStatus();
  }
  std::string text = Dump(HeadJson(digest, bad));
  for (const BadSample& one : bad) {
    Json json = {{"file", one.file},
                 {"offset", one.offset},
                 {"sample", one.key},
                 {"cause", GetCause(one)},
                 {"reason", one.reason},
                 {"kind", one.kind},
                 {"has_record", one.has_record}};
    text += Dump(json);
  }
  return WriteFileAtomically(list, {text});
}

absl::StatusOr<std::vector<BadSample>> ReadBadRecords(const IndexFile& index) {
  std::ifstream file;
  BALLAST_ASSIGN_OR_RETURN(const Json head, ReadHead(index, &file));
  std::vector<BadSample> bad;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) break;
    BadSample& one = bad.emplace_back();
    one.file = json.value("file", "");
    one.offset = json.value("offset", uint64_t{0});
    one.key = json.value("sample", "");
    one.reason = json.value("reason", "");
    one.kind = json.value("kind", "");
    one.has_record = json.value("has_record", false);
  }
  if (bad.size() == head.value("bad", uint64_t{0})) return bad;
  return absl::DataLossError(
      absl::StrCat(BadRecordsPath(index.path()), ": damaged"));
}

v1::LeftOut SummariseBad(const std::string& source, uint64_t samples,
                         absl::Span<const BadSample> bad, uint64_t unlisted) {
  v1::LeftOut summary;
  summary.set_source(source);
  summary.set_samples(samples);
  summary.set_bad(bad.size() + unlisted);
  for (const CauseCount& found : CountCauses(bad)) {
    if (summary.causes_size() == kSummedCauses) break;
    v1::LeftOut::Cause& cause = *summary.add_causes();
    cause.set_cause(OneLine(found.cause));
    cause.set_records(found.records.size());
    cause.set_example(Describe(*found.records[0]));
  }
  return summary;
}

v1::LeftOut GetLeftOut(const v1::Source& source, const IndexFile& index) {
  v1::LeftOut left_out;
  left_out.set_source(source.name());
  left_out.set_samples(index.size());
  std::ifstream file;
  const absl::StatusOr<Json> head = ReadHead(index, &file);
  if (!head.ok()) {
    left_out.set_bad(CountUnreadable(index));
    return left_out;
  }
  left_out.set_bad(head->value("bad", uint64_t{0}));
  for (const Json& found : head->value("causes", Json::array())) {
    v1::LeftOut::Cause& cause = *left_out.add_causes();
    cause.set_cause(found.value("cause", ""));
    cause.set_records(found.value("records", uint64_t{0}));
    cause.set_example(found.value("example", ""));
  }
  return left_out;
}

absl::Status CheckLeftOut(const v1::Source& source, const v1::LeftOut& left_out,
                          absl::string_view list) {
  const uint64_t records = left_out.samples() + left_out.bad();
  const uint64_t most =
      MostBad(source.max_bad(), left_out.samples(), left_out.bad());
  if (left_out.bad() <= most) return absl::OkStatus();
  std::string text = absl::StrFormat(
      "source %s: %d of %d records are bad (%.3g%%), and max_bad %g%% lets %d "
      "pass:",
      source.name(), left_out.bad(), records,
      100.0 * static_cast<double>(left_out.bad()) /
          static_cast<double>(records),
      source.max_bad() * 100, most);
  for (const v1::LeftOut::Cause& cause : left_out.causes()) {
    absl::StrAppend(&text, "\n  ", cause.records(), " ", cause.cause(), ", as ",
                    cause.example());
  }
  absl::StrAppend(
      &text, "\nAll are listed in ", list,
      ". Mend the records or the source's keys (media_root, columns, recipe), "
      "or set sources[].max_bad to the share that may be lost, as 5%");
  return absl::FailedPreconditionError(text);
}

std::string DescribeLeftOut(const v1::LeftOut& left_out) {
  if (left_out.bad() == 0) return "";
  std::string text =
      absl::StrCat(left_out.bad(), " of ", left_out.samples() + left_out.bad(),
                   " records left out as bad");
  uint64_t rest = left_out.bad();
  const char* separator = ": ";
  for (const v1::LeftOut::Cause& cause : left_out.causes()) {
    absl::StrAppend(&text, separator, cause.records(), " ", cause.cause());
    rest -= std::min(rest, cause.records());
    separator = ", ";
  }
  if (rest > 0 && left_out.causes_size() > 0) {
    absl::StrAppend(&text, ", ", rest, " other");
  }
  return text;
}

std::string ListBad(absl::Span<const BadSample> bad) {
  std::string text;
  const std::vector<CauseCount> causes = CountCauses(bad);
  for (size_t i = 0; i < std::min(causes.size(), kShownCauses); ++i) {
    const std::vector<const BadSample*>& records = causes[i].records;
    absl::StrAppend(&text, "  bad: ", records.size(), " ",
                    OneLine(causes[i].cause), "\n");
    for (size_t k = 0; k < std::min(records.size(), kShownRecords); ++k) {
      absl::StrAppend(&text, "    ", Describe(*records[k]), "\n");
    }
    if (records.size() > kShownRecords) {
      absl::StrAppend(&text, "    and ", records.size() - kShownRecords,
                      " more\n");
    }
  }
  if (causes.size() > kShownCauses) {
    absl::StrAppend(&text, "  bad: ", causes.size() - kShownCauses,
                    " more causes\n");
  }
  return text;
}

}  // namespace ballast
