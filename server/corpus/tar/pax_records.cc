#include "server/corpus/tar/pax_records.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

// Parses decimal digits, and nothing else, up to 2^63-1.
std::optional<uint64_t> ParseDecimal(absl::string_view digits) {
  int64_t value = 0;
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &value)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(value);
}

}  // namespace

absl::StatusOr<PaxRecords> ParsePaxRecords(absl::string_view bytes) {
  PaxRecords records;
  while (!bytes.empty()) {
    const size_t space = bytes.find(' ');
    const std::optional<uint64_t> length =
        ParseDecimal(bytes.substr(0, space == bytes.npos ? 0 : space));
    if (!length || *length > bytes.size() || *length < space + 2 ||
        bytes[*length - 1] != '\n') {
      return AsDataFault(
          absl::DataLossError("tar: pax header with a damaged record"));
    }
    const absl::string_view record =
        bytes.substr(space + 1, *length - space - 2);
    bytes.remove_prefix(*length);
    const size_t equals = record.find('=');
    if (equals == record.npos) {
      return AsDataFault(
          absl::DataLossError("tar: pax header with a record without '='"));
    }
    const absl::string_view key = record.substr(0, equals);
    const absl::string_view value = record.substr(equals + 1);
    if (key == "path") {
      records.path = std::string(value);
    } else if (key == "size") {
      records.size = ParseDecimal(value);
      if (!records.size) {
        return AsDataFault(
            absl::DataLossError("tar: pax header whose size is no number"));
      }
    } else if (absl::StartsWith(key, "GNU.sparse.")) {
      return AsDataFault(
          absl::DataLossError("tar: sparse members are not supported"));
    }
  }
  return records;
}

}  // namespace ballast
