#include "server/command/draw/prose.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ballast {

namespace {

constexpr const char* kQualities[] = {"old",     "young", "quiet",   "busy",
                                      "careful", "tired", "proud",   "tall",
                                      "curious", "eager", "patient", "clever"};
constexpr const char* kPeople[] = {
    "baker",  "sailor",  "teacher", "gardener", "printer", "surveyor",
    "doctor", "tailor",  "farmer",  "engineer", "painter", "librarian",
    "porter", "chemist", "miller",  "musician"};

struct Verb {
  const char* past;
  const char* base;
};
constexpr Verb kVerbs[] = {{"counted", "count"},     {"sold", "sell"},
                           {"bought", "buy"},        {"found", "find"},
                           {"repaired", "repair"},   {"drew", "draw"},
                           {"delivered", "deliver"}, {"measured", "measure"}};

struct Number {
  const char* small;
  const char* capital;
};
constexpr Number kNumbers[] = {
    {"two", "Two"},       {"three", "Three"},   {"four", "Four"},
    {"five", "Five"},     {"six", "Six"},       {"seven", "Seven"},
    {"eight", "Eight"},   {"nine", "Nine"},     {"ten", "Ten"},
    {"eleven", "Eleven"}, {"twelve", "Twelve"}, {"twenty", "Twenty"}};
constexpr const char* kThings[] = {"apples",  "lamps",   "maps",   "bricks",
                                   "letters", "bottles", "chairs", "clocks",
                                   "ropes",   "baskets", "coins",  "wheels",
                                   "books",   "tables",  "stamps", "kettles"};
constexpr const char* kPlaces[] = {
    "in Porto",          "near the harbour",    "behind the station",
    "at the old market", "by the river",        "on the second floor",
    "in Leeds",          "outside the library", "under the bridge",
    "before noon",       "after the storm",     "on a rainy Tuesday"};
constexpr const char* kForeignPlaces[] = {
    "in Zürich",   "in Malmö",   "in São Paulo", "in Kraków",
    "at the café", "in 東京",    "in Αθήνα",     "in Київ",
    "in İstanbul", "in القاهرة", "in 서울",      "in मुंबई"};
constexpr const char* kTitleQualities[] = {"Annual", "Winter", "Summer",
                                           "Early",  "Recent", "First"};
constexpr const char* kTitleTopics[] = {"Harbour", "Garden",  "Market",
                                        "Railway", "Library", "Orchard"};
constexpr const char* kTitleKinds[] = {"Report",  "Notes",  "Survey", "Records",
                                       "Letters", "Ledger", "Atlas"};

}  // namespace

Statement MakeStatement(Random* random, bool foreign) {
  const std::string who =
      absl::StrCat(random->Pick(kQualities), " ", random->Pick(kPeople));
  const Verb& verb = random->Pick(kVerbs);
  const Number& number = random->Pick(kNumbers);
  const char* things = random->Pick(kThings);
  const char* place = foreign && random->Chance(50)
                          ? random->Pick(kForeignPlaces)
                          : random->Pick(kPlaces);
  Statement statement;
  statement.sentence = absl::StrCat("The ", who, " ", verb.past, " ",
                                    number.small, " ", things, " ", place, ".");
  statement.question = {
      absl::StrCat("How many ", things, " did the ", who, " ", verb.base, "?"),
      absl::StrCat(number.capital, ".")};
  return statement;
}

std::string MakeTitle(Random* random) {
  std::string title = random->Pick(kTitleQualities);
  if (random->Chance(50)) {
    absl::StrAppend(&title, " ", random->Pick(kTitleTopics));
  }
  absl::StrAppend(&title, " ", random->Pick(kTitleKinds));
  return title;
}

std::vector<std::string> WrapText(absl::string_view text, int columns) {
  std::vector<std::string> lines;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!lines.empty() &&
        lines.back().size() + 1 + word.size() <= static_cast<size_t>(columns)) {
      absl::StrAppend(&lines.back(), " ", word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

}  // namespace ballast
