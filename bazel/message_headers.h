// What files that read messages include, after system_headers.h: compiled once for
// all of them (cc.bzl).
#ifndef BALLAST_BAZEL_MESSAGE_HEADERS_H_
#define BALLAST_BAZEL_MESSAGE_HEADERS_H_

#include <nlohmann/json.hpp>

#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/model_profile.pb.h"
#include "proto/order_service.pb.h"
#include "proto/revision_service.pb.h"
#include "proto/schedule_service.pb.h"

#endif  // BALLAST_BAZEL_MESSAGE_HEADERS_H_
