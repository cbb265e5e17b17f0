#ifndef BALLAST_CLIENT_BALLASTCTL_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_VIEW_H_

#include <cstddef>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Text for a terminal of 80 columns, of what a server says: nothing in it
// steers the terminal. Thread-compatible.
class View {
 public:
  static constexpr size_t kWidth = 80;

  // What is beyond `lines` lines is dropped.
  explicit View(int lines = std::numeric_limits<int>::max());

  int left() const { return left_; }  // lines that it still takes
  // One line; what is beyond the width is cut off. One byte a column: others
  // than ASCII's become "?".
  void Add(absl::string_view line);
  // Broken at spaces, further lines `indent` to the right. Words that are
  // longer, such as paths, stay whole and UTF-8 stays as it is: they are to be
  // copied.
  void AddWrapped(size_t indent, absl::string_view text);
  // "KEY          VALUE", wrapped.
  void AddField(absl::string_view key, absl::string_view value);

  std::string Take() && { return std::move(text_); }

 private:
  void Put(absl::string_view line);

  int left_;
  std::string text_;
};

// A line a client, under titles, furthest behind first; after `most` of them
// how many more there are. Nothing where there are none.
void AddClients(const v1::GetStatusResponse& status, int most, View* view);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_VIEW_H_
