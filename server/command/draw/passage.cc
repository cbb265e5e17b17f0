#include "server/command/draw/passage.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/command/draw/prose.h"

namespace ballast {

Passage MakePassage(Random* random) {
  const size_t length = random->Lognormal(800, 0.8, 60, 3900);
  // The most trailing sentences that a question asks to repeat.
  constexpr size_t kCopied = 8;
  std::vector<Statement> statements;
  Passage passage;
  while (passage.text.size() < length) {
    statements.push_back(MakeStatement(random, /*foreign=*/true));
    absl::StrAppend(&passage.text, passage.text.empty() ? "" : " ",
                    statements.back().sentence);
  }
  const size_t count = statements.size();
  const size_t copied = count < kCopied ? count : kCopied;
  std::string copy;
  for (size_t i = count - copied; i < count; ++i) {
    absl::StrAppend(&copy, copy.empty() ? "" : " ", statements[i].sentence);
  }
  passage.questions = {
      statements[random->Below(static_cast<uint32_t>(count))].question,
      {copied == 1 ? "Repeat the last sentence."
                   : absl::StrCat("Repeat the last ", copied, " sentences."),
       copy},
      {"How many sentences does the text have?",
       count == 1 ? "One." : absl::StrCat(count, ".")}};
  return passage;
}

}  // namespace ballast
