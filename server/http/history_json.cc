#include "server/http/history_json.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace ballast {

std::string HistoryJson(const std::string& server, const StateHistory& history,
                        absl::Duration range) {
  using Json = nlohmann::ordered_json;
  Json columns = Json::array({"seconds"});
  for (const char* column : HistoryPoint::kColumns) columns.push_back(column);
  Json points = Json::array();
  for (const HistoryPoint& point : history.Points(range, kMostPoints)) {
    Json row = Json::array({point.seconds});
    // A number that is none becomes null.
    for (const double value : point.values) row.push_back(value);
    points.push_back(std::move(row));
  }
  const Json json = {{"ballast_history", 1},
                     {"server", server},
                     {"start", history.start_seconds()},
                     {"columns", std::move(columns)},
                     {"points", std::move(points)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ballast
