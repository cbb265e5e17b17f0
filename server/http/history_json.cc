#include "server/http/history_json.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace ballast {

std::string HistoryJson(const v1::GetHistoryResponse& history) {
  using Json = nlohmann::ordered_json;
  Json columns = Json::array({"seconds"});
  for (const auto& column : history.columns()) columns.push_back(column.name());
  Json points = Json::array();
  for (int i = 0; i < history.seconds_size(); ++i) {
    Json row = Json::array({history.seconds(i)});
    // A number that is none becomes null.
    for (const auto& column : history.columns()) {
      row.push_back(column.values(i));
    }
    points.push_back(std::move(row));
  }
  const Json json = {{"ballast_history", 1},
                     {"server", history.server()},
                     {"start", history.start()},
                     {"columns", std::move(columns)},
                     {"points", std::move(points)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string HistoryJson(const std::string& server, const StateHistory& history,
                        absl::Duration range) {
  return HistoryJson(HistoryOf(server, history, range, kMostPoints));
}

}  // namespace ballast
