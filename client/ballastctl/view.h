#ifndef BALLAST_CLIENT_BALLASTCTL_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_VIEW_H_

#include <cstddef>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Where a view is shown: at least one line and one column.
struct ViewSize {
  int lines = std::numeric_limits<int>::max();
  int columns = 80;  // more are not made use of
};

// Text for a terminal of 80 columns or fewer, of what a server says: nothing in
// it steers the terminal. Thread-compatible.
class View {
 public:
  // What is beyond the lines is dropped.
  explicit View(ViewSize size = {});

  int left() const { return left_; }  // lines that it still takes
  size_t width() const { return width_; }
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
  const size_t width_;
  std::string text_;
};

// A line a client, under titles, furthest behind first; after `most` of them
// how many more there are. Nothing where there are none.
void AddClients(const v1::GetStatusResponse& status, int most, View* view);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_VIEW_H_
