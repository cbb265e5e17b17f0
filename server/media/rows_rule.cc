#include "server/media/rows_rule.h"

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

struct Added {
  MediumKind kind;
  RowsKind row;
};

// Never destroyed.
std::vector<Added>& AllAdded() {
  static auto* const added = new std::vector<Added>();
  return *added;
}

}  // namespace

MediumKind AddRowsKind(const RowsKind& row) {
  const MediumKind kind = AddMediumKind(row.words);
  AllAdded().push_back({kind, row});
  AddRowsModule(row.words.name, row.unit);
  return kind;
}

absl::StatusOr<std::unique_ptr<RowsRule>> OpenRowsRule(
    const v1::MediumFamily& family) {
  for (const auto& [kind, row] : AllAdded()) {
    if (row.words.name == family.kind()) return row.open(kind, family);
  }
  return absl::NotFoundError(absl::StrCat(
      "medium.kind: found \"", family.kind(),
      "\", which this server's table of kinds of media does not have"));
}

}  // namespace ballast
