#ifndef BALLAST_SERVER_SAMPLE_DATA_FAULT_H_
#define BALLAST_SERVER_SAMPLE_DATA_FAULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Bounds on one sample, checked before memory is allocated for it. A sample
// beyond them is bad.
inline constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
// Text and encoded images of a sample together; with the videos in a tar file.
inline constexpr uint64_t kMaxSampleBytes = uint64_t{1} << 30;
inline constexpr uint32_t kMaxImages = 10'000;
inline constexpr uint32_t kMaxVideos = 1'000;
// Memory that a row group of a Parquet file may take: a decoder reads it whole.
inline constexpr uint64_t kMaxRowGroupBytes = uint64_t{2} << 30;
// From a sample's first byte in its file to its last, including ignored
// members. The index stores it, like a line's number, in 32 bits.
inline constexpr uint64_t kMaxSampleSpan = 0xFFFFFFFF;
inline constexpr uint64_t kMaxLineNumber = 0xFFFFFFFF;

// OK if `path`, from a dataset, can be a path: UTF-8, 1 to 4096 bytes, without
// control characters (so messages can show it as it is). Otherwise
// INVALID_ARGUMENT with the path and the reason.
absl::Status CheckPathText(absl::string_view path);

// The same of a path that is followed as it is: it must also be relative and
// free of `..`.
absl::Status CheckDataPath(absl::string_view path);

// Formats `bytes` of a dataset for messages. Escapes control characters, and
// non-ASCII bytes unless the whole is UTF-8. Cuts after 200 bytes.
std::string Printable(absl::string_view bytes);

// Kinds of bad samples that `ballast-server index` counts at its end, so that a
// thousand samples of one cause are seen as one: "image is a URL". A status of
// a bad sample may carry one. Kinds of images and videos are MediaKind of:
inline constexpr char kMissing[] = "missing";
inline constexpr char kIsUrl[] = "is a URL";
inline constexpr char kInZip[] = "in a zip archive";
// A path that leads to none of the folders that media_root names.
inline constexpr char kOutside[] = "path outside of media_root";
inline constexpr char kTooLong[] = "too long";
// What a recipe refuses, or does otherwise than when its source was indexed.
inline constexpr char kByRecipe[] = "refused by the recipe";
// Tools, reasoning and what else only the checkpoint's own template writes.
inline constexpr char kForOwnTemplate[] = "for chat_template: checkpoint";

// The kind of what has befallen an "image" or a "video".
inline std::string MediaKind(absl::string_view medium,
                             absl::string_view cause) {
  return absl::StrCat(medium, " ", cause);
}

inline constexpr char kBadKindUrl[] = "ballast/bad_kind";

// `status`, which must not be OK, with its kind.
inline absl::Status OfKind(absl::Status status, absl::string_view kind) {
  status.SetPayload(kBadKindUrl, absl::Cord(kind));
  return status;
}

// The kind of `status`; empty if it has none.
inline std::string GetBadKind(const absl::Status& status) {
  const auto kind = status.GetPayload(kBadKindUrl);
  return kind.has_value() ? std::string(*kind) : "";
}

// A data fault: the bytes of a sample alone decide that it cannot be used (a
// damaged image, text that is not UTF-8, bytes other than those indexed, an
// image that needs more memory than a fixed limit). Every server that reads the
// same bytes finds the same fault. A placeholder may replace the sample.
//
// Everything else is a transient fault: whatever a machine, a time limit, a
// signal, a changed file or a lack of memory causes. It may be gone at the next
// attempt or at another server, and must never lead to a placeholder.
//
// The code that finds a fault decides its kind, once:
//   data fault       DataFaultError(reason), or a DataFault
//   transient fault  any other status, whatever its code
// Where functions return statuses, a DataFault travels as a status with a mark
// (ToStatus), which Annotate keeps and ToDataFault finds. A status without the
// mark never becomes a DataFault: a new error is transient until somebody who
// knows the bytes says otherwise. docs/decisions/0066 lists every fault with
// its kind.
class DataFault {
 public:
  explicit DataFault(std::string reason) : reason_(std::move(reason)) {}

  // For messages: what was found and what was wanted.
  const std::string& reason() const { return reason_; }

  // The same fault with "CONTEXT: " before the reason.
  DataFault In(absl::string_view context) const {
    return DataFault(absl::StrCat(context, ": ", reason_));
  }

  // The fault as a status: INVALID_ARGUMENT with the mark.
  absl::Status ToStatus() const {
    absl::Status status = absl::InvalidArgumentError(reason_);
    status.SetPayload(kMarkUrl, absl::Cord());
    return status;
  }

  friend bool operator==(const DataFault&, const DataFault&) = default;

 private:
  friend absl::Status AsDataFault(absl::Status status);
  friend bool IsDataFault(const absl::Status& status);

  static constexpr char kMarkUrl[] = "ballast/data_fault";

  std::string reason_;
};

// DataFault(reason).ToStatus(): for code that returns statuses.
inline absl::Status DataFaultError(absl::string_view reason) {
  return DataFault(std::string(reason)).ToStatus();
}

// `status`, which must not be OK, as a data fault: for code whose callers look
// at its code, too.
inline absl::Status AsDataFault(absl::Status status) {
  status.SetPayload(DataFault::kMarkUrl, absl::Cord());
  return status;
}

// Whether `status` carries a data fault.
inline bool IsDataFault(const absl::Status& status) {
  return status.GetPayload(DataFault::kMarkUrl).has_value();
}

// The data fault that `status` carries, with the context that Annotate added;
// nullopt if it is OK or a transient fault.
inline std::optional<DataFault> ToDataFault(const absl::Status& status) {
  if (!IsDataFault(status)) return std::nullopt;
  return DataFault(std::string(status.message()));
}

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

// Splits `parsed`: a status that carries a data fault becomes one.
template <typename T>
absl::StatusOr<FaultOr<T>> SeparateFault(absl::StatusOr<T> parsed) {
  if (parsed.ok()) return FaultOr<T>(*std::move(parsed));
  std::optional<DataFault> fault = ToDataFault(parsed.status());
  if (fault.has_value()) return FaultOr<T>(*std::move(fault));
  return parsed.status();
}

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_DATA_FAULT_H_
