#ifndef BALLAST_CLIENT_BALLASTCTL_STORAGE_FIELDS_H_
#define BALLAST_CLIENT_BALLASTCTL_STORAGE_FIELDS_H_

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/metrics_service.pb.h"

namespace ballast {

// Labels and texts of `ballastctl status` for what was read of object stores;
// an empty label continues the field before. Pure.
std::vector<std::pair<std::string, std::string>> StorageFields(
    const v1::GetStatusResponse::Storage& storage);

// The same for `--json`: its key "storage". Pure.
nlohmann::ordered_json StorageJson(
    const v1::GetStatusResponse::Storage& storage);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_STORAGE_FIELDS_H_
