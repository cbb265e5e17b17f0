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

const Added* Find(absl::string_view name) {
  for (const Added& added : AllAdded()) {
    if (added.row.words.name == name) return &added;
  }
  return nullptr;
}

}  // namespace

MediumKind AddRowsKind(const RowsKind& row) {
  const MediumKind kind = AddMediumKind(row.words);
  AllAdded().push_back({kind, row});
  AddRowsModule(row.words.name, row.unit);
  return kind;
}

const RowsKind* FindRowsKind(absl::string_view name) {
  const Added* added = Find(name);
  return added == nullptr ? nullptr : &added->row;
}

absl::StatusOr<std::unique_ptr<RowsRule>> OpenRowsRule(
    const v1::MediumFamily& family) {
  const Added* added = Find(family.kind());
  if (added == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "medium.kind: found \"", family.kind(),
        "\", which this server's table of kinds of media does not have"));
  }
  return added->row.open(added->kind, family);
}

}  // namespace ballast
