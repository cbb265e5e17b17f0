#ifndef BALLAST_CLIENT_BALLASTCTL_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_VIEW_H_

#include <cstddef>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Size of a view: at least one line and one column.
struct ViewSize {
  int lines = std::numeric_limits<int>::max();
  int columns = 80;  // further ones stay unused
};

// A server's text for a terminal of 80 columns or fewer, without characters
// that control the terminal. Thread-compatible.
class View {
 public:
  // Further lines are dropped.
  explicit View(ViewSize size = {});

  int left() const { return left_; }  // lines that still fit
  size_t width() const { return width_; }
  // Adds one line, cut off at the width. One byte per column: bytes beyond
  // ASCII become "?".
  void Add(absl::string_view line);
  // Adds text broken at spaces, further lines indented by `indent`. Longer
  // words, such as paths, stay whole and UTF-8 stays unchanged, so that they
  // can be copied.
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

// Adds a titled list of clients, furthest behind first: at most `most` lines,
// then the number of the others. Adds nothing without clients.
void AddClients(const v1::GetStatusResponse& status, int most, View* view);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_VIEW_H_
