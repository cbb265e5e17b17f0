#include "server/serve/monitor/problem_board.h"

#include <algorithm>
#include <iterator>

namespace ballast {

void SortProblems(size_t most, Problems* problems) {
  const auto key = [](const v1::GetStatusResponse::Problem& problem) {
    const auto kind = std::find(std::begin(kProblemKinds),
                                std::end(kProblemKinds), problem.kind());
    return std::make_pair(kind - std::begin(kProblemKinds), -problem.seconds());
  };
  std::stable_sort(
      problems->begin(), problems->end(),
      [&key](const auto& a, const auto& b) { return key(a) < key(b); });
  if (problems->size() > most) problems->resize(most);
}

void ProblemBoard::Set(absl::string_view kind, const std::string& subject,
                       absl::string_view text) {
  const std::pair<std::string, std::string> key(kind, subject);
  MutexLock lock(&mutex_);
  if (text.empty()) {
    entries_.erase(key);
    return;
  }
  const auto [entry, is_new] = entries_.try_emplace(key);
  if (is_new) entry->second.since = clock_->Now();
  entry->second.text = std::string(text);
}

Problems ProblemBoard::List() const {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  Problems problems;
  for (const auto& [key, entry] : entries_) {
    v1::GetStatusResponse::Problem& problem = problems.emplace_back();
    problem.set_kind(key.first);
    problem.set_subject(key.second);
    problem.set_text(entry.text);
    problem.set_seconds(absl::ToDoubleSeconds(now - entry.since));
  }
  return problems;
}

}  // namespace ballast
