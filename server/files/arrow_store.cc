// Stores through Arrow's file systems.
#include "server/files/arrow_store.h"

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include <arrow/filesystem/azurefs.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/io_util.h>
#include <arrow/util/key_value_metadata.h>
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/files/store_access.h"

namespace ballast {
namespace {

constexpr int kAttempts = 4;
constexpr double kConnectSeconds = 5;
// Time without a byte after which a request fails.
constexpr double kSilentSeconds = 10;
// For all attempts of a request, in Google's client.
constexpr double kRetrySeconds = 15;
constexpr size_t kMaxKeysFile = 1 << 20;

class ArrowStore final : public ObjectStore {
 public:
  ArrowStore(std::string scheme, std::shared_ptr<arrow::fs::FileSystem> files,
             StoreKeys keys)
      : scheme_(std::move(scheme)),
        files_(std::move(files)),
        keys_(std::move(keys)) {}

  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive) override {
    std::vector<StoreEntry> entries;
    BALLAST_RETURN_IF_ERROR(Guard("list", folder, [&]() -> arrow::Status {
      arrow::fs::FileSelector selector;
      selector.base_dir = folder;
      selector.recursive = recursive;
      selector.allow_not_found = true;
      ARROW_ASSIGN_OR_RAISE(const auto found, files_->GetFileInfo(selector));
      for (const arrow::fs::FileInfo& info : found) {
        if (info.IsFile()) {
          entries.push_back({.path = info.path(),
                             .size = static_cast<uint64_t>(info.size())});
        } else if (info.IsDirectory() && !recursive) {
          entries.push_back({.path = info.path(), .is_folder = true});
        }
      }
      return arrow::Status::OK();
    }));
    return entries;
  }

  absl::StatusOr<FileStamp> Stat(const std::string& path) override {
    FileStamp stamp;
    BALLAST_RETURN_IF_ERROR(Guard("stat", path, [&]() -> arrow::Status {
      std::string version;
      // Google's client begins to read an object that is opened.
      if (scheme_ != "gs") {
        ARROW_ASSIGN_OR_RAISE(const auto file, files_->OpenInputFile(path));
        ARROW_ASSIGN_OR_RAISE(const int64_t size, file->GetSize());
        ARROW_ASSIGN_OR_RAISE(const auto metadata, file->ReadMetadata());
        stamp.size = static_cast<uint64_t>(size);
        if (metadata != nullptr) {
          version = VersionOfFields(metadata->sorted_pairs());
        }
      }
      if (version.empty()) {
        ARROW_ASSIGN_OR_RAISE(const auto info, files_->GetFileInfo(path));
        if (!info.IsFile()) {
          return arrow::internal::IOErrorFromErrno(ENOENT, "no such object");
        }
        stamp.size = static_cast<uint64_t>(info.size());
        version =
            absl::StrCat("mtime=", info.mtime().time_since_epoch().count());
      }
      // The index keeps a signed number.
      stamp.mtime_ns = static_cast<int64_t>(
          XXH3_64bits(version.data(), version.size()) >> 1);
      return arrow::Status::OK();
    }));
    return stamp;
  }

  // Arrow's S3 client reports that it has read `size` bytes whatever the answer
  // holds: it counts the size of the buffer. So the last byte of the buffer is
  // set before the read, and shows whether it was written. If the range ends
  // with that byte by chance (one in 256), the range is read again with another
  // one.
  absl::Status Read(const std::string& path, uint64_t object_size,
                    uint64_t offset, uint64_t size, char* out) override {
    if (size == 0) return absl::OkStatus();
    for (const char unwritten : {'\xa7', '\x58'}) {
      out[size - 1] = unwritten;
      BALLAST_RETURN_IF_ERROR(ReadOnce(path, object_size, offset, size, out));
      if (out[size - 1] != unwritten) return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat(scheme_, "://", path,
                     ": the store or a proxy on the way answered fewer "
                     "than the ",
                     size, " bytes at ", offset, " that were asked for"));
  }

 private:
  absl::Status ReadOnce(const std::string& path, uint64_t object_size,
                        uint64_t offset, uint64_t size, char* out) {
    int64_t count = 0;
    BALLAST_RETURN_IF_ERROR(Guard("read", path, [&]() -> arrow::Status {
      // With the size no request is made to open it.
      arrow::fs::FileInfo info(path, arrow::fs::FileType::File);
      info.set_size(static_cast<int64_t>(object_size));
      ARROW_ASSIGN_OR_RAISE(const auto file, files_->OpenInputFile(info));
      ARROW_ASSIGN_OR_RAISE(count,
                            file->ReadAt(static_cast<int64_t>(offset),
                                         static_cast<int64_t>(size), out));
      return arrow::Status::OK();
    }));
    if (static_cast<uint64_t>(count) == size) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(scheme_, "://", path, ": ends at byte ", offset + count,
                     ", wanted ", size, " bytes at ", offset));
  }

  // Runs `call`, which returns an arrow::Status, and turns its errors and
  // exceptions of the library into ours.
  template <typename Call>
  absl::Status Guard(absl::string_view action, const std::string& path,
                     Call call) const {
    arrow::Status status;
    try {
      status = call();
    } catch (const std::exception& error) {
      status = arrow::Status::IOError(error.what());
    }
    if (status.ok()) return absl::OkStatus();
    const bool missing = arrow::internal::ErrnoFromStatus(status) == ENOENT;
    return StoreFault(action, absl::StrCat(scheme_, "://", path),
                      WithoutKeys(status.message(), keys_), missing);
  }

  const std::string scheme_;
  const std::shared_ptr<arrow::fs::FileSystem> files_;
  const StoreKeys keys_;
};

absl::Status FromArrow(absl::string_view what, const arrow::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": ", status.message()));
}

std::optional<std::string> Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// Starts the AWS library once; StopStores stops it.
absl::Status StartS3() {
  static const absl::Status started = [] {
    arrow::fs::S3GlobalOptions options;
    options.log_level = arrow::fs::S3LogLevel::Off;
    options.num_event_loop_threads = 1;
    return FromArrow("storage.s3", arrow::fs::InitializeS3(options));
  }();
  return started;
}

absl::StatusOr<StoreKeys> ReadKeys(const v1::Storage::S3& s3) {
  if (s3.credentials() == "environment") {
    return KeysOfEnvironment(Variable);
  }
  const absl::StatusOr<std::string> text =
      ReadSmallFile(s3.credentials(), kMaxKeysFile);
  if (!text.ok()) return Annotate(text.status(), "storage.s3.credentials");
  return ParseKeysFile(s3.credentials(), *text);
}

absl::StatusOr<std::unique_ptr<ObjectStore>> MakeS3(const v1::Storage::S3& s3) {
  const bool signs_itself =
      s3.credentials() != "instance" && s3.credentials() != "anonymous";
  StoreKeys keys;
  if (signs_itself) {
    BALLAST_ASSIGN_OR_RETURN(keys, ReadKeys(s3));
  }
  // Otherwise the library asks the machine's metadata service, which may not
  // exist, for values that the configuration gives.
  if (s3.credentials() != "instance") {
    setenv("AWS_EC2_METADATA_DISABLED", "true", /*overwrite=*/1);
  }
  BALLAST_RETURN_IF_ERROR(StartS3());
  arrow::fs::S3Options options = arrow::fs::S3Options::Anonymous();
  if (signs_itself) {
    options.ConfigureAccessKey(keys.id, keys.secret, keys.session_token);
  } else if (s3.credentials() == "instance") {
    options.ConfigureDefaultCredentials();
  }
  options.region = s3.region();
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = kSilentSeconds;
  options.retry_strategy =
      arrow::fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  options.tls_ca_file_path = s3.ca();
  if (!s3.endpoint().empty()) {
    StoreEndpoint endpoint = SplitEndpoint(s3.endpoint());
    options.scheme = std::move(endpoint.scheme);
    options.endpoint_override = std::move(endpoint.authority);
  }
  auto files = arrow::fs::S3FileSystem::Make(options);
  if (!files.ok()) return FromArrow("storage.s3", files.status());
  // Registered after a client was made: the library's objects that stopping
  // needs must be destroyed later than this handler runs.
  static const int registered = std::atexit(StopStores);
  (void)registered;
  return std::make_unique<ArrowStore>("s3", *std::move(files), std::move(keys));
}

absl::StatusOr<std::unique_ptr<ObjectStore>> MakeGcs(
    const v1::Storage::Gcs& gcs) {
  BALLAST_ASSIGN_OR_RETURN(GcsAccess access, ResolveGcsAccess(gcs, Variable));
  arrow::fs::GcsOptions options;
  switch (access.kind) {
    case GcsAccess::Kind::kAnonymous:
      options = arrow::fs::GcsOptions::Anonymous();
      break;
    case GcsAccess::Kind::kDefault:
      options = arrow::fs::GcsOptions::Defaults();
      break;
    case GcsAccess::Kind::kServiceAccount:
      options =
          arrow::fs::GcsOptions::FromServiceAccountCredentials(access.key);
      break;
  }
  options.scheme = access.endpoint.scheme;
  options.endpoint_override = access.endpoint.authority;
  options.retry_limit_seconds = kRetrySeconds;
  auto files = arrow::fs::GcsFileSystem::Make(options);
  if (!files.ok()) return FromArrow("storage.gcs", files.status());
  StoreKeys keys;
  keys.secret = std::move(access.key);
  return std::make_unique<ArrowStore>("gs", *std::move(files), std::move(keys));
}

arrow::Status SetCredentials(const AzureAccess& access,
                             arrow::fs::AzureOptions* options) {
  switch (access.kind) {
    case AzureAccess::Kind::kAnonymous:
      return options->ConfigureAnonymousCredential();
    case AzureAccess::Kind::kKey:
      return options->ConfigureAccountKeyCredential(access.secret);
    case AzureAccess::Kind::kSas:
      return options->ConfigureSASCredential(access.secret);
    case AzureAccess::Kind::kPrincipal:
      return options->ConfigureEnvironmentCredential();
    case AzureAccess::Kind::kInstance:
      return options->ConfigureDefaultCredential();
  }
  return arrow::Status::OK();
}

absl::StatusOr<std::unique_ptr<ObjectStore>> MakeAzure(
    const v1::Storage::Azure& azure) {
  BALLAST_ASSIGN_OR_RETURN(AzureAccess access,
                           ResolveAzureAccess(azure, Variable));
  arrow::fs::AzureOptions options;
  options.account_name = access.account;
  options.blob_storage_scheme = options.dfs_storage_scheme = access.scheme;
  options.blob_storage_authority = access.blob_authority;
  options.dfs_storage_authority = access.dfs_authority;
  BALLAST_RETURN_IF_ERROR(
      FromArrow("storage.azure.credentials", SetCredentials(access, &options)));
  auto files = arrow::fs::AzureFileSystem::Make(options);
  if (!files.ok()) return FromArrow("storage.azure", files.status());
  StoreKeys keys;
  keys.secret = std::move(access.secret);
  return std::make_unique<ArrowStore>("abfs", *std::move(files),
                                      std::move(keys));
}

}  // namespace

void StopStores() {
  if (arrow::fs::IsS3Initialized()) (void)arrow::fs::EnsureS3Finalized();
}

absl::StatusOr<std::unique_ptr<ObjectStore>> MakeArrowStore(
    const std::string& scheme, const v1::Storage& storage) {
  try {
    if (scheme == "s3") return MakeS3(storage.s3());
    if (scheme == "gs") return MakeGcs(storage.gcs());
    return MakeAzure(storage.azure());
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat(scheme, "://: ", error.what()));
  }
}

}  // namespace ballast
