#include "server/corpus/energon/energon_tar.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/data_path.h"

namespace ballast {
namespace {

// Whether the first folder or the name begins with "__" and ends with "__".
bool IsMeta(absl::string_view name) {
  const absl::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && absl::StartsWith(first, "__") &&
         absl::EndsWith(first, "__");
}

}  // namespace

std::optional<EnergonMemberName> ParseEnergonMember(absl::string_view name) {
  if (IsMeta(name)) return std::nullopt;
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == name.npos) return std::nullopt;
  if (dot == base) {
    // "dir/.x" is the part "x" of "dir/": Energon's rule has it so.
    if (base < 2) return std::nullopt;
    const size_t before = name.rfind('/', base - 2);
    const size_t begin = before == name.npos ? 0 : before + 1;
    const absl::string_view folder = name.substr(begin, base - begin);
    if (folder.size() < 2 || absl::StrContains(folder, '.')) {
      return std::nullopt;
    }
  }
  return EnergonMemberName{name.substr(0, dot), name.substr(dot + 1)};
}

EnergonTarReader::EnergonTarReader(FileView file, uint64_t begin, uint64_t end,
                                   bool whole)
    : tar_(file, begin, end, whole) {}

absl::StatusOr<std::optional<EnergonTarSample>> EnergonTarReader::Next() {
  EnergonTarSample& sample = pending_;
  sample = {};
  while (true) {
    if (!next_) {
      BALLAST_ASSIGN_OR_RETURN(next_, tar_.Next());
    }
    if (!next_) break;
    const std::optional<EnergonMemberName> name =
        next_->type == kTarFile ? ParseEnergonMember(next_->name)
                                : std::nullopt;
    if (!name) {
      // Belongs to the bytes of the sample before it.
      if (!sample.key.empty()) sample.end = next_->end;
      next_.reset();
      continue;
    }
    if (!sample.key.empty() && name->key != sample.key) break;
    if (sample.key.empty()) {
      sample.key = std::string(name->key);
      sample.begin = next_->header;
    }
    if (sample.parts.size() == kMaxParts) {
      return AsDataFault(absl::DataLossError(
          absl::StrCat("over ", kMaxParts, " parts of one sample")));
    }
    sample.parts.push_back({std::string(name->part), next_->data, next_->size});
    sample.end = next_->end;
    next_.reset();
  }
  if (sample.key.empty()) return std::nullopt;
  return std::exchange(pending_, {});
}

absl::StatusOr<EnergonTarSample> ReadEnergonSample(FileView file,
                                                   uint64_t begin,
                                                   uint64_t end) {
  if (begin > end || end > file.size()) {
    return AsDataFault(absl::DataLossError(absl::StrCat(
        "no sample in bytes ", begin, " to ", end, " of ", file.size())));
  }
  EnergonTarReader reader(file, begin, end, /*whole=*/false);
  BALLAST_ASSIGN_OR_RETURN(std::optional<EnergonTarSample> sample,
                           reader.Next());
  if (!sample || sample->begin != begin) {
    return AsDataFault(
        absl::DataLossError(absl::StrCat("no sample begins at byte ", begin)));
  }
  BALLAST_ASSIGN_OR_RETURN(const auto more, reader.Next());
  if (more) {
    return AsDataFault(absl::DataLossError(
        absl::StrCat("sample ", Printable(more->key),
                     " stands among the parts of ", Printable(sample->key))));
  }
  sample->end = end;
  return *std::move(sample);
}

}  // namespace ballast
