// Our messages and the JSON library, compiled once for all files that read messages
// (cc.bzl). Follows system_headers.h.
#ifndef BALLAST_BAZEL_MESSAGE_HEADERS_H_
#define BALLAST_BAZEL_MESSAGE_HEADERS_H_

#include <nlohmann/json.hpp>

#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/model_profile.pb.h"
#include "proto/order_service.pb.h"
#include "proto/revision_service.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule_service.pb.h"

#endif  // BALLAST_BAZEL_MESSAGE_HEADERS_H_
