#include "client/ballastctl/view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ballastctl/quantities.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

constexpr size_t kKeyWidth = 13;

const char* StateText(v1::GetStatusResponse::Client::State state) {
  switch (state) {
    case v1::GetStatusResponse::Client::STATE_WAITS_FOR_BLOCK:
      return "waits for a block";
    case v1::GetStatusResponse::Client::STATE_SENDING:
      return "is sent a block";
    case v1::GetStatusResponse::Client::STATE_HOLDS_BACK:
      return "has no room";
    default:
      return "";
  }
}

}  // namespace

View::View(ViewSize size)
    : left_(std::max(size.lines, 1)),
      width_(std::clamp(size.columns, 1, ViewSize().columns)) {}

void View::Put(absl::string_view line) {
  if (left_ == 0) return;
  --left_;
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  absl::StrAppend(&text_, line, "\n");
}

void View::Add(absl::string_view line) {
  std::string printable = Printable(line.substr(0, width_));
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  Put(printable);
}

void View::AddWrapped(size_t indent, absl::string_view text) {
  const std::string printable = Printable(text);
  const std::string margin(indent, ' ');
  std::string line;
  bool begun = false;
  for (const absl::string_view word : absl::StrSplit(printable, ' ')) {
    if (begun && line.size() + 1 + word.size() > width_) {
      Put(line);
      line = absl::StrCat(margin, word);
    } else {
      absl::StrAppend(&line, begun ? " " : "", word);
    }
    begun = true;
  }
  Put(line);
}

void View::AddField(absl::string_view key, absl::string_view value) {
  AddWrapped(kKeyWidth, absl::StrFormat("%-*s%s", kKeyWidth, key, value));
}

void AddClients(const v1::GetStatusResponse& status, int most, View* view) {
  if (status.clients().empty()) return;
  view->Add(absl::StrFormat("%-14s %12s %7s  %-18s %8s %10s  %s", "client",
                            "step", "behind", "state", "for", "holds", ""));
  const int shown = std::min(most, status.clients_size());
  for (int i = 0; i < shown; ++i) {
    const v1::GetStatusResponse::Client& client = status.clients(i);
    view->Add(absl::StrFormat(
        "%-14s %12s %7d  %-18s %8s %10s  %s",
        absl::StrCat(SplitWord(client.role().split()),
                     ModuleName(client.role().module()), " ",
                     client.role().dp_rank()),
        absl::StrCat(client.step(), ".", client.micro_batch()), client.lag(),
        StateText(client.state()), SecondsText(client.seconds()),
        BytesText(client.held_bytes()),
        client.shared_memory() ? "shm" : "net"));
  }
  if (status.clients_total() > static_cast<uint64_t>(shown)) {
    view->Add(absl::StrFormat("and %d more, not as far behind",
                              status.clients_total() - shown));
  }
}

}  // namespace ballast
