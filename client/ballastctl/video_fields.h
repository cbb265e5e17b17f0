#ifndef BALLAST_CLIENT_BALLASTCTL_VIDEO_FIELDS_H_
#define BALLAST_CLIENT_BALLASTCTL_VIDEO_FIELDS_H_

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/metrics_service.pb.h"

namespace ballast {

// Labels and texts of `ballastctl status` for what was read of videos; an empty
// label continues the field before. Pure.
std::vector<std::pair<std::string, std::string>> VideoFields(
    const v1::GetStatusResponse::Videos& videos);

// The same for `--json`: its key "videos". Pure.
nlohmann::ordered_json VideosJson(const v1::GetStatusResponse::Videos& videos);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_VIDEO_FIELDS_H_
