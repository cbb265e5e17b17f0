#ifndef BALLAST_SERVER_CORPUS_DATA_FAULT_H_
#define BALLAST_SERVER_CORPUS_DATA_FAULT_H_

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A data fault: the bytes of a sample are bad (a damaged image, text that is
// not UTF-8, bytes other than those indexed). Every server that reads them
// finds the same fault. A placeholder may replace the sample.
//
// A transient fault (I/O error, stale handle, no descriptor, no memory,
// time-out) may be gone at the next attempt or at another server. It is an
// absl::Status, never a DataFault, and must never lead to a placeholder.
class DataFault {
 public:
  explicit DataFault(std::string reason) : reason_(std::move(reason)) {}

  // For messages: what was found and what was wanted.
  const std::string& reason() const { return reason_; }

  // The same fault with "CONTEXT: " before the reason.
  DataFault In(absl::string_view context) const {
    return DataFault(absl::StrCat(context, ": ", reason_));
  }

  friend bool operator==(const DataFault&, const DataFault&) = default;

 private:
  std::string reason_;
};

// A value, or the data fault that prevented it.
template <typename T>
class FaultOr {
 public:
  FaultOr(T value) : held_(std::move(value)) {}          // NOLINT
  FaultOr(DataFault fault) : held_(std::move(fault)) {}  // NOLINT

  bool ok() const { return std::holds_alternative<T>(held_); }
  // Only if !ok().
  const DataFault& fault() const { return std::get<DataFault>(held_); }
  // Only if ok().
  T& operator*() & { return std::get<T>(held_); }
  T&& operator*() && { return std::get<T>(std::move(held_)); }
  const T& operator*() const& { return std::get<T>(held_); }
  T* operator->() { return &std::get<T>(held_); }
  const T* operator->() const { return &std::get<T>(held_); }

 private:
  std::variant<T, DataFault> held_;
};

// The data fault that a parser's or decoder's `status` reports; nullopt if it
// is OK or a transient fault. Parsers report bad bytes as INVALID_ARGUMENT,
// DATA_LOSS or OUT_OF_RANGE. Errors of reading a file never have these codes
// (file.h).
inline std::optional<DataFault> DataFaultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange:
      return DataFault(std::string(status.message()));
    default:
      return std::nullopt;
  }
}

// Splits `parsed`: a status that reports bad bytes becomes a data fault.
template <typename T>
absl::StatusOr<FaultOr<T>> SeparateFault(absl::StatusOr<T> parsed) {
  if (parsed.ok()) return FaultOr<T>(*std::move(parsed));
  std::optional<DataFault> fault = DataFaultOf(parsed.status());
  if (fault.has_value()) return FaultOr<T>(*std::move(fault));
  return parsed.status();
}

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_DATA_FAULT_H_
