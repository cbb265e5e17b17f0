#include "server/delivery/failing_files.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {

bool FailingFiles::MayLog(const std::string& file, absl::Time now,
                          std::string* line) {
  if (lines_.size() >= kMostFiles && lines_.count(file) == 0) {
    std::erase_if(lines_, [now](const auto& entry) {
      return now - entry.second.last >= kBetweenLines;
    });
    if (lines_.size() >= kMostFiles) return false;
  }
  Line& entry = lines_[file];
  if (now - entry.last < kBetweenLines) {
    ++entry.left_out;
    return false;
  }
  if (entry.left_out > 0) {
    absl::StrAppend(line, "; ", entry.left_out,
                    " more failures since the last line");
  }
  entry = {now, 0};
  return true;
}

void FailingFiles::DropForgotten(absl::Time now) const {
  std::erase_if(files_, [now](const auto& entry) {
    return now - entry.second.last > kForgottenAfter;
  });
  std::erase_if(parts_, [this](const auto& entry)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return files_.count(entry.second) == 0;
  });
  any_ = !parts_.empty();
}

void FailingFiles::TriedAgain(const std::string& file,
                              absl::string_view reason) {
  tried_again_.Add();
  std::string line = absl::StrCat("reading again: ", reason);
  {
    MutexLock lock(&mutex_);
    // While it fails for good, the line about that says more.
    if (files_.count(file) != 0 ||
        !MayLog(absl::StrCat("again ", file), clock_->Now(), &line)) {
      return;
    }
  }
  LogWarning(line);
}

void FailingFiles::Failed(const Part& part, const std::string& file,
                          absl::string_view reason) {
  failures_.Add();
  std::string line = absl::StrCat("cannot read ", file, ": ", reason);
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    DropForgotten(now);
    if (files_.count(file) != 0 || files_.size() < kMostFiles) {
      Entry& entry = files_[file];
      if (entry.failures == 0) entry.since = now;
      entry.reason = std::string(reason);
      entry.last = now;
      ++entry.failures;
      if (parts_.size() < kMostSamples && parts_.emplace(part, file).second) {
        ++entry.parts;
      }
      any_ = true;
    }
    if (!MayLog(file, now, &line)) return;
  }
  LogWarning(line);
}

void FailingFiles::Forget(const Part& part) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    const auto found = parts_.find(part);
    if (found == parts_.end()) return;
    const auto file = files_.find(found->second);
    parts_.erase(found);
    if (parts_.empty()) any_ = false;
    if (file == files_.end() || --file->second.parts > 0) return;
    line = absl::StrCat(
        file->first, " can be read again after ",
        absl::FormatDuration(absl::Trunc(clock_->Now() - file->second.since,
                                         absl::Seconds(1))),
        " and ", file->second.failures, " failures");
    files_.erase(file);
  }
  LogInfo(line);
}

std::vector<FailingFiles::File> FailingFiles::List() const {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  std::vector<File> files;
  DropForgotten(now);
  for (const auto& [name, entry] : files_) {
    files.push_back({name, entry.reason, now - entry.since, entry.failures});
  }
  std::stable_sort(
      files.begin(), files.end(),
      [](const File& a, const File& b) { return a.lasts > b.lasts; });
  return files;
}

}  // namespace ballast
