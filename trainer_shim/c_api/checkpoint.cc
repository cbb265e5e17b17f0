#include "trainer_shim/c_api/checkpoint.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/spread_stream.h"
#include "common/message_fields.h"
#include "common/status_macros.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/transport.h"
#include "trainer_shim/c_api/call.h"

namespace ballast {

namespace {

constexpr absl::string_view kMagic = "BALLASTC";
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 24);

}  // namespace

std::string CheckpointBytes(const v1::Checkpoint& checkpoint) {
  std::string message;
  {
    google::protobuf::io::StringOutputStream stream(&message);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    checkpoint.SerializeToCodedStream(&coded);
  }
  Header header = {};
  std::memcpy(header.magic, kMagic.data(), sizeof(header.magic));
  header.version = kVersion;
  header.checksum = XXH3_64bits(message.data(), message.size());
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes + message;
}

absl::StatusOr<v1::Checkpoint> ParseCheckpoint(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these ", bytes.size(), " bytes are no checkpoint of Ballast's data"));
  }
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint is cut off after ", bytes.size(),
                     " bytes, in its header of ", sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("the checkpoint is of version ", header.version,
                     ", wanted ", kVersion, ": another release wrote it"));
  }
  const absl::string_view message = bytes.substr(sizeof(header));
  v1::Checkpoint checkpoint;
  if (XXH3_64bits(message.data(), message.size()) != header.checksum ||
      !checkpoint.ParseFromArray(message.data(), message.size())) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint of ", bytes.size(),
                     " bytes is damaged or cut off: its checksum differs"));
  }
  return checkpoint;
}

std::string JobToJson(const v1::Job& job, const v1::Fingerprint& fingerprint) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["fingerprint"] = fingerprint.hash();
  json["data_fingerprint"] = fingerprint.data_hash();
  json.update(ToJson(job));
  // Text from a server that is not UTF-8 must not end the process.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

constexpr uint32_t kMaxServers = 65536;
constexpr double kMaxSeconds = 1e9;
constexpr uint32_t kMaxBatchesHeld = 65536;

std::string GetText(const char* text) { return text == nullptr ? "" : text; }

absl::Status Unwanted(absl::string_view field, int64_t value,
                      absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("options.", field, " is ", value, ", wanted ", wanted));
}

absl::Status ReadCheckpoint(const ballast_shim_options& options,
                            RoleSource::Options* source) {
  if (options.checkpoint == nullptr) {
    if (options.checkpoint_size == 0) return absl::OkStatus();
    return Unwanted("checkpoint_size", options.checkpoint_size,
                    "0 without a checkpoint");
  }
  if (options.start_step != 0) {
    return Unwanted("start_step", options.start_step,
                    "0 with a checkpoint, which says it");
  }
  BALLAST_ASSIGN_OR_RETURN(
      v1::Checkpoint checkpoint,
      ParseCheckpoint({static_cast<const char*>(options.checkpoint),
                       options.checkpoint_size}));
  if (checkpoint.split() != source->role.split()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options.checkpoint is of split ", SplitName(checkpoint.split()),
        ", wanted options.split, ", SplitName(source->role.split())));
  }
  source->start_step = checkpoint.next_step();
  source->checkpoint.Swap(checkpoint.mutable_fingerprint());
  source->checkpoint_revisions.assign(checkpoint.revisions().begin(),
                                      checkpoint.revisions().end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ballast_backend> GetBackend(int backend) {
  switch (backend) {
    case BALLAST_BACKEND_HOST:
    case BALLAST_BACKEND_CUDA:
      return static_cast<ballast_backend>(backend);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "backend is ", backend, ", wanted BALLAST_BACKEND_HOST (",
          BALLAST_BACKEND_HOST, ") or BALLAST_BACKEND_CUDA (",
          BALLAST_BACKEND_CUDA, ")"));
  }
}

absl::StatusOr<absl::Duration> GetSeconds(double seconds,
                                          absl::Duration otherwise,
                                          const char* what) {
  if (seconds == 0) return otherwise;
  if (!(seconds > 0 && seconds <= kMaxSeconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", seconds, ", wanted 0 to 1e9 seconds"));
  }
  return absl::Seconds(seconds);
}

absl::StatusOr<Connection> GetConnection(const ballast_connection* given) {
  BALLAST_ASSIGN_OR_RETURN(const ballast_connection known,
                           ReadStruct(given, "connection"));
  if (known.num_servers == 0 || known.num_servers > kMaxServers) {
    return absl::InvalidArgumentError(
        absl::StrCat("connection.num_servers is ", known.num_servers,
                     ", wanted 1 to ", kMaxServers));
  }
  BALLAST_RETURN_IF_ERROR(CheckGiven(known.servers, "connection.servers"));
  Connection connection;
  ServerOptions& options = connection.servers;
  for (uint32_t i = 0; i < known.num_servers; ++i) {
    if (known.servers[i] == nullptr || *known.servers[i] == '\0') {
      return absl::InvalidArgumentError(
          absl::StrCat("connection.servers[", i, "] is empty"));
    }
    options.addresses.emplace_back(known.servers[i]);
  }
  options.security.tls_ca = GetText(known.tls_ca);
  options.security.tls_cert = GetText(known.tls_cert);
  options.security.tls_key = GetText(known.tls_key);
  options.security.tls_server_name = GetText(known.tls_server_name);
  options.security.token_file = GetText(known.token_file);
  FailoverOptions& failover = connection.failover;
  if (known.wait_for_server_s < 0) {
    failover.start_patience = absl::ZeroDuration();
  } else {
    BALLAST_ASSIGN_OR_RETURN(
        failover.start_patience,
        GetSeconds(known.wait_for_server_s, failover.start_patience,
                   "connection.wait_for_server_s"));
  }
  BALLAST_ASSIGN_OR_RETURN(failover.silent_after,
                           GetSeconds(known.hang_after_s, failover.silent_after,
                                      "connection.hang_after_s"));
  failover.slow_after = 4 * failover.silent_after;
  BALLAST_ASSIGN_OR_RETURN(failover.patience,
                           GetSeconds(known.give_up_after_s, failover.patience,
                                      "connection.give_up_after_s"));
  if (known.streams > kMaxLanes) {
    return absl::InvalidArgumentError(
        absl::StrCat("connection.streams is ", known.streams,
                     ", wanted at most ", kMaxLanes));
  }
  options.streams = std::max(known.streams, 1u);
  if (known.spread > kMaxSpread) {
    return absl::InvalidArgumentError(
        absl::StrCat("connection.spread is ", known.spread, ", wanted at most ",
                     kMaxSpread));
  }
  connection.spread = known.spread;
  connection.run = GetText(known.run);
  connection.exchange_interface = GetText(known.exchange_interface);
  return connection;
}

absl::StatusOr<ShimOptions> GetShimOptions(const ballast_shim_options& known) {
  ShimOptions options;
  RoleSource::Options& source = options.shim.source;
  const auto module = static_cast<v1::Module>(known.module);
  if (GetMedia(module) == Media::kNone) {
    std::string wanted;
    for (const ModuleKind& kind : ModuleKinds()) {
      absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", kind.module, " (",
                      kind.name, ")");
    }
    return Unwanted("module", known.module, wanted);
  }
  source.role.set_module(module);
  source.role.set_dp_rank(known.dp_rank);
  if (!v1::Split_IsValid(known.split)) {
    return Unwanted("split", known.split,
                    "BALLAST_SPLIT_TRAIN (0), BALLAST_SPLIT_VALID (1) or "
                    "BALLAST_SPLIT_TEST (2)");
  }
  source.role.set_split(static_cast<v1::Split>(known.split));
  source.place.tp_rank = known.tp_rank;
  source.place.pp_rank = known.pp_rank;
  source.place.cp_rank = known.cp_rank;
  source.place.needs_input_ids = known.needs_input_ids != 0;
  source.place.needs_labels = known.needs_labels != 0;
  BALLAST_ASSIGN_OR_RETURN(
      options.backend,
      GetBackend(known.backend == 0 ? BALLAST_BACKEND_HOST : known.backend));
  const bool cuda = options.backend == BALLAST_BACKEND_CUDA;
  if (known.device < 0 || (!cuda && known.device != 0)) {
    return Unwanted("device", known.device,
                    cuda ? "at least 0" : "0 without BALLAST_BACKEND_CUDA");
  }
  options.device = known.device;
  switch (known.pixel_type) {
    case 0:
      options.pixel_type = cuda ? PixelType::kBfloat16 : PixelType::kFloat32;
      break;
    case BALLAST_FLOAT32:
      options.pixel_type = PixelType::kFloat32;
      break;
    case BALLAST_BFLOAT16:
      options.pixel_type = PixelType::kBfloat16;
      break;
    default:
      return Unwanted("pixel_type", known.pixel_type,
                      "BALLAST_FLOAT32 (4) or BALLAST_BFLOAT16 (5)");
  }
  switch (known.normalisation) {
    case BALLAST_NORMALISE_TORCHVISION:
      options.normalisation = Normalisation::kTorchvision;
      break;
    case BALLAST_NORMALISE_PIL:
      options.normalisation = Normalisation::kPil;
      break;
    case BALLAST_NORMALISE_BFLOAT16:
      options.normalisation = Normalisation::kBfloat16;
      break;
    default:
      return Unwanted("normalisation", known.normalisation,
                      "a ballast_normalisation, 0 to 2");
  }
  source.start_step = known.start_step;
  source.steps = known.steps;
  BALLAST_RETURN_IF_ERROR(ReadCheckpoint(known, &source));
  source.fingerprint.set_hash(GetText(known.fingerprint));
  if (known.max_bytes != 0) source.max_bytes = known.max_bytes;
  if (known.max_batches_held > kMaxBatchesHeld) {
    return Unwanted("max_batches_held", known.max_batches_held,
                    absl::StrCat("at most ", kMaxBatchesHeld));
  }
  options.shim.max_batches_held = known.max_batches_held;
  options.overlap = known.no_overlap == 0;
  BALLAST_ASSIGN_OR_RETURN(
      options.timeout,
      GetSeconds(known.timeout_s, absl::Minutes(10), "options.timeout_s"));
  BALLAST_ASSIGN_OR_RETURN(Connection connection,
                           GetConnection(known.connection));
  options.shim.servers = std::move(connection.servers);
  source.failover = connection.failover;
  source.spread = connection.spread;
  return options;
}

}  // namespace ballast
