#ifndef BALLAST_SERVER_HTTP_HISTORY_JSON_H_
#define BALLAST_SERVER_HTTP_HISTORY_JSON_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "server/monitor/state_history.h"

namespace ballast {

// Most points of an answer: more than a chart has pixels for.
inline constexpr size_t kMostPoints = 360;

// The page's figures over the last `range`, one object:
//   ballast_history 1: the version of this format, which a page that compares
//     jobs reads out of a file
//   server (its name), start (seconds since 1970: the first point)
//   columns ["seconds", HistoryPoint::kColumns...]
//   points [[..]]: one number for each column, or null; in ascending order
std::string HistoryJson(const v1::GetHistoryResponse& history);
std::string HistoryJson(const std::string& server, const StateHistory& history,
                        absl::Duration range);

}  // namespace ballast

#endif  // BALLAST_SERVER_HTTP_HISTORY_JSON_H_
