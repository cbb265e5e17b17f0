#include "trainer_shim/field_table.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer_shim/batch_layout.h"

namespace ballast {

absl::StatusOr<std::shared_ptr<const FieldTable>> MakeFieldTable(
    const v1::Job& job) {
  using Field = v1::Source::Field;
  if (job.fields_size() > static_cast<int>(kMaxFields)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: ", job.fields_size(), " fields, wanted at most ", kMaxFields));
  }
  auto table = std::make_shared<FieldTable>();
  const std::vector<FieldPlace> places =
      PlaceFields(job.fields(), &table->counts);
  std::set<std::string> names;
  for (int i = 0; i < job.fields_size(); ++i) {
    const v1::Job::Field& field = job.fields(i);
    const bool is_known =
        (field.type() == Field::TYPE_FLOAT32 ||
         field.type() == Field::TYPE_INT32) &&
        (field.per() == Field::PER_SAMPLE || field.per() == Field::PER_TURN ||
         field.per() == Field::PER_TOKEN);
    if (!is_known || field.name().empty() ||
        !names.insert(field.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job: field ", i, " \"", field.name(), "\" has type ", field.type(),
          " and per ", field.per(),
          ", wanted a name of its own and what this release knows; is the "
          "server newer?"));
    }
    table->fields.push_back({absl::StrCat("fields.", field.name()),
                             field.type() == Field::TYPE_FLOAT32
                                 ? ElementType::kFloat32
                                 : ElementType::kInt32,
                             places[i], field.per() == Field::PER_TURN});
    if (field.name() == kWeightField && places[i].per_token) {
      table->weight_row = static_cast<int>(places[i].number);
    }
  }
  return std::shared_ptr<const FieldTable>(std::move(table));
}

TensorTable GetFieldRows(const FieldTable& fields) {
  TensorTable rows;
  for (const FieldTable::Field& field : fields.fields) {
    TensorRow& row = rows.emplace_back();
    row.name = field.tensor;
    row.type = field.type;
    row.field = &BatchFields::positions;
    row.memory = Memory::kPacked;
    if (field.place.per_token) {
      row.shape = "[1, L]";
      row.join = Join::kTokens;
      row.contents = field.per_turn
                         ? "of sources[].fields, that of the token's turn; 0 "
                           "in padding"
                         : "of sources[].fields; 0 in padding";
      row.value = [](const BatchInfo& info) { return GetTokens(info); };
    } else {
      row.shape = "[n]";
      row.join = Join::kSequences;
      row.contents = "of sources[].fields";
      row.value = [](const BatchInfo& info) -> std::optional<TensorValue> {
        if (info.text.cu_seqlens.empty()) return std::nullopt;
        return TensorValue{{info.sequences()}};
      };
    }
  }
  return rows;
}

}  // namespace ballast
