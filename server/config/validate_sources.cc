#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/config/config_validate.h"
#include "server/config/path_pattern.h"
#include "server/config/row_filter.h"
#include "server/storage/store_url.h"

namespace ballast {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '-';
}

// The checks of one source, whose key is `key`, such as "sources[0]".
class SourceCheck {
 public:
  SourceCheck(const v1::Source& source, std::string key, KeyReport* report)
      : source_(source), key_(std::move(key)), report_(*report) {}

  void Run() {
    Require("name", "a name for the source");
    Require("format", "one of webdataset, jsonl, mock, parquet, energon");
    CheckName();
    if (!IsSound("format")) return;
    if (source_.format() == v1::Source::FORMAT_MOCK) {
      Refuse("path", "format mock", "no files");
      Require("lengths", "the lengths that a mock source draws");
      if (IsSound("images")) CheckImages();
    } else {
      Refuse("images", "files to read", "them for format: mock alone");
      Refuse("vocabulary", "files to read", "it for format: mock alone");
      Refuse("lengths", "files to read", "them for format: mock alone");
      Require("path", "the source's files");
      CheckPath();
    }
    if (source_.format() != v1::Source::FORMAT_JSONL &&
        source_.format() != v1::Source::FORMAT_PARQUET) {
      Refuse("media_root", "a format other than jsonl and parquet",
             "it for format: jsonl or parquet");
    }
    CheckUrl("media_root", source_.media_root());
    if (IsSound("index") && IsStoreUrl(source_.index())) {
      report_.AddFault(ChildKey(key_, "index"),
                       "found a store; wanted a file on a disk, which servers "
                       "map into memory");
    }
    if (source_.format() == v1::Source::FORMAT_MOCK && IsSound("lengths")) {
      CheckLengths();
    }
    if (source_.format() != v1::Source::FORMAT_ENERGON) {
      Refuse("energon", "a format other than energon",
             "it for format: energon alone");
    }
    if (source_.format() == v1::Source::FORMAT_PARQUET) {
      CheckParquet();
    } else {
      for (const char* name :
           {"preset", "columns", "filters", "shuffle_groups"}) {
        Refuse(name, "a format other than parquet",
               "it for format: parquet alone");
      }
    }
  }

 private:
  // Returns whether the file contains the key and no fault was found in it so
  // far.
  bool IsSound(absl::string_view name) const {
    const std::string key = ChildKey(key_, name);
    return report_.Has(key) && !report_.IsFaulty(key);
  }

  void Require(absl::string_view name, absl::string_view wanted) {
    const std::string key = ChildKey(key_, name);
    if (!report_.Has(key)) report_.AddMissing(key, wanted);
  }

  // Does nothing if `beside` is empty.
  void Refuse(absl::string_view name, absl::string_view beside,
              absl::string_view wanted) {
    if (!IsSound(name) || beside.empty()) return;
    report_.AddFault(ChildKey(key_, name), absl::StrCat("found beside ", beside,
                                                        "; wanted ", wanted));
  }

  void CheckName() {
    const std::string& name = source_.name();
    if (!IsSound("name") ||
        std::all_of(name.begin(), name.end(), IsNameCharacter)) {
      return;
    }
    report_.AddFault(ChildKey(key_, "name"),
                     absl::StrCat("found ", Shown(name),
                                  "; wanted only letters, digits, _ and -"));
  }

  void CheckPath() {
    if (!IsSound("path")) return;
    if (source_.format() == v1::Source::FORMAT_ENERGON) {
      // One path, as it is written.
      return CheckUrl("path", source_.path());
    }
    const auto names = ExpandBraces(source_.path());
    if (names.ok()) {
      if (!names->empty()) CheckUrl("path", names->front());
      return;
    }
    report_.AddFault(
        ChildKey(key_, "path"),
        absl::StrCat("found ", Shown(source_.path()), "; wanted a path: ",
                     std::string(names.status().message())));
  }

  // The message alone: a URL may hold a password.
  void CheckUrl(absl::string_view name, const std::string& path) {
    if (!IsSound(name) || !IsStoreUrl(path)) return;
    const absl::Status parsed = ParseStoreUrl(path).status();
    if (parsed.ok()) return;
    report_.AddFault(ChildKey(key_, name), std::string(parsed.message()));
  }

  void CheckLengths() {
    Require("lengths.mode", "one of lognormal, file");
    if (!IsSound("lengths.mode")) return;
    const v1::Source::Lengths& lengths = source_.lengths();
    const std::vector<const char*> drawn = {"lengths.min", "lengths.max",
                                            "lengths.mean", "lengths.sigma"};
    if (lengths.mode() == v1::Source::Lengths::MODE_FILE) {
      Require("lengths.path", "a file with one length a line");
      for (const char* name : drawn) {
        Refuse(name, "mode file", "it for mode: lognormal alone");
      }
      Refuse("lengths.count", "mode file", "it for mode: lognormal alone");
      return;
    }
    Refuse("lengths.path", "mode lognormal", "it for mode: file alone");
    for (const char* name : drawn) Require(name, "a number for the draw");
    CheckOrder("lengths", lengths.min(), lengths.max());
  }

  void CheckImages() {
    const v1::Source::Images& images = source_.images();
    CheckOrder("images", images.min(), images.max());
    Require("images.pixels", "what their sizes are drawn from");
    if (!IsSound("images.pixels")) return;
    for (const char* name : {"images.pixels.min", "images.pixels.max",
                             "images.pixels.mean", "images.pixels.sigma"}) {
      Require(name, "a number for the draw");
    }
    CheckOrder("images.pixels", images.pixels().min(), images.pixels().max());
  }

  void CheckParquet() {
    Refuse("preset", IsSound("columns") ? "columns" : "", "one of the two");
    if (IsSound("columns")) CheckColumns();
    for (int i = 0; i < source_.filters_size(); ++i) {
      const std::string key = ItemKey(ChildKey(key_, "filters"), i);
      if (report_.IsFaulty(key)) continue;
      const auto filter = ParseRowFilter(source_.filters(i));
      if (filter.ok()) continue;
      report_.AddFault(key, std::string(filter.status().message()));
    }
  }

  void CheckColumns() {
    Refuse("columns.image", IsSound("columns.images") ? "columns.images" : "",
           "one of the two");
    int texts = 0;
    for (const char* name : {"conversations", "messages", "texts"}) {
      if (report_.Has(ChildKey(ChildKey(key_, "columns"), name))) ++texts;
    }
    if (texts == 1) return;
    report_.AddFault(
        ChildKey(key_, "columns"),
        absl::StrCat("found ", texts, " columns of text; wanted one of ",
                     "conversations, messages, texts"));
  }

  void CheckOrder(absl::string_view section, uint32_t min, uint32_t max) {
    const std::string low = absl::StrCat(section, ".min");
    const std::string high = absl::StrCat(section, ".max");
    if (!IsSound(low) || !IsSound(high) || min <= max) return;
    report_.AddFault(
        ChildKey(key_, low),
        absl::StrCat("found ", min, "; wanted at most ", high, ", ", max));
  }

  const v1::Source& source_;
  const std::string key_;
  KeyReport& report_;
};

}  // namespace

void ValidateSources(const v1::Config& config, KeyReport* report) {
  if (!report->Has("sources")) {
    return report->AddMissing("sources", "a list of at least one source");
  }
  absl::flat_hash_map<std::string, int> names;
  absl::flat_hash_map<std::string, int> indexes;
  const auto check_unique = [report](
                                const std::string& key, int i,
                                absl::string_view member,
                                const std::string& value,
                                absl::flat_hash_map<std::string, int>* seen) {
    const auto [first, is_new] = seen->emplace(value, i);
    if (is_new) return;
    report->AddFault(
        ChildKey(key, member),
        absl::StrCat("found ", Shown(value), ", which sources[", first->second,
                     "] has, too; wanted a different one for each source"));
  };
  for (int i = 0; i < config.sources_size(); ++i) {
    const v1::Source& source = config.sources(i);
    const std::string key = ItemKey("sources", i);
    if (report->IsFaulty(key)) continue;
    SourceCheck(source, key, report).Run();
    if (report->IsFaulty(ChildKey(key, "name"))) continue;
    check_unique(key, i, "name", source.name(), &names);
    if (report->IsFaulty(ChildKey(key, "name")) ||
        report->IsFaulty(ChildKey(key, "index"))) {
      continue;
    }
    check_unique(key, i, "index", source.index(), &indexes);
  }
  const bool trains = std::any_of(
      config.sources().begin(), config.sources().end(),
      [](const v1::Source& s) { return s.split() == v1::SPLIT_TRAIN; });
  if (!trains && config.sources_size() > 0) {
    report->AddFault(
        "sources",
        absl::StrCat("found ", config.sources_size(),
                     " with `split: valid` or `split: test`; wanted at least "
                     "one with `split: train`, which is the default"));
  }
}

}  // namespace ballast
