#ifndef BALLAST_SERVER_SETTINGS_SOURCE_FIELDS_H_
#define BALLAST_SERVER_SETTINGS_SOURCE_FIELDS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"

namespace ballast {

class KeyReport;

// One of sources[].fields.
struct FieldSpec {
  std::string name;
  v1::Source::Field::Type type = v1::Source::Field::TYPE_FLOAT32;
  v1::Source::Field::Per per = v1::Source::Field::PER_SAMPLE;
  std::optional<double> missing;  // the value where a record has none
};

// The fields of `source`, in the order of their names.
std::vector<FieldSpec> GetFieldSpecs(const v1::Source& source);

// The fields of a job; all of its sources have the same ones.
std::vector<v1::Job::Field> GetJobFields(const v1::Config& config);

// All that decides what a record's fields are: one line each, "" without any.
std::string FieldsKey(const v1::Source& source);

// Adds the entries of a fingerprint.
void AddFieldEntries(const v1::Config& config,
                     std::map<std::string, std::string>* entries);

// Checks names, types and formats, and that all sources have the same fields.
void ValidateFields(const v1::Config& config, KeyReport* report);

// One of `sources[].filters`: compares a column of a row with a constant.
struct RowFilter {
  enum class Operator { kEqual, kUnequal, kLess, kAtMost, kGreater, kAtLeast };
  std::string column;
  Operator op = Operator::kEqual;
  // The constant is a text, else a number.
  bool is_text = false;
  double number = 0;
  std::string text;

  // Whether a row passes whose column has this value. Texts compare by bytes.
  bool Passes(double value) const;
  bool Passes(absl::string_view value) const;
};

// Parses COLUMN OP VALUE: a column's name, one of == != < <= > >=, and a finite
// number or a text in double quotes, without escapes. White space between them
// is free; a name may contain spaces, but none of = ! < >. Errors:
// INVALID_ARGUMENT ("found ...; wanted ...").
absl::StatusOr<RowFilter> ParseRowFilter(absl::string_view filter);

}  // namespace ballast

#endif  // BALLAST_SERVER_SETTINGS_SOURCE_FIELDS_H_
